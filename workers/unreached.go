package workers

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"tideline/queue"
	"tideline/timeline"
)

// outstanding says what is left to be done where a part of a cluster could not be
// reached. It is part of the states of jobs: its names in JSON must not change.
type outstanding struct {
	// Only has the slots whose users this pass is for; nil for all users. TellAll says
	// that it tells all users nevertheless.
	Only    *slots `json:"Only,omitempty"`
	TellAll bool   `json:"TellAll,omitempty"`
	// Left has the slots whose users this pass could not reach; nil if it reached all.
	// Untold says that it could not tell everybody.
	Left   *slots `json:"Left,omitempty"`
	Untold bool   `json:"Untold,omitempty"`
}

// next returns what the pass after this one has to do.
func (o outstanding) next() outstanding { return outstanding{Only: o.Left, TellAll: o.Untold} }

// slots is a set of slots of a cluster.
type slots [timeline.Slots / 8]byte

// with returns the set with the slots of the users' inboxes, which is s unless s is nil.
func (s *slots) with(users []int64) *slots {
	if s == nil {
		s = new(slots)
	}
	for _, user := range users {
		slot := timeline.InboxSlot(user)
		s[slot/8] |= 1 << (slot % 8)
	}
	return s
}

// of returns those of the users whose inboxes are in the slots, all if s is nil.
func (s *slots) of(users []int64) []int64 {
	if s == nil {
		return users
	}
	return slices.DeleteFunc(slices.Clone(users), func(user int64) bool {
		slot := timeline.InboxSlot(user)
		return s[slot/8]&(1<<(slot%8)) == 0
	})
}

// MarshalText encodes the set for the state of a job.
func (s *slots) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, s[:]), nil
}

// UnmarshalText decodes what MarshalText has encoded.
func (s *slots) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err == nil && len(raw) != len(s) {
		err = fmt.Errorf("%d bytes of slots", len(raw))
	}
	copy(s[:], raw)
	return err
}

// reached returns nil if err is nil, or says that some users were not reached: these
// are for the next attempt, and this one goes on with the others. It is safe for
// concurrent use.
func (f *fanOut) reached(err error) error {
	var some *timeline.Unreached
	if !errors.As(err, &some) {
		return err
	}
	f.missing.Lock()
	defer f.missing.Unlock()
	f.progress.Left, f.unreached = f.progress.Left.with(some.Users), err
	return nil
}

// comeBack ends an attempt that is done but for the users whom it could not reach: the
// next one goes through these.
func (f *fanOut) comeBack(ctx context.Context) error {
	f.progress.scanPosition, f.progress.outstanding = f.part.Start, f.progress.next()
	if f.parts != nil { // there will be none: the next attempt goes through all followers
		f.progress.outstanding = outstanding{}
	}
	if err := f.checkpoint(ctx); err != nil {
		return err
	}
	return queue.Unavailable(cmp.Or(f.unreached, errNotAll))
}

// errNotAll is why a job is tried again if only an earlier attempt knows more.
var errNotAll = errors.New("an earlier attempt did not reach all users")
