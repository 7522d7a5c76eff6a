package queue

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// owned makes queues whose jobs name their owners, 1 to 3. A job lasts until the test ends a job of
// that owner.
type owned struct {
	s     *storage.Stores
	began chan int64
	end   map[int64]chan struct{}
}

func newOwned(s *storage.Stores) *owned {
	o := &owned{s: s, began: make(chan int64, 100), end: map[int64]chan struct{}{}}
	for owner := range int64(4) {
		o.end[owner] = make(chan struct{})
	}
	return o
}

func (o *owned) queue(t *testing.T, slots int) *Queue {
	cfg := pushOnly()
	cfg.Pools = map[Pool]int{Small: slots}
	ownerOf := func(_ string, payload json.RawMessage) (owner int64) {
		_ = json.Unmarshal(payload, &owner)
		return owner
	}
	cfg.Owner = ownerOf
	q := newQueue(t, o.s, cfg)
	q.Handle("k", func(_ context.Context, j *Job) error {
		owner := ownerOf(j.Kind, j.Payload)
		o.began <- owner
		<-o.end[owner]
		return nil
	})
	return q
}

// next requires that the next job to begin belongs to this owner.
func (o *owned) next(t *testing.T, owner int64) {
	t.Helper()
	require.Equal(t, owner, receive(t, o.began))
}

// An owner has the whole pool while no other owner has jobs, and half of it otherwise.
func TestOneOwnerLeavesHalfToOthers(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		o := newOwned(s)
		q := o.queue(t, 4)
		start(t, q)
		enqueue(t, q, Small, "k", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		for range 4 {
			o.next(t, 1)
		}
		for _, owner := range []int{2, 3, 0} {
			enqueue(t, q, Small, "k", owner)
		}
		o.end[1] <- struct{}{}
		o.next(t, 2) // before six jobs of owner 1 that came earlier
		o.end[1] <- struct{}{}
		o.next(t, 3)
		o.end[1] <- struct{}{}
		o.next(t, 1) // owner 1 has only one slot now
		o.end[2] <- struct{}{}
		o.next(t, 0)
		o.end[3] <- struct{}{}
		o.next(t, 1) // no other job is left
		close(o.end[1])
		close(o.end[0])
		drain(t, q)
		requireStreamsEmpty(t, q)
	})
}

// Parked jobs go to other processes when their process stops or is paused.
func TestJobsThatWaitForAShareAreHandedBack(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(q *Queue, stop func()){
		"stop":  func(_ *Queue, stop func()) { go stop() },
		"pause": func(q *Queue, _ func()) { q.Pause() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				o := newOwned(s)
				first := o.queue(t, 2)
				stop := start(t, first)
				enqueue(t, first, Small, "k", 1, 1, 1, 1)
				o.next(t, 1)
				o.next(t, 1)
				enqueue(t, first, Small, "k", 2)
				o.end[1] <- struct{}{}
				o.next(t, 2) // two jobs of owner 1 are parked
				leave(first, stop)
				o.end[2] <- struct{}{}
				second := o.queue(t, 2)
				start(t, second)
				o.next(t, 1)
				o.next(t, 1)
				close(o.end[1])
				drain(t, second)
				requireStreamsEmpty(t, second)
			})
		})
	}
}

// While a process sends no heartbeats, others may take over its parked jobs.
func TestJobThatWaitedTooLongIsLeft(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorker(newOwned(s).queue(t, 1), Small, 1)
		e := entry{job: 1, kind: "k", payload: json.RawMessage("1"), id: "1-1"}
		w.slots.take(1)
		w.begin(t.Context(), t.Context(), []entry{e})
		require.Len(t, w.parked, 1)
		w.held.beats.beat(time.Now().Add(-time.Hour))
		w.held.beats.beat(time.Now())
		w.unpark(t.Context(), t.Context(), true)
		require.Empty(t, w.parked)
		require.Empty(t, w.held.jobs)
		require.Zero(t, w.UnderWay())
	})
}
