package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func always(int) bool { return true }

// heldFind is a find that waits until the test answers it.
type heldFind struct {
	calls   atomic.Int64
	asked   chan context.Context
	answers chan func() (int, error)
}

func newHeldFind() *heldFind {
	return &heldFind{asked: make(chan context.Context), answers: make(chan func() (int, error))}
}

func (h *heldFind) find(ctx context.Context) (int, error) {
	h.calls.Add(1)
	h.asked <- ctx
	return (<-h.answers)()
}

// Concurrent callers share one find. A caller whose context ends leaves at once, and the find goes
// on for the others, even if that caller started it.
func TestSharedIsFoundOnceForAll(t *testing.T) {
	t.Parallel()
	var s Shared[int]
	h := newHeldFind()
	get := func(ctx context.Context) (int, error) { return s.Get(ctx, always, h.find) }
	first, leave := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "mine"))
	left := make(chan error)
	go func() {
		_, err := get(first)
		left <- err
	}()
	finding := <-h.asked
	_, ok := s.Latest()
	require.False(t, ok, "Latest does not wait")
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NoError(t, finding.Err())
	require.Equal(t, "mine", finding.Value(ctxKey{}))

	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			value, err := get(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, 7, value)
		})
	}
	h.answers <- func() (int, error) { return 7, nil }
	all.Wait()
	require.EqualValues(t, 1, h.calls.Load())
	value, ok := s.Latest()
	require.True(t, ok)
	require.Equal(t, 7, value)
	value, err := get(first)
	require.NoError(t, err, "a value that is there needs no waiting")
	require.Equal(t, 7, value)
}

// Get returns the shared value only to a caller whose holds accepts it. If several callers reject the
// value, one of them finds a new value.
func TestSharedHolds(t *testing.T) {
	t.Parallel()
	var s Shared[int]
	next := 0
	get := func(least int) int {
		value, err := s.Get(t.Context(), func(v int) bool { return v >= least }, func(context.Context) (int, error) {
			next++
			return next, nil
		})
		require.NoError(t, err)
		return value
	}
	require.Equal(t, 1, get(1))
	require.Equal(t, 1, get(1))
	require.Equal(t, 2, get(2))
	require.Equal(t, 2, get(1))
	require.Equal(t, 3, get(99), "a value that was found for the caller is returned in any case")
	s.Forget()
	_, ok := s.Latest()
	require.False(t, ok)
	require.Equal(t, 4, get(1))
}

// A caller that must see a write does not get a value whose read began before the write.
func TestSharedAfterAWrite(t *testing.T) {
	t.Parallel()
	var s Shared[int]
	var version atomic.Int64
	h := newHeldFind()
	get := func() int {
		value, err := s.Get(t.Context(), func(v int) bool { return int64(v) == version.Load() }, h.find)
		assert.NoError(t, err)
		return value
	}
	before, after := make(chan int), make(chan int)
	go func() { before <- get() }()
	<-h.asked
	version.Store(1)
	go func() { after <- get() }()
	h.answers <- func() (int, error) { return 0, nil }
	require.Equal(t, 0, <-before)
	<-h.asked
	h.answers <- func() (int, error) { return 1, nil }
	require.Equal(t, 1, <-after)
}

// A value that is forgotten while it is found reaches only the callers that wait for it.
func TestSharedIsForgottenWhileFound(t *testing.T) {
	t.Parallel()
	var s Shared[int]
	h := newHeldFind()
	values := make(chan int, 1)
	get := func() {
		value, err := s.Get(t.Context(), always, h.find)
		assert.NoError(t, err)
		values <- value
	}
	go get()
	<-h.asked
	s.Forget()
	h.answers <- func() (int, error) { return 1, nil }
	require.Equal(t, 1, <-values)
	go get()
	<-h.asked
	h.answers <- func() (int, error) { return 2, nil }
	require.Equal(t, 2, <-values)
}

