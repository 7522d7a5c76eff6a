package timeline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// An inbox's journal lets its reader find out what changed since: not the posts
// that arrive at the top in due time, which their ids tell, but those that
// arrive late, below newer ones, and those that are removed. It is part of the
// coverage: where that is lost, so is the epoch, and every position with it.
//
// It costs the push of a post that is in time nothing.

// journalCap is how many notes a journal keeps, in some 3 KB at most.
const journalCap = 100

// journal is the cap of the feed's journal; an outbox has none.
func (k Key) journal() int {
	if k.kind == inbox {
		return journalCap
	}
	return 0
}

// Position is a place in the journal of one inbox. The zero Position is none.
type Position struct {
	Epoch  int64 // of the inbox's coverage
	Offset int64 // how many notes came before
}

// Change is a note of the journal.
type Change struct {
	Post    int64
	Removed bool // else it arrived late
}

// Arrival is a post on its way to inboxes, late.
type Arrival struct {
	Post int64
	// Pulled posts are not pushed: readers find them in their author's outbox.
	Pulled bool
	// Again says that an earlier attempt may have pushed the post and told nobody.
	Again bool
}

// DeliverLate pushes a post that comes late into those inboxes of users that have
// coverage, and notes it in their journals unless it has arrived before. Deliver
// or Push it as well, afterwards.
//
// Cost: one round trip per 1,000 users: a script each, O(log size).
func (s *Store) DeliverLate(ctx context.Context, a Arrival, users []int64) error {
	if err := checkIDs(a.Post); err != nil {
		return fmt.Errorf("arrive: %w", err)
	}
	for chunk := range slices.Chunk(users, batch) {
		calls := onFeeds(deliverLateScript, inboxes(chunk), formatID(a.Post), flag(!a.Pulled), flag(a.Again), journalCap)
		if _, err := s.run(ctx, calls...); err != nil {
			return fmt.Errorf("late arrival of post %d: %w", a.Post, err)
		}
	}
	return nil
}

// flag is a truth as the scripts read it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// InvalidatePositions makes all earlier positions in the journal of the user's inbox
// worthless, because more changed than is noted one by one.
//
// Cost: one round trip, O(1).
func (s *Store) InvalidatePositions(ctx context.Context, user int64) error {
	_, err := s.runOne(ctx, invalidatePositionsScript, Inbox(user))
	return wrap(err, "unsettle the inbox of %d", user)
}

// Changes returns where the journal of the user's inbox stands, and what it
// noted since a position, oldest first. Not whole means that this cannot be
// told: the position is of another epoch, too old, or none.
//
// Cost: one round trip, O(changes).
func (s *Store) Changes(ctx context.Context, user int64, since Position) (changes []Change, now Position, whole bool, err error) {
	cmd, err := s.runOne(ctx, changesScript, Inbox(user), formatID(since.Epoch), since.Offset, journalCap)
	if err != nil {
		return nil, Position{}, false, fmt.Errorf("changes of the inbox of %d: %w", user, err)
	}
	now, rest, err := position(cmd, 4)
	if err != nil || now == (Position{}) || rest[0] != int64(1) {
		return nil, now, false, wrap(err, "changes of the inbox of %d", user)
	}
	notes, _ := rest[1].([]any)
	for _, note := range notes {
		text, _ := note.(string)
		digits, removed := strings.CutPrefix(text, "-")
		id, err := parseID(digits)
		if err != nil {
			return nil, now, false, fmt.Errorf("changes of the inbox of %d: %w", user, err)
		}
		changes = append(changes, Change{Post: id, Removed: removed})
	}
	return changes, now, true, nil
}

// position is the head of the answers that have n parts when the inbox is not
// missing, and what comes behind it.
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
