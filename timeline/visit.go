package timeline

import (
	"context"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// Visits keeps users active, and reads their inboxes in the same round trip. It is safe for
// concurrent use.
type Visits struct {
	scripts
	cfg    Config
	active *ActiveUsers
}

// Visit records that the user is reading. It returns the end of the inbox's journal, or the zero
// Position if the inbox is Missing. For at least ActiveFor from now, Deliver pushes to the inbox
// and the inbox is kept. If the user was not active, posts may have been skipped, and Visit drops
// the inbox. So call it before the inbox is read. Visit also drops an inbox that was begun in
// another incarnation of the activity.
//
// Cost: one round trip of two scripts, O(log active users / 16); two more for a user who was not
// active.
func (v *Visits) Visit(ctx context.Context, user int64) (Position, error) {
	at, _, err := v.visit(ctx, user)
	return at, err
}

// VisitPage is Visit followed by Page, in one round trip. If the position is zero, the part is that
// of a Missing inbox.
//
// Cost: as Visit, and O(log size + Limit).
func (v *Visits) VisitPage(ctx context.Context, user int64, r Range) (at Position, p Part, err error) {
	return v.visitPage(ctx, user, r)
}

// VisitSettled is VisitPage, and also settles the inbox in the same step.
//
// Cost: as VisitPage.
func (v *Visits) VisitSettled(ctx context.Context, user int64, r Range, by Settle) (at Position, p Part, err error) {
	return v.visitPage(ctx, user, r, by.args()...)
}

// args returns the additional arguments of the page script.
func (by Settle) args() []any { return []any{formatID(by.Above), by.Keep, formatID(by.At)} }

func (v *Visits) visitPage(ctx context.Context, user int64, r Range, more ...any) (at Position, p Part, err error) {
	args, err := r.args()
	if err != nil {
		return at, p, errs.Wrap(err, "page of %s", Inbox(user))
	}
	args = append(args, more...)
	at, page, err := v.visit(ctx, user, call{pageScript, Inbox(user).keys(), args})
	// The page may have been read before the user was found active. A user who is found active was
	// active before, so the inbox has received every push. There is an exception on a cluster: another
	// reader drops the inbox and makes the user active between the two. The next visit finds that out.
	if err == nil && at != (Position{}) {
		p, err = part(page[0])
	}
	// Only the page script has checked whether the inbox is intact. If its epoch differs, it is
	// another inbox than the one that was found to receive every push.
	if err != nil || p.Epoch != at.Epoch {
		return Position{}, Part{}, errs.Wrap(err, "page of %s", Inbox(user))
	}
	return at, p, nil
}

// Since is the content of an inbox for a reader that knows its journal up to a position.
type Since struct {
	// Changes are the entries of the journal since the position, oldest first. Now is the end of
	// the journal.
	Changes []Change
	Now     Position
	// Part was read after the journal.
	Part Part
}

// VisitSince is Visit followed by Changes and Page, in one round trip. It also settles the inbox in
// the same step as Page. If whole is false, the changes since the position are unknown, as in
// Changes, or the inbox is Missing. Then only Now is set, to the end of the journal, if there is
// one.
//
// Cost: as Visit, and O(changes + log size + Limit).
func (v *Visits) VisitSince(ctx context.Context, user int64, since Position, r Range, by Settle) (found Since, whole bool, err error) {
	k := Inbox(user)
	args, err := r.args()
	if err != nil {
		return found, false, errs.Wrap(err, "what %s has since", k)
	}
	at, done, err := v.visit(ctx, user,
		call{changesScript, k.keys(), []any{formatID(since.Epoch), since.Offset, journalCap}},
		call{pageScript, k.keys(), append(args, by.args()...)})
	if err != nil || at == (Position{}) || at.Epoch != since.Epoch {
		return Since{Now: at}, false, err
	}
	if found.Changes, found.Now, whole, err = changesIn(done[0]); err == nil {
		found.Part, err = part(done[1])
	}
	// If the epoch differs, this is another inbox than the one that was found to receive every
	// push.
	if err != nil || !whole || found.Now.Epoch != at.Epoch || found.Part.Epoch != at.Epoch {
		return Since{Now: found.Now}, false, errs.Wrap(err, "what %s has since", k)
	}
	return found, true, nil
}

// visit implements Visit. It also returns the replies of more scripts, which run after the end of
// the journal is read. If there are more scripts, the last one checks whether the inbox is intact,
// instead of Visit.
func (v *Visits) visit(ctx context.Context, user int64, more ...call) (at Position, answers []*redis.Cmd, err error) {
	k, shard, member := Inbox(user), activeKey(shardOf(user)), formatID(user)
	now := v.cfg.nowMillis()
	deadline := v.cfg.deadline(now)
	// The order matters: a reader that finds an inbox that another reader has begun also finds the
	// user active.
	done, err := v.run(ctx, append([]call{
		{extendScript, k.keys(), []any{v.cfg.life(k), v.cfg.setLife(k), flag(len(more) == 0)}},
		{activateScript, []string{shard}, []any{member, now, deadline}},
	}, more...)...)
	if err != nil {
		return at, nil, errs.Wrap(err, "visit of user %d", user)
	}
	wasActive, incarnation, err := v.active.activity(user, done[1])
	if err != nil {
		return at, nil, errs.Wrap(err, "visit of user %d", user)
	}
	at, rest, err := position(done[0], 3)
	// The inbox received every push if the user was active all the time. This is known only within
	// one incarnation of the shard: before the current one, the activity may have been lost for a
	// while.
	if err != nil || wasActive && (at.Epoch == 0 || rest[0] == incarnation) {
		return at, done[2:], errs.Wrap(err, "visit of user %d", user)
	}
	// Not in one pipeline: if the user became active before the inbox is dropped, an inbox with a
	// hole would count as complete. The epoch protects an inbox that another reader has begun
	// since.
	if at.Epoch != 0 {
		if _, err := v.runOne(ctx, dropScript, k, formatID(at.Epoch)); err != nil {
			return Position{}, nil, errs.Wrap(err, "visit of user %d", user)
		}
	}
	err = v.rdb.ZAdd(ctx, shard, redis.Z{Score: float64(deadline), Member: member}).Err()
	return Position{}, nil, errs.Wrap(err, "visit of user %d", user)
}
