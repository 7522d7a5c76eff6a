package ids

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/writer"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// process simulates a process that makes ids with its own clock.
type process struct {
	*Generator
	t     *testing.T
	clock time.Time
	log   bytes.Buffer
	made  []int64
}

func newProcess(t *testing.T, db *ent.Client, clock time.Time) (*process, error) {
	p := &process{t: t, clock: clock}
	var err error
	p.Generator, err = Open(t.Context(), Config{DB: db, Now: func() time.Time { return p.clock }, Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
	return p, err
}

// makes requires that the process makes n ascending ids.
func (p *process) makes(n int) {
	p.t.Helper()
	for range n {
		id, err := p.Next()
		require.NoError(p.t, err)
		if len(p.made) > 0 {
			require.Greater(p.t, id, p.made[len(p.made)-1])
		}
		p.made = append(p.made, id)
	}
	require.NoError(p.t, p.Ready(p.t.Context()))
}

// refuses requires that the process makes no ids, is not ready, and wakes Run.
func (p *process) refuses() {
	p.t.Helper()
	_, err := p.Next()
	require.ErrorIs(p.t, err, ErrNoLease)
	require.ErrorIs(p.t, p.Ready(p.t.Context()), ErrNoLease)
	require.Len(p.t, p.runOut, 1)
	<-p.runOut
}

func (p *process) number() int64 { return p.lease.writer }

// rob gives the number of the process to another process.
func (p *process) rob() {
	p.t.Helper()
	require.NoError(p.t, p.db.Writer.UpdateOneID(p.number()).SetHolder("thief").
		SetUntil(p.lease.until+leaseFor.Milliseconds()).Exec(p.t.Context()))
}

// robRest leases all other numbers to other processes.
func (p *process) robRest(until time.Time) {
	p.t.Helper()
	for n := range int64(writers) {
		if n != p.number() {
			require.NoError(p.t, p.db.Writer.Create().SetID(n).SetHolder("other").SetUntil(millis(until)).
				OnConflictColumns(writer.FieldID).UpdateNewValues().Exec(p.t.Context()))
		}
	}
}

// A process whose number was taken takes a new one before its lease expires, and refuses no id.
func TestATakenNumberIsReplaced(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p, err := newProcess(t, s.DB, time.Now())
		require.NoError(t, err)
		p.makes(300)
		p.rob()
		taken := p.number()
		p.makes(300) // the lease still holds: the thief begins above its end
		p.clock = p.clock.Add(renewEvery)
		require.NoError(t, p.Renew(t.Context()))
		p.makes(300)
		require.NotEqual(t, taken, p.number())
		require.Equal(t, Stats{Ready: true, Leases: 2}, p.Stats())
		require.Contains(t, p.log.String(), "taken by another process")
		require.NotContains(t, p.log.String(), "refused")
	})
}

// A process that was suspended for minutes renews its lease, or takes another number if its own is
// taken.
func TestAProcessThatWasAwayMakesIDsAgain(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p, err := newProcess(t, s.DB, time.Now())
		require.NoError(t, err)
		for _, robbed := range []bool{false, true} {
			p.makes(1)
			before := p.number()
			if robbed {
				p.rob()
			}
			p.clock = p.clock.Add(3 * time.Minute)
			p.refuses()
			require.NoError(t, p.Renew(t.Context()))
			p.makes(1)
			require.Equal(t, robbed, before != p.number())
		}
	})
}

// While no number is free, the process is not ready and logs it once. It continues when a number is
// free.
func TestAProcessWithoutANumberSaysSo(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p, err := newProcess(t, s.DB, time.Now())
		require.NoError(t, err)
		p.makes(1)
		p.robRest(p.clock.Add(5 * time.Minute))
		p.rob()
		p.clock = p.clock.Add(leaseFor + time.Second)
		for range 3 {
			p.refuses()
			require.ErrorIs(t, p.Renew(t.Context()), ErrNoLease)
		}
		require.Equal(t, 1, bytes.Count(p.log.Bytes(), []byte("refused")), p.log.String())
		require.NotContains(t, p.log.String(), "again")
		require.Equal(t, Stats{Leases: 1}, p.Stats())
		p.clock = p.clock.Add(5 * time.Minute)
		p.refuses()
		require.NoError(t, p.Renew(t.Context()))
		p.makes(1)
		require.Contains(t, p.log.String(), "there is a number for new ids again")
		require.Equal(t, Stats{Ready: true, Leases: 2}, p.Stats())
	})
}

