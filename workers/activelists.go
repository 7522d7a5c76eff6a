package workers

import (
	"context"
	"time"

	"tideline/timeline"
)

// keepLists is how long the lists of active users are kept after their last use.
const keepLists = 2 * time.Second

// activeLists caches the lists of active users for the parts of one fan-out that run in this
// process, so that each list is read once. The post is committed before its jobs, so users who
// become active after a list was read find the post in SQL.
type activeLists struct {
	of        postFanOut
	set       activeList[map[int64]struct{}]
	byRecency activeList[[]timeline.Activity]
}

// postFanOut identifies a fan-out. All its parts have the same since.
type postFanOut struct{ post, since int64 }

func newActiveLists(of postFanOut) *activeLists {
	return &activeLists{of: of, set: newActiveList[map[int64]struct{}](), byRecency: newActiveList[[]timeline.Activity]()}
}

// listsOf returns the lists of a fan-out. A later attempt gets new lists: it must reach everybody
// to whom attempts in other processes have pushed, and their lists may be newer than the cached
// ones.
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

// forgetLists drops lists that have not been used for keepLists.
func (s *followerScans) forgetLists(l *activeLists) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == l {
		s.lists = nil
	}
}

// activeList is read by its first user. Callers must not change the value.
type activeList[T any] struct {
	turn  chan struct{} // holds a token while nobody reads the list
	value *T
}

func newActiveList[T any]() activeList[T] {
	l := activeList[T]{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// get returns the list. It calls read if the list has not been read. An error of read goes to that
// caller only; the next caller reads again.
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
