package live_test

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

// era generates the hub's marks. Each mark is higher than the one before, and each mark
// of an era is higher than all marks of earlier eras. Because marks rise within an era, a
// connection that breaks on a busy machine does not delay a test for long.
type era struct{ now, taken atomic.Int64 }

const marksOfEra = 1 << 20

// config returns the configuration of quick, with marks.
func (e *era) config(sharded bool) live.HubConfig {
	cfg := quick(sharded)
	cfg.Mark = func(context.Context) int64 { return e.now.Load()*marksOfEra + e.taken.Add(1) }
	return cfg
}

func covered(s reader) int64 { return s.Covered() / marksOfEra }

// covers takes events until the era is covered.
func covers(t *testing.T, s reader, era int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.Take() // on a busy machine, presence or the connection may be lost
		return covered(s) == era
	}, patience, time.Millisecond)
}

// takeResync takes events until a Resync, and checks that no later era is covered before.
func takeResync(t *testing.T, s reader, era int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		before := covered(s)
		ev, ok := s.Take()
		if ok && ev.Kind == live.Resync {
			return true
		}
		require.LessOrEqual(t, before, era)
		return false
	}, patience, time.Millisecond)
}

// probes is a Redis hook that counts the probes, and delays the first one of an era.
type probes struct {
	hold          int64 // the era; 0: no probe is delayed
	held, release chan struct{}
	sent          atomic.Int64
}

func (p *probes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *probes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "publish" && cmd.Name() != "spublish" {
			return next(ctx, cmd)
		}
		msg, _ := cmd.Args()[2].([]byte)
		if mark, _ := binary.Uvarint(msg[2:]); p.hold != 0 && int64(mark)/marksOfEra == p.hold {
			p.hold = 0 // no race: only the registrar sends probes
			close(p.held)
			<-p.release
		}
		err := next(ctx, cmd)
		p.sent.Add(1)
		return err
	}
}

func (p *probes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// await waits until n more probes have been sent.
func (p *probes) await(t *testing.T, n int64) {
	t.Helper()
	n += p.sent.Load()
	require.Eventually(t, func() bool { return p.sent.Load() >= n }, patience, time.Millisecond)
}

// passed waits until everything that was sent to the channel before has been received.
func passed(t *testing.T, send func(msg string), s reader) {
	t.Helper()
	send("\x01\x01\x63\x00\x00\x00\x01\x01") // post 99 to user 1
	for next(t, s).Post != 99 {
	}
}

// While presence may be incomplete, probes still arrive, but no later mark becomes covered.
func TestMarksWaitForPresence(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, _ := storagetest.Through(t, rdb)
		var failing failures
		var sent probes
		var marks era
		mine.AddHook(&failing)
		mine.AddHook(&sent)
		h, _ := run(t, mine, marks.config(sharded))
		send := toHub(t, rdb, sharded)
		s := subscribe(t, h, 1)
		marks.now.Store(1)
		covers(t, s, 1)
		send("\x01\x01\x07\x00\x00\x00\x01\x01") // post 7 to user 1
		require.Eventually(t, func() bool { return s.Covered() == 0 }, patience, time.Millisecond, "an event waits")
		require.EqualValues(t, 7, after(t, s).Post)

		failing.set(true)
		marks.now.Store(2)
		taken, failed := marks.taken.Load(), failing.count()
		require.Eventually(t, func() bool { return marks.taken.Load() > taken+1 && failing.count() > failed+2 }, patience, time.Millisecond)
		sent.await(t, 2) // the second probe starts after the mark was taken
		passed(t, send, s)
		require.LessOrEqual(t, covered(s), int64(1))
		failing.set(false)
		covers(t, s, 2)

		s.Close()
		require.Zero(t, s.Covered(), "it hears no more")
	})
}

// A message is lost after a heartbeat found presence complete. The probe that follows the
// heartbeat arrives, but its mark is not covered until the Resync is taken.
func TestMarksWaitForTheResync(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, _ := storagetest.Through(t, rdb)
		var failing failures
		var marks era
		sent := &probes{hold: 2, held: make(chan struct{}), release: make(chan struct{})}
		mine.AddHook(&failing)
		mine.AddHook(sent)
		cfg := marks.config(sharded)
		cfg.Silence = 6 * time.Second // the delayed probe must not end the connection
		h, _ := run(t, mine, cfg)
		send := toHub(t, rdb, sharded)
		s := subscribe(t, h, 1)
		marks.now.Store(1)
		covers(t, s, 1)
		marks.now.Store(2)
		<-sent.held
		send(unreadable)
		require.Eventually(t, func() bool { return h.Stats().Malformed == 1 }, patience, time.Millisecond)
		failing.set(true) // no Resync for now
		close(sent.release)
		sent.await(t, 1)
		passed(t, send, s)
		require.LessOrEqual(t, covered(s), int64(1))
		failing.set(false)
		takeResync(t, s, 1)
		covers(t, s, 2)
	})
}

// When a connection falls silent, no mark becomes covered until the next connection has
// sent a Resync.
func TestMarksWaitForTheConnection(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		mine, net := storagetest.Through(t, rdb)
		var marks era
		h, _ := run(t, mine, marks.config(sharded))
		s := subscribe(t, h, 1)
		marks.now.Store(1)
		covers(t, s, 1)
		net.Freeze()
		marks.now.Store(2)
		takeResync(t, s, 1)
		covers(t, s, 2)
	})
}
