package workers

import (
	"context"
	"time"

	"tideline/timeline"
)

// keepLists is how long lists of active users are kept that no part asks for.
const keepLists = 2 * time.Second

// activeLists are those of the active users, for the parts of one fan-out that are done in this
// process: each is read once. What is fanned out is committed before its jobs are, so users who
// become active after a list was read have it from SQL, whichever part they are in.
type activeLists struct {
	of        postFanOut
	set       activeList[map[int64]struct{}]
	byRecency activeList[[]timeline.Activity]
}

// postFanOut tells one fan-out from others. Its parts are as old as the whole.
type postFanOut struct{ post, since int64 }

func newActiveLists(of postFanOut) *activeLists {
	return &activeLists{of: of, set: newActiveList[map[int64]struct{}](), byRecency: newActiveList[[]timeline.Activity]()}
}

// listsOf returns the lists of a fan-out. A later attempt reads its own: it has to come by
// whom attempts in other processes have pushed to, by lists that are newer than what is here.
func (s *followerScans) listsOf(of postFanOut, again bool) *activeLists {
	if again {
		return newActiveLists(of)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil || s.lists.of != of {
		s.lists = newActiveLists(of)
	}
	l := s.lists
	if s.forget != nil {
		s.forget.Stop()
	}
	s.forget = time.AfterFunc(keepLists, func() { s.forgetLists(l) })
	return l
}

// forgetLists lets go of lists that nobody has asked for for a while.
func (s *followerScans) forgetLists(l *activeLists) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == l {
		s.lists = nil
	}
}

// activeList is read by the first who needs it. Nobody may change what it returns.
type activeList[T any] struct {
	turn  chan struct{} // holds one while nobody reads
	value *T
}

func newActiveList[T any]() activeList[T] {
	l := activeList[T]{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// get returns the list, which read reads if it is not there. An error is that of one caller.
func (l *activeList[T]) get(ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { l.turn <- struct{}{} }()
	if l.value == nil {
		if value, err = read(ctx); err != nil {
			return value, err
		}
		l.value = &value
	}
	return *l.value, nil
}
