package live_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

// recovers calls breakIt, and expects a Resync and then that events arrive again. It publishes
// each event repeatedly until it arrives, because a busy machine may lose the connection at
// any time, and with it the events of that moment.
func recovers(t *testing.T, h *live.Hub, p *live.Publisher, breakIt func()) {
	both := []reader{subscribe(t, h, 1), subscribe(t, h, 2)}
	flows := func(post int64) {
		t.Helper()
		var got [2]bool
		require.Eventually(t, func() bool {
			_, _ = p.Publish(t.Context(), live.Event{Kind: live.Added, Post: post}, []int64{1, 2})
			for i, s := range both {
				for ev, ok := s.Take(); ok; ev, ok = s.Take() {
					got[i] = got[i] || ev.Post == post
				}
			}
			return got[0] && got[1]
		}, patience, 10*time.Millisecond)
	}
	flows(1)
	breakIt()
	for _, s := range both {
		for next(t, s).Kind != live.Resync {
		}
	}
	require.Eventually(t, func() bool { return h.Ready(t.Context()) == nil }, patience, time.Millisecond)
	flows(2)
	require.Eventually(t, func() bool { return h.Stats().Resyncs >= 2 }, patience, time.Millisecond)
}

func TestBrokenConnection(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, net := storagetest.Through(t, rdb)
		h, _ := run(t, mine, live.HubConfig{Sharded: sharded})
		recovers(t, h, live.NewPublisher(rdb, sharded), net.Cut)
		assert.EqualValues(t, 2, h.Stats().Connects)
	})
}

// A Resync wakes many subscriptions in groups, and wakes all of them.
func TestResyncReachesMany(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, net := storagetest.Through(t, rdb)
		h, _ := run(t, mine, live.HubConfig{Sharded: sharded})
		all := subscribeAll(t, h, 500)
		net.Cut()
		late := time.After(patience)
		for _, s := range all {
			select {
			case <-s.news:
			case <-late:
				t.Fatal("it is not woken")
			}
			require.Equal(t, live.Resync, next(t, s).Kind)
		}
	})
}

func TestKilledByRedis(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		kill := func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, "client", "kill", "type", "pubsub").Err()
		}
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		recovers(t, h, live.NewPublisher(rdb, sharded), func() {
			switch c := rdb.(type) {
			case *redis.ClusterClient:
				require.NoError(t, c.ForEachMaster(t.Context(), kill))
			case *redis.Client:
				if err := kill(t.Context(), c); err != nil {
					t.Skipf("this Redis cannot kill its clients: %v", err)
				}
			}
		})
	})
}

func TestSilentConnection(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, net := storagetest.Through(t, rdb)
		h, _ := run(t, mine, live.HubConfig{Sharded: sharded, Silence: 600 * time.Millisecond})
		p := live.NewPublisher(rdb, sharded)
		recovers(t, h, p, func() {
			net.Freeze()
			publish(t, p, 99, 1, 2) // this event is lost, so a Resync must follow
		})
	})
}

// Because of the probes, a connection without events is not replaced.
func TestIdleConnectionStays(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		probed, seen := make(chan struct{}, 100), 0
		mine, _ := storagetest.Through(t, rdb)
		mine.AddHook(onCommand(map[string]func(){
			"publish":  func() { probed <- struct{}{} },
			"spublish": func() { probed <- struct{}{} },
		}))
		h, _ := run(t, mine, live.HubConfig{Sharded: sharded, Silence: 3 * time.Second})
		for ; seen < 4; seen++ { // takes longer than Silence
			<-probed
		}
		assert.NoError(t, h.Ready(t.Context()))
		assert.Equal(t, live.Stats{Connects: 1}, h.Stats())
	})
}

func TestRestartedServer(t *testing.T) {
	server := storagetest.StartRedis(t)
	rdb := serverClient(t, server)
	h, _ := run(t, rdb, live.HubConfig{})
	recovers(t, h, live.NewPublisher(rdb, false), func() {
		server.Kill()
		require.Eventually(t, func() bool { return h.Ready(t.Context()) != nil }, patience, time.Millisecond)
		server.Start(t)
	})
}

func TestWipedRedis(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, quick(sharded))
		recovers(t, h, live.NewPublisher(rdb, sharded), func() { flush(t, rdb) })
	})
}

// A new subscriber right after a wipe must not hide the loss of the other entries.
func TestWipedRedisThenSubscribe(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, quick(sharded))
		p := live.NewPublisher(rdb, sharded)
		recovers(t, h, p, func() {
			flush(t, rdb)
			subscribe(t, h, 3)
		})
		assert.Equal(t, 3, publish(t, p, 1, 1, 2, 3))
	})
}

// toHub returns a function that sends a raw message to the channel of the only hub.
func toHub(t *testing.T, rdb redisclient.Client, sharded bool) func(msg string) {
	t.Helper()
	procs, err := rdb.ZRange(t.Context(), "live:procs", 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, procs, 1)
	channel := "live:{p" + procs[0] + "}"
	return func(msg string) {
		t.Helper()
		if sharded {
			err = rdb.SPublish(t.Context(), channel, msg).Err()
		} else {
			err = rdb.Publish(t.Context(), channel, msg).Err()
		}
		require.NoError(t, err)
	}
}

// unreadable is a message in another version of the wire format.
const unreadable = "\x02from tomorrow"

func TestUnreadableMessage(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, quick(sharded))
		recovers(t, h, live.NewPublisher(rdb, sharded), func() { toHub(t, rdb, sharded)(unreadable) })
		assert.EqualValues(t, 1, h.Stats().Malformed)
	})
}

// Publishers soon stop addressing a process that dies without removing its presence, and
// its keys expire.
func TestDeadProcess(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, _ := storagetest.Through(t, rdb)
		dead, stop := run(t, mine, quick(sharded))
		subscribe(t, dead, 1)
		p := live.NewPublisher(rdb, sharded)
		assert.Equal(t, 1, publish(t, p, 1, 1))
		require.NoError(t, mine.Close()) // the hub cannot remove its presence
		stop()
		require.Eventually(t, func() bool { return publish(t, p, 1, 1) == 0 }, patience, 10*time.Millisecond)
		require.Eventually(t, func() bool { return len(keys(t, rdb)) == 0 }, patience, 10*time.Millisecond)
	})
}

// After a failed write of presence, the next heartbeat or the next connection writes it
// again, and Subscribe waits for that.
func TestPresenceWriteFails(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, net := storagetest.Through(t, rdb)
		var failing failures
		mine.AddHook(&failing)
		h, _ := run(t, mine, quick(sharded))
		p := live.NewPublisher(rdb, sharded)
		for _, disconnect := range []bool{false, true} {
			old := subscribe(t, h, 1)
			failing.set(true)
			old.Close()
			waiting := make(chan reader, 1)
			go func() {
				s, err := read(t.Context(), h, 2)
				assert.NoError(t, err)
				waiting <- s
			}()
			if disconnect {
				net.Cut()
				require.Eventually(t, func() bool { return h.Ready(t.Context()) != nil }, patience, time.Millisecond)
			}
			failed := failing.count()
			require.Eventually(t, func() bool { return failing.count() > failed+2 }, patience, time.Millisecond)
			assert.Empty(t, waiting)
			failing.set(false)

			s := <-waiting
			assert.Equal(t, 1, publish(t, p, 7, 1, 2), "1 is gone, 2 is there")
			assert.EqualValues(t, 7, after(t, s).Post)
			s.Close()
		}
	})
}
