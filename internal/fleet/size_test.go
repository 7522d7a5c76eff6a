package fleet

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/process"
	"tideline/ent/schema"
	"tideline/feed/moderation"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// scaled is a member whose sizes may be changed: two pools of the queue, and a number that
// takes 1 to 9.
func (y *yard) scaled(q *queue.Queue, other *int) *Member {
	y.t.Helper()
	m, err := NewMember(Config{
		DB: y.s.DB, Version: "1.2.3", Workers: q, Subscriptions: func() int { return 0 }, Now: y.clock.now, Logger: slog.New(slog.NewTextHandler(y.log, nil)),
		Sizes: map[Size]Adjuster{
			SmallWorkers: {func() int { return q.Size(queue.Small) }, func(n int) error { return q.Resize(queue.Small, n) }},
			LargeWorkers: {func() int { return q.Size(queue.Large) }, func(n int) error { return q.Resize(queue.Large, n) }},
			FanOutPage: {func() int { return *other }, func(n int) error {
				if n > 9 {
					return errors.New("it must be 1 to 9")
				}
				*other = n
				return nil
			}},
		},
	})
	require.NoError(y.t, err)
	require.NoError(y.t, m.Renew(y.t.Context()))
	return m
}

func (y *yard) row(m *Member) *ent.Process {
	y.t.Helper()
	return y.s.DB.Process.GetX(y.t.Context(), m.ID())
}

// Sizes reach the one process that they are for, which says so in the same renewal. What was
// wanted before of another size holds, until a reset. They outlast the row, and end with the
// process.
func TestSizesReachTheirProcess(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		q, other, page, otherPage := y.queue(), y.queue(), 5, 5
		m, untold := y.scaled(q, &page), y.scaled(other, &otherPage)
		scale := func(to map[Size]int, note string, want bool) {
			t.Helper()
			p, changed, err := y.Scale(t.Context(), moderation.Console, m.ID(), to, note)
			require.NoError(t, err)
			require.Equal(t, want, changed)
			require.Equal(t, m.ID(), p.ID)
		}
		sizes := func() []int { return []int{q.Size(queue.Small), q.Size(queue.Large), page} }
		require.Equal(t, map[Size]schema.Sizing{SmallWorkers: {Now: 32, Configured: 32}, LargeWorkers: {Now: 2, Configured: 2}, FanOutPage: {Now: 5, Configured: 5}}, y.row(m).Sizes)
		require.False(t, Has(y.row(m), LargeAudience))

		scale(map[Size]int{SmallWorkers: 16}, "", true)
		scale(map[Size]int{SmallWorkers: 16}, "", false)
		scale(map[Size]int{FanOutPage: 7, LargeWorkers: 2}, "lag", true)
		require.Equal(t, []int{32, 2, 5}, sizes(), "it has not heard of it")
		require.Equal(t, []int{16, 2, 7}, []int{WantedOf(y.row(m), SmallWorkers), WantedOf(y.row(m), LargeWorkers), WantedOf(y.row(m), FanOutPage)})
		require.NoError(t, m.Renew(t.Context()))
		require.NoError(t, untold.Renew(t.Context()))
		require.Equal(t, []int{16, 2, 7}, sizes())
		require.Equal(t, []int{32, 5}, []int{other.Size(queue.Small), otherPage})
		require.Equal(t, map[Size]schema.Sizing{SmallWorkers: {Now: 16, Configured: 32}, LargeWorkers: {Now: 2, Configured: 2}, FanOutPage: {Now: 7, Configured: 5}}, y.row(m).Sizes)

		_, err := s.DB.Process.Delete().Where(process.ID(m.ID())).Exec(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Renew(t.Context()))
		require.NoError(t, m.Renew(t.Context()))
		require.Equal(t, []int{16, 2, 7}, sizes(), "they outlast the row")
		require.Equal(t, map[Size]int{SmallWorkers: 16, FanOutPage: 7}, y.row(m).WantedSizes)

		// Together with a pause, in one renewal.
		_, _, err = y.Want(t.Context(), moderation.Console, m.ID(), process.WantedPause, "")
		require.NoError(t, err)
		scale(map[Size]int{SmallWorkers: 32}, "", true)
		require.NoError(t, m.Renew(t.Context()))
		require.True(t, q.Paused())
		require.True(t, y.row(m).Paused)
		require.Equal(t, 32, y.row(m).Sizes[SmallWorkers].Now)
		scale(nil, "", true)
		scale(nil, "", false)
		require.NoError(t, m.Renew(t.Context()))
		require.Equal(t, []int{32, 2, 5}, sizes())
		require.Empty(t, y.row(m).WantedSizes)

		log, err := s.DB.AuditEntry.Query().Where(auditentry.ActionEQ(auditentry.ActionSCALE_WORKERS)).Order(auditentry.ByID()).All(t.Context())
		require.NoError(t, err)
		var notes []string
		for _, entry := range log {
			require.Equal(t, []any{int64(0), auditentry.SubjectKindProcess, m.ID()}, []any{entry.ActorID, entry.SubjectKind, entry.SubjectID})
			notes = append(notes, entry.Note)
		}
		require.Equal(t, []string{"smallWorkers 32 → 16", "fanOutPage 5 → 7; lag", "smallWorkers 16 → 32", "fanOutPage 7 → 5"}, notes)
	})
}

