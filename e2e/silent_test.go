package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// pubsub is the proxy owner of the connections that have sent SUBSCRIBE.
const pubsub = "pub/sub"

func subscriberOrNot(owner string, sent []byte) string {
	if owner == pubsub || bytes.Contains(sent, []byte("\r\nsubscribe\r\n")) {
		return pubsub
	}
	return "commands"
}

// The pub/sub connection, or every connection to Redis, falls silent, as if a firewall had
// forgotten it. The process notices this by itself, and no event is lost.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	for name, silenced := range map[string]string{"pub/sub": pubsub, "everything": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stores := storagetest.Real(t)
			config := storagetest.Config(stores)
			socket := strings.TrimPrefix(config.RedisURL, "unix://")
			between := storagetest.StartProxyWithOwners(t, func() (string, string) { return "unix", socket }, subscriberOrNot)
			start(t, settings(config), "worker", "--worker-addr=127.0.0.1:0")
			other := start(t, settings(config), "server", "--addr=127.0.0.1:0")
			config.RedisURL = "redis://" + between.Addr
			p := start(t, settings(config), "server", "--addr=127.0.0.1:0")
			ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
			ben.follow(t, p, ann)
			require.Eventually(t, func() bool { // otherwise the follow's job may change the timeline that ben watches
				jobs, err := stores.DB.Job.Query().Count(t.Context())
				return err == nil && jobs == 0
			}, 30*time.Second, 10*time.Millisecond)
			f := ben.watch(t, p)
			ann.post(t, other, "one")
			f.added("one")

			require.NotZero(t, between.SilencePresent(silenced))
			begun := time.Now()
			ann.post(t, other, "two")
			events := f.added("two")
			t.Logf("told %v after the connection fell silent", time.Since(begun))
			require.Contains(t, p.out.String(), "lost the pub/sub connection")
			ann.post(t, other, "three")
			events = append(events, f.added("three")...)
			if silenced == pubsub {
				require.Len(t, events, 2, "nothing twice, and nothing to read again")
			}
		})
	}
}
