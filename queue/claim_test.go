package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// stalled is an attempt that is stopped in its handler, and the process that takes over its job.
type stalled struct {
	*Queue
	job       *Job       // as the first attempt sees it
	end       chan error // the result that its handler returns
	results   chan Result
	later     chan *Job // the jobs of the later attempts
	successor *worker
}

func stall(t *testing.T, s *storage.Stores) *stalled {
	st := &stalled{end: make(chan error, 1), results: make(chan Result, 10), later: make(chan *Job, 10)}
	cfg := brisk()
	cfg.ClaimIdle = soon // the test decides when the claim is lost
	cfg.Observe = func(r Result) { st.results <- r }
	st.Queue = newQueue(t, s, cfg)
	var calls atomic.Int32
	began := make(chan *Job, 1)
	st.Handle("k", func(_ context.Context, j *Job) error {
		if calls.Add(1) > 1 {
			st.later <- j
			return nil
		}
		began <- j
		return <-st.end
	})
	start(t, st.Queue)
	enqueue(t, st.Queue, Small, "k", "p")
	st.job = receive(t, began)
	st.successor = newWorker(newQueue(t, s, cfg), Small, 1)
	return st
}

// takeOver makes the successor read the row and take the claim.
func (st *stalled) takeOver(t *testing.T) *Job {
	t.Helper()
	j, err := st.successor.rows.load(t.Context(), entry{job: st.job.ID})
	require.NoError(t, err)
	require.True(t, j.Again)
	j.steps = new(steps)
	return j
}

// finish ends the attempt of the successor.
func (st *stalled) finish(t *testing.T, j *Job, cause error) ending {
	t.Helper()
	end, err := st.successor.rows.settle(t.Context(), j, cause)
	require.NoError(t, err)
	st.successor.held.free(t.Context(), &heldJob{id: j.ID, entries: st.entriesOf(t)})
	return end
}

// goOn ends the first attempt and returns its outcome. The next attempt may be observed first.
func (st *stalled) goOn(t *testing.T, err error) Outcome {
	t.Helper()
	st.end <- err
	return st.outcome(t, err)
}

func (st *stalled) outcome(t *testing.T, of error) Outcome {
	t.Helper()
	for {
		if r := receive(t, st.results); errors.Is(r.Err, of) {
			return r.Outcome
		}
	}
}

// requireOnceMore requires that the job runs again from its beginning.
func (st *stalled) requireOnceMore(t *testing.T) {
	t.Helper()
	j := receive(t, st.later)
	assert.Equal(t, st.job.ID, j.ID)
	assert.Equal(t, `"p"`, string(j.Payload))
	assert.Empty(t, j.State)
	assert.True(t, j.Again)
	assert.False(t, j.CreatedAt.Before(st.job.CreatedAt.Truncate(time.Millisecond)), "a new job, if the first is done")
	drain(t, st.Queue)
	requireStreamsEmpty(t, st.Queue)
	assert.Empty(t, st.later)
}

func TestLostClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, st *stalled){
		"its failure after the successor is done brings the job back": func(t *testing.T, st *stalled) {
			assert.Equal(t, Done, st.finish(t, st.takeOver(t), nil).outcome)
			assert.Equal(t, Lost, st.goOn(t, errors.New("too late")))
			st.requireOnceMore(t)
		},
		"its failure beside the successor lets the successor go on, and the job is done once more": func(t *testing.T, st *stalled) {
			successor := st.takeOver(t)
			require.NoError(t, successor.Checkpoint(t.Context(), 1))
			assert.Equal(t, Lost, st.goOn(t, errors.New("too late")))
			require.NoError(t, successor.Checkpoint(t.Context(), 2))
			assert.Empty(t, st.later, "not beside the successor")
			end := st.finish(t, successor, nil)
			assert.Equal(t, Done, end.outcome)
			assert.False(t, end.due.IsZero())
			st.requireOnceMore(t)
		},
		"its failure when the successor has failed forgets the successor's state": func(t *testing.T, st *stalled) {
			successor := st.takeOver(t)
			require.NoError(t, successor.Checkpoint(t.Context(), 1))
			assert.Equal(t, Failed, st.finish(t, successor, errors.New("no luck")).outcome)
			assert.Equal(t, Lost, st.goOn(t, errors.New("too late")))
			st.requireOnceMore(t)
		},
		"its failure when the successor has given up brings the job back": func(t *testing.T, st *stalled) {
			successor := st.takeOver(t)
			assert.Equal(t, Dead, st.finish(t, successor, GiveUp(errors.New("hopeless"))).outcome)
			assert.Equal(t, Lost, st.goOn(t, errors.New("too late")))
			st.requireOnceMore(t)
		},
		"its success leaves the job to the successor": func(t *testing.T, st *stalled) {
			successor := st.takeOver(t)
			assert.Equal(t, Done, st.goOn(t, nil))
			require.NoError(t, successor.Checkpoint(t.Context(), 1))
			assert.Len(t, st.entriesOf(t), 1, "the successor's entry stays")
			assert.Equal(t, ending{outcome: Done}, st.finish(t, successor, nil))
			assert.Zero(t, st.db.Job.Query().CountX(t.Context()))
		},
		"its checkpoint does not replace the successor's": func(t *testing.T, st *stalled) {
			successor := st.takeOver(t)
			require.NoError(t, successor.Checkpoint(t.Context(), "successor"))
			require.ErrorIs(t, st.job.Checkpoint(t.Context(), "lost"), ErrClaimLost)
			assert.JSONEq(t, `"successor"`, string(onlyJob(t, st.Queue).State))
			assert.Equal(t, Done, st.finish(t, successor, nil).outcome)
			assert.Equal(t, Done, st.goOn(t, nil))
		},
		"it is retried by an operator meanwhile": func(t *testing.T, st *stalled) {
			found, err := st.Retry(t.Context(), st.job.ID)
			require.NoError(t, err)
			assert.Equal(t, []int64{st.job.ID}, found)
			assert.Equal(t, Done, st.goOn(t, nil))
			drain(t, st.Queue)
		},
		"two of its attempts are lost": func(t *testing.T, st *stalled) {
			second := st.takeOver(t)
			third := st.takeOver(t)
			assert.Equal(t, Done, st.finish(t, third, nil).outcome)
			assert.Equal(t, Lost, st.finish(t, second, errors.New("late")).outcome)
			assert.Equal(t, Lost, st.goOn(t, errors.New("too late")))
			receive(t, st.later)
			drain(t, st.Queue)
		},
		"nobody knows while SQL is down": func(t *testing.T, st *stalled) {
			assert.Equal(t, Done, st.finish(t, st.takeOver(t), nil).outcome)
			refused, up := make(chan struct{}, 100), make(chan struct{})
			st.db.Job.Use(func(next ent.Mutator) ent.Mutator {
				return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
					select {
					case <-up:
						return next.Mutate(ctx, m)
					default:
						refused <- struct{}{}
						return nil, errors.New("down")
					}
				})
			})
			late := errors.New("too late")
			st.end <- late
			receive(t, refused)
			receive(t, refused)
			close(up)
			assert.Equal(t, Lost, st.outcome(t, late))
			st.requireOnceMore(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) { test(t, stall(t, s)) })
		})
	}
}