// A size that the process does not take stays as it is, which is told once. The others change.
func TestSizeThatTheProcessRefuses(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		q, page := y.queue(), 5
		m := y.scaled(q, &page)
		to := func(page int) {
			t.Helper()
			_, changed, err := y.Scale(t.Context(), moderation.Console, m.ID(), map[Size]int{SmallWorkers: 9, FanOutPage: page}, "")
			require.NoError(t, err)
			require.True(t, changed)
			for range 3 {
				require.NoError(t, m.Renew(t.Context()))
			}
		}
		to(10)
		require.Equal(t, []int{9, 5, 5}, []int{q.Size(queue.Small), page, y.row(m).Sizes[FanOutPage].Now})
		require.Equal(t, 1, y.log.count("a size stays as it is"))
		to(9)
		require.Equal(t, 9, y.row(m).Sizes[FanOutPage].Now)
		to(10)
		require.Equal(t, 9, page)
		require.Equal(t, 2, y.log.count("a size stays as it is"))
	})
}

// Nothing is wanted of a process that could not hear of it, or has no such size. A process of
// an earlier version is known by its row.
func TestScaleRefuses(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		page := 5
		gone := y.scaled(y.queue(), &page)
		y.clock.pass(GoneAfter)
		m := y.scaled(y.queue(), &page)
		old := s.DB.Process.Create().SetID(5).SetHost("h").SetPid(1).SetVersion("0.9.0").SetRoles("workers").SetStartedAt(y.clock.now()).
			SetSeenAt(y.clock.now()).SetSubscriptions(0).SetJobs(0).SetPaused(false).SaveX(t.Context())
		for id, want := range map[int64]error{gone.ID(): ErrGone, old.ID: ErrTooOld, -1: ErrNoProcess} {
			for _, to := range []map[Size]int{nil, {SmallWorkers: 3}} {
				_, _, err := y.Scale(t.Context(), moderation.Console, id, to, "")
				require.ErrorIs(t, err, want)
			}
		}
		_, _, err := y.Scale(t.Context(), moderation.Console, m.ID(), map[Size]int{SmallWorkers: 3, LargeAudience: 3}, "")
		require.ErrorIs(t, err, ErrNoSize)
		_, _, err = y.Scale(t.Context(), moderation.Console, m.ID(), map[Size]int{SmallWorkers: 3}, string(make([]byte, 2000)))
		require.Error(t, err)
		require.Empty(t, y.row(m).WantedSizes)
		require.Zero(t, s.DB.AuditEntry.Query().CountX(t.Context()))
	})
}

// Two operators who change two sizes at once both get what they want.
func TestTwoOperatorsScaleAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		page := 5
		m := y.scaled(y.queue(), &page)
		done := make(chan error)
		for _, to := range []map[Size]int{{SmallWorkers: 3}, {FanOutPage: 6}} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				_, _, err := y.Scale(ctx, moderation.Console, m.ID(), to, "")
				done <- err
			}()
		}
		for range 2 {
			require.NoError(t, <-done)
		}
		require.Equal(t, map[Size]int{SmallWorkers: 3, FanOutPage: 6}, y.row(m).WantedSizes)
	})
}