// An error goes only to the caller whose find returned it. Of the others, one finds a value for all.
func TestSharedErrorFailsOneCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Shared[int]
		h := newHeldFind()
		broken := errors.New("broken")
		first := make(chan error, 1)
		go func() {
			_, err := s.Get(t.Context(), always, h.find)
			first <- err
		}()
		<-h.asked
		var others sync.WaitGroup
		for range 5 {
			others.Go(func() {
				value, err := s.Get(t.Context(), always, h.find)
				assert.NoError(t, err)
				assert.Equal(t, 7, value)
			})
		}
		synctest.Wait() // the others wait for the first find
		h.answers <- func() (int, error) { return 0, broken }
		require.ErrorIs(t, <-first, broken)
		<-h.asked
		h.answers <- func() (int, error) { return 7, nil }
		others.Wait()
		require.EqualValues(t, 2, h.calls.Load())
	})
}

// An error and a panic end the wait of all who wait for the find, and later callers find anew.
func TestSharedFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, fail := range map[string]func() (int, error){
		"error": func() (int, error) { return 0, broken },
		"panic": func() (int, error) { panic(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Shared[int]
			h := newHeldFind()
			var failed atomic.Int64
			var joined, all sync.WaitGroup
			for range 5 {
				joined.Add(1)
				all.Go(func() {
					defer func() {
						if err, _ := recover().(error); errors.Is(err, broken) {
							failed.Add(1)
						}
					}()
					// As in Get, but the test learns when all wait.
					r, _ := s.join(t.Context(), h.find)
					joined.Done()
					<-r.done
					if _, err := r.get(); errors.Is(err, broken) {
						failed.Add(1)
					}
				})
			}
			<-h.asked
			joined.Wait()
			h.answers <- fail
			all.Wait()
			require.EqualValues(t, 5, failed.Load())
			require.EqualValues(t, 1, h.calls.Load())
			_, ok := s.Latest()
			require.False(t, ok)
			value, err := s.Get(t.Context(), always, func(context.Context) (int, error) { return 3, nil })
			require.NoError(t, err)
			require.Equal(t, 3, value)
			s.Forget()
			if name == "error" {
				_, err = s.Get(t.Context(), always, func(context.Context) (int, error) { return fail() })
				require.ErrorIs(t, err, broken)
			} else {
				require.PanicsWithValue(t, broken, func() {
					_, _ = s.Get(t.Context(), always, func(context.Context) (int, error) { return fail() })
				})
			}
		})
	}
}

// The value of a key is computed once, and Soon never waits for it.
func TestResults(t *testing.T) {
	t.Parallel()
	var r Results
	type key struct{ n int }
	goOn := make(chan struct{})
	calls := 0
	slow := func() any {
		calls++
		<-goOn
		return calls
	}
	_, wait := r.Soon(key{1}, slow)
	require.NotNil(t, wait)
	_, again := r.Soon(key{1}, slow)
	require.Equal(t, wait, again, "all callers wait for one channel")
	got := make(chan any)
	go func() { got <- r.Once(key{1}, slow) }()
	require.Equal(t, "other", r.Once(key{2}, func() any { return "other" }), "another key does not wait")
	close(goOn)
	require.Equal(t, 1, <-got)
	<-wait
	value, wait := r.Soon(key{1}, slow)
	require.Nil(t, wait)
	require.Equal(t, 1, value)
	require.Nil(t, (*Results)(nil).Once(key{1}, slow))
	require.Equal(t, 1, calls)
}

// If the computation panics, every caller panics, and it is not repeated.
func TestResultsPanic(t *testing.T) {
	t.Parallel()
	var r Results
	calls := 0
	broken := func() any {
		calls++
		panic("broken")
	}
	if _, wait := r.Soon("key", broken); wait != nil {
		select {
		case <-wait:
		case <-time.After(30 * time.Second):
			t.Fatal("a panic does not end the wait")
		}
	}
	for range 2 {
		require.PanicsWithValue(t, "broken", func() { r.Once("key", broken) })
		require.PanicsWithValue(t, "broken", func() { _, _ = r.Soon("key", broken) })
	}
	require.Equal(t, 1, calls)
}

// The price of a result that is there, for each subscriber of a live event.
func BenchmarkResultsSoon(b *testing.B) {
	type key struct {
		def       *int
		variables string
		set       bool
	}
	var r Results
	k := any(key{new(int), "", false})
	r.Once(k, func() any { return b })
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if value, _ := r.Soon(k, func() any { return pb }); value != b {
				b.Fail()
			}
		}
	})
}
