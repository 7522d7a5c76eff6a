package timeline

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"tideline/internal/errs"
)

// Inboxes changes the inboxes of many users at once. On a cluster it goes on if some masters do not
// answer. It is safe for concurrent use.
type Inboxes struct {
	scripts
	cfg     Config
	active  *ActiveUsers
	masters *Masters
}

// Deliver pushes one post into the inboxes of the active ones among the users, and returns them,
// most recently active first. After an error some inboxes may have the post, and it is harmless to
// call Deliver again. On a cluster, users whose masters cannot be reached are left out, and the
// error is an Unreached with them.
//
// Each post trims every 16th inbox that it reaches if the inbox is past its cap and slack. Another
// post trims other inboxes. Until its turn, or until Sweep, an inbox grows. Each round trip also
// reads the expiry of its last inbox, and on a cluster of every 16th inbox. If the expiry is lost,
// all inboxes of the round trip are checked, so that sets that pushes created in a wiped Redis
// expire. If only a single inbox was lost, Sweep gives it an expiry.
//
// Cost: as [ActiveUsers.Check], then a round trip per 250 active users: a plain ZADD each, O(log
// size). There is no Lua, because an inbox without coverage is not read.
func (in *Inboxes) Deliver(ctx context.Context, post int64, users []int64) (pushed []int64, err error) {
	if err := checkIDs(post); err != nil {
		return nil, fmt.Errorf("deliver: %w", err)
	}
	var left unreachedUsers
	targets, err := in.active.Of(ctx, users)
	if err := left.add(err); err != nil {
		return nil, fmt.Errorf("deliver post %d: %w", post, err)
	}
	if err := left.add(in.Push(ctx, post, targets, func() {})); err != nil {
		return targets, err
	}
	return targets, left.all()
}