// entriesOf returns the ids of the entries in the stream.
func (st *stalled) entriesOf(t *testing.T) (ids []string) {
	t.Helper()
	entries, err := st.rdb.XRange(t.Context(), Small.stream(), "-", "+").Result()
	require.NoError(t, err)
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// A process that was suspended for longer than ClaimIdle checks the row before it continues, even
// if a heartbeat came first.
func TestConfirm(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		st := stall(t, s)
		away := func() { st.job.claim.beats.beat(time.Now().Add(-2 * soon)) }
		require.NoError(t, st.job.Confirm(t.Context()))
		away()
		require.NoError(t, st.job.Confirm(t.Context()), "nobody has taken the job over")
		st.job.claim.beats.beat(time.Now())
		require.NoError(t, st.job.Confirm(t.Context()))

		successor := st.takeOver(t)
		require.NoError(t, st.job.Confirm(t.Context()), "it does not look while the heart beats")
		away()
		require.ErrorIs(t, st.job.Confirm(t.Context()), ErrClaimLost)
		st.job.claim.beats.beat(time.Now())
		require.ErrorIs(t, st.job.Confirm(t.Context()), ErrClaimLost)
		require.NoError(t, successor.Confirm(t.Context()))
		assert.Equal(t, Done, st.goOn(t, nil))
	})
}

// An attempt that lost its claim ends after the job came back to the stream under another entry.
// The attempt releases its own entry, which is gone already, and the job stays known.
func TestLateReleaseLeavesTheNextEntry(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		stream := q.streamOf(Small)
		require.NoError(t, stream.create(t.Context()))
		push := func() (added int) {
			added, err := stream.push(t.Context(), entry{job: 1}, entry{job: 2})
			require.NoError(t, err)
			return added
		}
		read := func() (ids []string) {
			entries, err := stream.readNew(t.Context(), 10, readBlock)
			require.NoError(t, err)
			for _, e := range entries {
				ids = append(ids, e.id)
			}
			return ids
		}
		release := func(batch ...*freed) { require.NoError(t, stream.release(t.Context(), batch)) }

		require.Equal(t, 2, push())
		first := read()
		require.Len(t, first, 2)
		lost, kept := &freed{job: 1, entries: first[:1]}, &freed{job: 2, entries: first[1:]}
		release(lost)
		require.Equal(t, 1, push())
		second := read()
		require.Len(t, second, 1)
		release(lost)
		require.Zero(t, push(), "both are in the stream")
		release(&freed{job: 1, entries: []string{first[0], second[0]}}, kept)
		requireStreamsEmpty(t, q)
		require.Equal(t, 2, push())

		// After a wipe of Redis, the job comes again to the attempt, which then loses its claim.
		third := read()
		require.NoError(t, q.rdb.Del(t.Context(), Small.known()).Err())
		require.Equal(t, 2, push())
		fourth := read()
		release(&freed{job: 1, entries: fourth[:1], successor: third[0]})
		require.Equal(t, 0, push(), "the successor has the first entry")
		release(&freed{job: 1, entries: third[:1]}, &freed{job: 2, entries: fourth[1:], successor: "0-1"})
		require.Equal(t, 2, push(), "no successor is left")
	})
}
