package roster

import (
	"context"
	"time"

	"tideline/timeline"
)

// keepLists is how long lists of active users are kept that no part asks for.
const keepLists = 2 * time.Second

// lists are those of the active users, for the parts of one fan-out that are done in this
// process: each is read once. What is fanned out is committed before its jobs are, so users who
// become active after a list was read have it from SQL, whichever part they are in.
type lists struct {
	of        fanOut
	set       list[map[int64]struct{}]
	byRecency list[[]timeline.Activity]
}

// fanOut tells one fan-out from others. Its parts are as old as the whole.
type fanOut struct{ post, since int64 }

func newLists(of fanOut) *lists {
	return &lists{of: of, set: newList[map[int64]struct{}](), byRecency: newList[[]timeline.Activity]()}
}

// listsOf returns the lists of a fan-out. A later attempt reads its own: it has to come by
// whom attempts in other processes have pushed to, by lists that are newer than what is here.
func (s *Rosters) listsOf(of fanOut, again bool) *lists {
	if again {
		return newLists(of)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil || s.lists.of != of {
		s.lists = newLists(of)
	}
	l := s.lists
	if s.forget != nil {
		s.forget.Stop()
	}
	s.forget = time.AfterFunc(keepLists, func() { s.forgetLists(l) })
	return l
}

// forgetLists lets go of lists that nobody has asked for for a while.
func (s *Rosters) forgetLists(l *lists) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == l {
		s.lists = nil
	}
}

// list is read by the first who needs it. Nobody may change what it returns.
type list[T any] struct {
	turn  chan struct{} // holds one while nobody reads
	value *T
}

func newList[T any]() list[T] {
	l := list[T]{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// get returns the list, which read reads if it is not there. An error is that of one caller.
func (l *list[T]) get(ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
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
