package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// OwnFeeds changes all that Redis has of a user as an author: the user's own inbox and outbox
// together, the fences and the latest post. It is safe for concurrent use.
type OwnFeeds struct {
	scripts
	cfg     Config
	fences  *Fences
	inboxes *Inboxes
}

// OwnChange is a change of the author's own inbox and outbox. They gain the post, or lose it if
// Gone is set. Watch is the job for which to watch the author's fences, or 0.
type OwnChange struct {
	Author, Post int64
	Gone         bool
	Watch        int64
}

// OwnChanged has the error of each part of a change, nil if the part succeeded. On a cluster the
// parts may be on different masters.
type OwnChanged struct{ Inbox, Outbox, Watch error }

// Change does Add or RemoveDeleted on both feeds, and Watch.
//
// Cost: one round trip, with the work of all three.
func (o *OwnFeeds) Change(ctx context.Context, c OwnChange) OwnChanged {
	inbox, outbox := Inbox(c.Author), Outbox(c.Author)
	if err := checkIDs(c.Post); err != nil {
		err = fmt.Errorf("own feeds of author %d: %w", c.Author, err)
		return OwnChanged{Inbox: err, Outbox: err}
	}
	change := func(k Key) []call {
		if c.Gone {
			return []call{removal(k, wasDeleted, c.Post)}
		}
		return o.cfg.addition(k, c.Post)
	}
	parts := [][]call{change(inbox), change(outbox)}
	if c.Watch != 0 {
		parts = append(parts, []call{o.fences.marking(c.Author, watch(c.Watch), true)})
	}
	failed := o.runParts(ctx, parts...)
	done := OwnChanged{Inbox: errs.Wrap(failed[0], "change %s", inbox), Outbox: errs.Wrap(failed[1], "change %s", outbox)}
	if c.Watch != 0 {
		done.Watch = errs.Wrap(failed[2], "watch the fences of author %d", c.Author)
	}
	return done
}

// runParts executes the calls as run does, and returns an error for each part.
func (o *OwnFeeds) runParts(ctx context.Context, parts ...[]call) []error {
	pipe, done := o.rdb.Pipeline(), make([][]*redis.Cmd, len(parts))
	for i, calls := range parts {
		for _, c := range calls {
			done[i] = append(done[i], c.script.EvalSha(ctx, pipe, c.keys, c.args...))
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	errs := make([]error, len(parts))
	for i, cmds := range done {
		unknown := false
		for _, cmd := range cmds {
			errs[i] = errors.Join(errs[i], cmd.Err())
			unknown = unknown || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT")
		}
		if unknown { // run the part again: each of its calls may run twice
			_, errs[i] = o.run(ctx, parts[i]...)
		}
	}
	return errs
}

// Forget makes both feeds of the authors Missing, because the authors gained posts with old
// times. latest has the newest of these posts for each author. Forget first raises the author's
// latest post id to it.
//
// Cost: three round trips per 1,000 authors, O(size) each.
func (o *OwnFeeds) Forget(ctx context.Context, authors, latest []int64) error {
	for from := 0; from < len(authors); from += batch {
		to := min(from+batch, len(authors))
		var raise []call
		for i := from; i < to; i++ {
			raise = append(raise, raiseLatest(authors[i], latest[i]))
		}
		if _, err := o.run(ctx, raise...); err != nil {
			return errs.Wrap(err, "raise the latest posts of %d authors", to-from)
		}
		if err := o.ForgetOutboxes(ctx, authors[from:to]); err != nil {
			return err
		}
	}
	return o.inboxes.Forget(ctx, authors)
}

// ForgetOutboxes makes the outboxes of the authors Missing, as Drop does.
//
// Cost: one round trip per 1,000 authors, O(size) each.
func (o *OwnFeeds) ForgetOutboxes(ctx context.Context, authors []int64) error {
	for chunk := range slices.Chunk(authors, batch) {
		_, err := o.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, author := range chunk {
				p.Del(ctx, Outbox(author).keys()...)
			}
			return nil
		})
		if err != nil {
			return errs.Wrap(err, "forget %d outboxes", len(chunk))
		}
	}
	return nil
}

// ForgetUser deletes all data of a deleted user: feeds, fences, activity and the latest post. It
// leaves the record of changes that the user was told about, and the fences of others, which expire
// within two hours. The user's posts may be in other inboxes, which [Inboxes.Forget] makes Missing.
//
// Cost: one round trip, O(size).
func (o *OwnFeeds) ForgetUser(ctx context.Context, user int64) error {
	inbox, outbox, shard := Inbox(user), Outbox(user), shardOf(user)
	_, err := o.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, activeKey(shard), user)
		p.HDel(ctx, latestKey(shard), formatID(user))
		p.Del(ctx, inbox.keys()...)
		p.Del(ctx, append(outbox.keys(), outbox.fences())...)
		return nil
	})
	return errs.Wrap(err, "forget user %d", user)
}
