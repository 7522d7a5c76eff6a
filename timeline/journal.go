package timeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// The journal of an inbox records what changed since a position: posts that arrived late, below
// newer ones, and posts that were removed. It does not record posts that arrived in time, because
// their ids show them. So it adds nothing to the cost of a push in time.
//
// The journal is part of the coverage. If the coverage is lost, so are the epoch and every
// position.

// journalCap is how many entries a journal keeps, in about 3 KB at most.
const journalCap = 100

// journalCap returns the cap of the feed's journal. An outbox has no journal, and so 0.
func (k Key) journalCap() int {
	if k.kind == inbox {
		return journalCap
	}
	return 0
}

// Journals gives access to the journals of all inboxes. It is safe for concurrent use.
type Journals struct{ scripts }

// Position is a point in the journal of one inbox. The zero Position is none.
type Position struct {
	Epoch  int64 // of the inbox's coverage
	Offset int64 // the number of earlier entries
}

// Change is an entry of the journal.
type Change struct {
	Post    int64
	Removed bool // otherwise it arrived late
	Deleted bool // it was removed because the user, its author, deleted it
}

// Prefixes of journal entries. The entry of a post that arrived has none.
const (
	wasRemoved = "-"
	wasDeleted = "="
)

// flag encodes a bool for the scripts.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// changesCap bounds the list of changes that invalidated positions, in characters: about thirty
// change numbers.
const changesCap = 30 * 17

// InvalidatePositions invalidates all earlier positions in the journal of the user's inbox. Use it
// for a change too large to record entry by entry. A repeated call with one of the last thirty or
// so change numbers does nothing, also if several callers call it at the same time: a second
// invalidation would make clients that already know the change read again. With the number 0,
// every call takes effect.
//
// Cost: one round trip, O(1).
func (j *Journals) InvalidatePositions(ctx context.Context, user, change int64) error {
	_, err := j.runOne(ctx, invalidatePositionsScript, Inbox(user), change, changesCap)
	return errs.Wrap(err, "invalidate positions in the inbox of %d", user)
}

// Tell records for an hour that the user's clients were told about changes, and that the inbox
// reflects them. If the inbox is lost and this record is not, no change is lost: the next build of
// the inbox reads SQL, and its epoch invalidates earlier positions.
//
// Cost: one round trip, O(1) for each.
func (j *Journals) Tell(ctx context.Context, user int64, changes ...int64) error {
	_, err := j.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, change := range changes {
			p.Set(ctx, Inbox(user).told(change), "", toldLife)
		}
		return nil
	})
	return errs.Wrap(err, "remember what user %d was told", user)
}

// Told reports whether Tell was called with the change, as far as Redis remembers.
//
// Cost: one round trip, O(1).
func (j *Journals) Told(ctx context.Context, user, change int64) (bool, error) {
	n, err := j.rdb.Exists(ctx, Inbox(user).told(change)).Result()
	return n > 0, errs.Wrap(err, "look up what user %d was told", user)
}

// Changes returns the end of the journal of the user's inbox, and its entries since a position,
// oldest first. If whole is false, the changes are unknown: the inbox is Missing, or the position
// is zero, of another epoch, too old, invalidated, or beyond the end. now is zero for a Missing
// inbox.
//
// Cost: one round trip, O(changes).
func (j *Journals) Changes(ctx context.Context, user int64, since Position) (changes []Change, now Position, whole bool, err error) {
	cmd, err := j.runOne(ctx, changesScript, Inbox(user), formatID(since.Epoch), since.Offset, journalCap)
	if err == nil {
		changes, now, whole, err = changesIn(cmd)
	}
	return changes, now, whole, errs.Wrap(err, "changes of the inbox of %d", user)
}

// changesIn decodes the reply of the changes script.
func changesIn(cmd *redis.Cmd) (list []Change, now Position, whole bool, err error) {
	now, rest, err := position(cmd, 4)
	if err != nil || now == (Position{}) || rest[0] != int64(1) {
		return nil, now, false, err
	}
	entries, _ := rest[1].([]any)
	for _, entry := range entries {
		text, _ := entry.(string)
		digits := strings.TrimLeft(text, wasRemoved+wasDeleted)
		id, err := parseID(digits)
		if err != nil {
			return nil, now, false, err
		}
		list = append(list, Change{Post: id, Removed: text != digits, Deleted: strings.HasPrefix(text, wasDeleted)})
	}
	return list, now, true, nil
}

// position decodes the first two elements of a reply and returns the others. The reply has n
// elements, or none if the inbox is Missing.
func position(cmd *redis.Cmd, n int) (at Position, rest []any, err error) {
	reply, err := cmd.Slice()
	if err != nil || len(reply) == 0 {
		return Position{}, nil, err
	}
	if len(reply) != n {
		return Position{}, nil, fmt.Errorf("redis answered %d parts", len(reply))
	}
	if at.Epoch, err = parseID(reply[0]); err != nil {
		return Position{}, nil, err
	}
	var ok bool
	if at.Offset, ok = reply[1].(int64); !ok {
		return Position{}, nil, fmt.Errorf("redis answered %T for a position", reply[1])
	}
	return at, reply[2:], nil
}