// The first refused id wakes Run, which does not wait for its next renewal.
func TestARefusedIDWakesRun(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	p, err := newProcess(t, s.DB, time.Now())
	require.NoError(t, err)
	p.clock = p.clock.Add(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	_, err = p.Next()
	require.ErrorIs(t, err, ErrNoLease)
	require.Eventually(t, func() bool { return p.Ready(ctx) == nil }, renewEvery/2, time.Millisecond)
	stop()
	require.NoError(t, <-ran)
	require.ErrorIs(t, p.Ready(t.Context()), ErrNoLease, "the number is given back")
	free, err := s.DB.Writer.Query().Where(writer.UntilLT(millis(p.clock) + 2)).Exist(t.Context())
	require.NoError(t, err)
	require.True(t, free)
}

// A process whose clock is ahead sees all leases expired. It takes the number of a running process
// only if there is no other.
func TestAClockThatIsAheadTakesNoNumberThatIsHeld(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	var others []int64
	for range 8 {
		p, err := newProcess(t, s.DB, time.Now())
		require.NoError(t, err)
		others = append(others, p.number())
	}
	for range 8 {
		p, err := newProcess(t, s.DB, time.Now().Add(24*time.Hour))
		require.NoError(t, err)
		require.NotContains(t, others, p.number())
	}
}

// late is a driver that executes some statements only after their callers have given up. It calls
// before just before it executes a statement in time.
type late struct {
	dialect.Driver
	delays func() bool
	before func()
	held   []func() error
}

var errLate = errors.New("no answer in time")

func (d *late) Exec(ctx context.Context, query string, args, v any) error {
	if d.delays() {
		d.held = append(d.held, func() error { return d.Driver.Exec(context.WithoutCancel(ctx), query, args, v) })
		return errLate
	}
	d.before()
	return d.Driver.Exec(ctx, query, args, v)
}

// No id is made twice and the ids of one process ascend, whatever the clocks of the processes do
// and whenever the database executes statements. The ids of a lease form a range that contains no
// other ids of the number.
func TestIDsAreUniqueWhateverTheClocksDo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { playLeases(t, seed) })
	}
}

// playLeases simulates processes that start, stop and make ids, with clocks that are ahead, behind,
// and step.
func playLeases(t *testing.T, seed uint64) {
	s := storagetest.Embedded(t)
	r := rand.New(rand.NewPCG(seed, 0))
	db := &late{Driver: s.Driver, delays: func() bool { return r.IntN(4) == 0 }, before: func() {}}
	client := ent.NewClient(ent.Driver(db))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	away := func() time.Time { return now.Add(time.Duration(r.NormFloat64() * float64(time.Minute))) }
	var running []*process
	leaseOf := map[int64]string{} // the holder, by id
	refused, executed := 0, 0
	post := func(p *process) {
		id, err := p.Next()
		if err != nil {
			refused++
			return
		}
		if n := len(p.made); n > 0 && id <= p.made[n-1] {
			t.Fatalf("id %d after %d", id, p.made[n-1])
		}
		if other := leaseOf[id]; other != "" {
			t.Fatalf("id %d was made by %s before", id, other)
		}
		p.made = append(p.made, id)
		leaseOf[id] = p.lease.holder
	}
	for range 3000 {
		now = now.Add(time.Duration(r.Int64N(int64(time.Second))))
		for _, p := range running {
			p.clock = p.clock.Add(time.Duration(r.Int64N(int64(time.Second))))
		}
		if len(running) < 24 {
			if p, err := newProcess(t, client, away()); err == nil {
				running = append(running, p)
			} else {
				require.True(t, errors.Is(err, ErrNoLease) || errors.Is(err, errLate), "%v", err)
			}
		}
		if len(running) == 0 {
			continue
		}
		i := r.IntN(len(running))
		p := running[i]
		db.before = func() {
			p.clock = p.clock.Add(time.Duration(r.Int64N(int64(time.Second))))
			post(p)
		}
		switch n := r.IntN(100); {
		case n < 4: // the clock steps, or the process is suspended
			p.clock = away()
		case n < 6: // killed
			running = slices.Delete(running, i, i+1)
		case n < 8:
			_ = p.release(t.Context())
			running = slices.Delete(running, i, i+1)
		case n < 40:
			_ = p.Renew(t.Context())
		case n < 55 && len(db.held) > 0:
			i := r.IntN(len(db.held))
			if db.held[i]() == nil { // a late insert may violate a constraint
				executed++
			}
			db.held = slices.Delete(db.held, i, i+1)
		default:
			for range r.IntN(300) {
				post(p)
			}
		}
		db.before = func() {}
	}
	t.Logf("%d ids, %d refusals, %d late statements", len(leaseOf), refused, executed)
	require.Positive(t, executed)
	byNumber := func(a, b int64) int {
		return cmp.Or(cmp.Compare(a>>sequenceBits%writers, b>>sequenceBits%writers), cmp.Compare(a, b))
	}
	ended, last := map[string]bool{}, ""
	for _, id := range slices.SortedFunc(maps.Keys(leaseOf), byNumber) {
		if holder := leaseOf[id]; holder != last {
			require.False(t, ended[holder], "id %d is amid those of another lease of the number", id)
			ended[last], last = true, holder
		}
	}
}

// refusals is a driver that records the errors of the database. Every process reads the numbers
// before any of them writes.
type refusals struct {
	dialect.Driver
	read *sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (r *refusals) note(err error) error {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
	return err
}

func (r *refusals) Exec(ctx context.Context, query string, args, v any) error {
	return r.note(r.Driver.Exec(ctx, query, args, v))
}

func (r *refusals) Query(ctx context.Context, query string, args, v any) error {
	err := r.note(r.Driver.Query(ctx, query, args, v))
	if strings.HasPrefix(query, "SELECT") && !strings.Contains(query, "WHERE") {
		r.read.Done()
		r.read.Wait()
	}
	return err
}

// Processes that start at the same time try the same number. The slower ones take another, and no
// statement fails, because PostgreSQL would log the failure.
func TestStartAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const processes = 4
		r := &refusals{Driver: s.Driver, read: new(sync.WaitGroup)}
		r.read.Add(processes)
		db := ent.NewClient(ent.Driver(r))
		var opened sync.WaitGroup
		for range processes {
			opened.Go(func() {
				_, err := newProcess(t, db, time.Now())
				r.note(err)
			})
		}
		opened.Wait()
		require.Empty(t, r.errs)
		require.Equal(t, processes, s.DB.Writer.Query().CountX(t.Context()))
	})
}
