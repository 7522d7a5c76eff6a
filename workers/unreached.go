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

// outstanding records the work that is left because a part of a cluster could not be reached. It is
// part of the states of jobs, so its JSON names must not change.
type outstanding struct {
	// Only has the slots whose users this pass writes to; nil means all users. TellAll says that it
	// notifies all users nevertheless.
	Only    *slots `json:"Only,omitempty"`
	TellAll bool   `json:"TellAll,omitempty"`
	// Left has the slots whose users this pass could not reach; nil if it reached all of them.
	// Untold says that it could not notify everybody.
	Left   *slots `json:"Left,omitempty"`
	Untold bool   `json:"Untold,omitempty"`
}

// next returns the work of the following pass.
func (o outstanding) next() outstanding { return outstanding{Only: o.Left, TellAll: o.Untold} }

// slots is a set of cluster slots.
type slots [timeline.Slots / 8]byte

// with adds the slots of the users' inboxes to the set and returns it. It allocates the set if s is
// nil.
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

// of returns the users whose inboxes are in the slots, or all users if s is nil.
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

// UnmarshalText decodes the output of MarshalText.
func (s *slots) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err == nil && len(raw) != len(s) {
		err = fmt.Errorf("%d bytes of slots", len(raw))
	}
	copy(s[:], raw)
	return err
}

// reached returns nil if err is nil or an Unreached. It records the users of an Unreached for the
// next attempt, and this attempt continues with the others. It is safe for concurrent use.
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

// comeBack ends an attempt that did not reach all users. The next attempt handles those that are
// left.
func (f *fanOut) comeBack(ctx context.Context) error {
	f.progress.scanPosition, f.progress.outstanding = f.part.Start, f.progress.next()
	if f.parts != nil { // no parts are enqueued: the next attempt scans all followers
		f.progress.outstanding = outstanding{}
	}
	if err := f.checkpoint(ctx); err != nil {
		return err
	}
	return queue.Unavailable(cmp.Or(f.unreached, errNotAll))
}

// errNotAll is the reason for another attempt if only an earlier attempt knows the real one.
var errNotAll = errors.New("an earlier attempt did not reach all users")