// Push pushes a post to users who are known to be active, from a look-up after the commit of the
// post, such as [ActiveUsers.ByRecency]. The inbox of a user who is no longer active gets an entry
// that no read returns. Push calls pace before each pipeline. It returns errors as Deliver does.
//
// Cost: a round trip per 250 users: a plain ZADD each, O(log size).
func (in *Inboxes) Push(ctx context.Context, post int64, targets []int64, pace func()) error {
	if err := checkIDs(post); err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	// Convert these to interface values once, not once per inbox.
	var member, score any = formatID(post), "-" + formatID(post)
	// Several pipelines are in flight: while Redis works on one, this process writes the next and
	// reads the answers of the previous one.
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pipelines)
	var left unreachedUsers
	for chunk := range slices.Chunk(targets, pushes) {
		pace()
		g.Go(func() error {
			return left.add(in.masters.forUsers(ctx, chunk, inboxSet, func(ctx context.Context, chunk []int64) error {
				return in.pushTo(ctx, chunk, post, score, member)
			}))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("deliver post %d: %w", post, err)
	}
	return left.all()
}

// pushTo is Push in one pipeline.
func (in *Inboxes) pushTo(ctx context.Context, users []int64, post int64, score, member any) error {
	sizes := map[int64]*redis.IntCmd{}
	var lives []*redis.DurationCmd
	_, err := in.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, user := range users {
			set := Inbox(user).set()
			if err := p.Process(ctx, redis.NewIntCmd(ctx, "zadd", set, score, member)); err != nil {
				return err
			}
			due := shardOf(user) == shardOf(post)
			if due {
				sizes[user] = p.ZCard(ctx, set)
			}
			if i == len(users)-1 || due && in.masters.sharded() {
				lives = append(lives, p.PTTL(ctx, set))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Redis has lost inboxes since the users were looked up. These pushes have created sets without
	// an expiry that may never be read.
	if slices.ContainsFunc(lives, func(life *redis.DurationCmd) bool { return life.Val() < 0 }) {
		_, err = in.trim(ctx, users)
		return err
	}
	maps.DeleteFunc(sizes, func(_ int64, size *redis.IntCmd) bool {
		return size.Val()-1 <= int64(in.cfg.InboxCap+slack(in.cfg.InboxCap)) // minus the end mark
	})
	_, err = in.trim(ctx, slices.Collect(maps.Keys(sizes)))
	return err
}

// Arrival is a post that arrives late.
type Arrival struct {
	Post int64
	// Pulled says that the post is not pushed: readers find it in its author's outbox.
	Pulled bool
	// Again says that an earlier attempt may have pushed the post without an event.
	Again bool
	// Had says that the users had the post before. It then arrives only in inboxes from which it
	// has been removed since, whatever Again says.
	Had bool
}

// DeliverLate pushes a late post into the inboxes of the users that have coverage, and adds it to
// their journals unless it has arrived before. Call Deliver or Push as well, afterwards. It
// returns errors as Deliver does.
//
// Cost: one round trip per 1,000 users: a script each, O(log size).
func (in *Inboxes) DeliverLate(ctx context.Context, a Arrival, users []int64) error {
	if err := checkIDs(a.Post); err != nil {
		return fmt.Errorf("deliver late: %w", err)
	}
	err := in.onInboxes(ctx, users, deliverLateScript, formatID(a.Post), flag(!a.Pulled), a.told(), journalCap)
	return errs.Wrap(err, "late arrival of post %d", a.Post)
}

// told encodes for the script whether the users may know of the post.
func (a Arrival) told() string {
	if a.Had {
		return "2"
	}
	return flag(a.Again)
}

// inboxSet returns the key of the user's inbox.
func inboxSet(user int64) string { return Inbox(user).set() }

// Withdraw takes posts out of the inboxes of the active ones among the users. Like Remove, it makes
// current builders read SQL again. The inboxes of users who are not active are never read again.
//
// Cost: as [ActiveUsers.Check], then a round trip per 1,000 active users: a script each, O(posts log
// size).
func (in *Inboxes) Withdraw(ctx context.Context, posts []int64, users []int64) error {
	return in.withdraw(ctx, journalCap, posts, users)
}

// RemoveUnjournaled is Withdraw for users who may never have been shown the posts, so their
// journals must not name them. If an inbox had one of the posts, it invalidates earlier positions,
// like InvalidatePositions.
//
// Cost: as Withdraw.
func (in *Inboxes) RemoveUnjournaled(ctx context.Context, posts []int64, users []int64) error {
	return in.withdraw(ctx, -1, posts, users)
}

// Erase is Withdraw for users whose journals already record the removal, or who were never shown
// the posts. It does not change the journals.
//
// Cost: as Withdraw.
func (in *Inboxes) Erase(ctx context.Context, posts []int64, users []int64) error {
	return in.withdraw(ctx, 0, posts, users)
}

// Reread raises the generation of the users' inboxes, as a removal does, and changes nothing else.
// Readers that cache what SQL says about the posts then read it again. It returns errors as
// Deliver does.
//
// Cost: one round trip per 1,000 users: a script each, O(1).
func (in *Inboxes) Reread(ctx context.Context, users []int64) error {
	return errs.Wrap(in.onInboxes(ctx, users, removeScript, 0, wasRemoved), "have %d inboxes read again", len(users))
}

func (in *Inboxes) withdraw(ctx context.Context, journal int, posts []int64, users []int64) error {
	if err := checkIDs(posts...); err != nil {
		return fmt.Errorf("withdraw: %w", err)
	}
	var left unreachedUsers
	targets, err := in.active.Of(ctx, users)
	if err := left.add(err); err != nil {
		return fmt.Errorf("withdraw %d posts: %w", len(posts), err)
	}
	if err := left.add(in.onInboxes(ctx, targets, removeScript, appendIDs([]any{journal, wasRemoved}, posts)...)); err != nil {
		return fmt.Errorf("withdraw %d posts: %w", len(posts), err)
	}
	return left.all()
}

// onInboxes runs a script on the inbox of each user. It returns errors as Deliver does.
func (in *Inboxes) onInboxes(ctx context.Context, users []int64, script *redis.Script, args ...any) error {
	var left unreachedUsers
	for chunk := range slices.Chunk(users, batch) {
		err := left.add(in.masters.forUsers(ctx, chunk, inboxSet, func(ctx context.Context, chunk []int64) error {
			_, err := in.run(ctx, onFeeds(script, inboxes(chunk), args...)...)
			return err
		}))
		if err != nil {
			return err
		}
	}
	return left.all()
}

// Forget makes the inboxes of the users Missing, as Drop does. It returns errors as Deliver does.
//
// Cost: one round trip per 1,000 users, O(size) each.
func (in *Inboxes) Forget(ctx context.Context, users []int64) error {
	var left unreachedUsers
	for chunk := range slices.Chunk(users, batch) {
		err := left.add(in.masters.forUsers(ctx, chunk, inboxSet, func(ctx context.Context, chunk []int64) error {
			_, err := in.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, user := range chunk {
					p.Del(ctx, Inbox(user).keys()...)
				}
				return nil
			})
			return err
		}))
		if err != nil {
			return errs.Wrap(err, "forget %d inboxes", len(users))
		}
	}
	return left.all()
}

// trimmed counts the results of a trim of several inboxes.
type trimmed struct{ feeds, ids, lost int }

// trim trims inboxes that are past cap and slack, and gives sets without coverage an expiry. It
// takes one round trip.
func (in *Inboxes) trim(ctx context.Context, users []int64) (t trimmed, err error) {
	limit := in.cfg.InboxCap
	done, err := in.run(ctx, onFeeds(trimScript, inboxes(users), limit, slack(limit), remainsLife.Milliseconds())...)
	if err != nil {
		return t, fmt.Errorf("trim: %w", err)
	}
	for _, cmd := range done {
		n, err := cmd.Int()
		if err != nil {
			return t, fmt.Errorf("trim: %w", err)
		}
		switch {
		case n < 0:
			t.lost++
		case n > 0:
			t.feeds++
			t.ids += n
		}
	}
	return t, nil
}

func inboxes(users []int64) []Key {
	keys := make([]Key, len(users))
	for i, user := range users {
		keys[i] = Inbox(user)
	}
	return keys
}
