package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

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

// ChangeOwn does Add or RemoveDeleted on both feeds, and Watch.
//
// Cost: one round trip, with the work of all three.
func (s *Store) ChangeOwn(ctx context.Context, c OwnChange) OwnChanged {
	inbox, outbox := Inbox(c.Author), Outbox(c.Author)
	if err := checkIDs(c.Post); err != nil {
		err = fmt.Errorf("own feeds of author %d: %w", c.Author, err)
		return OwnChanged{Inbox: err, Outbox: err}
	}
	change := func(k Key) []call {
		if c.Gone {
			return []call{removal(k, wasDeleted, c.Post)}
		}
		return s.cfg.addition(k, c.Post)
	}
	parts := [][]call{change(inbox), change(outbox)}
	if c.Watch != 0 {
		parts = append(parts, []call{s.marking(c.Author, watch(c.Watch), true)})
	}
	errs := s.runParts(ctx, parts...)
	done := OwnChanged{Inbox: wrap(errs[0], "change %s", inbox), Outbox: wrap(errs[1], "change %s", outbox)}
	if c.Watch != 0 {
		done.Watch = wrap(errs[2], "watch the fences of author %d", c.Author)
	}
	return done
}

// runParts executes the calls as run does, and returns an error for each part.
func (s *Store) runParts(ctx context.Context, parts ...[]call) []error {
	pipe, done := s.rdb.Pipeline(), make([][]*redis.Cmd, len(parts))
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
			_, errs[i] = s.run(ctx, parts[i]...)
		}
	}
	return errs
}

// ForgetOwn makes both feeds of the authors Missing, because the authors gained posts with old
// times. latest has the newest of these posts for each author. ForgetOwn first raises the author's
// latest post id to it.
//
// Cost: three round trips per 1,000 authors, O(size) each.
func (s *Store) ForgetOwn(ctx context.Context, authors, latest []int64) error {
	for from := 0; from < len(authors); from += batch {
		to := min(from+batch, len(authors))
		var raise []call
		for i := from; i < to; i++ {
			raise = append(raise, raiseLatest(authors[i], latest[i]))
		}
		if _, err := s.run(ctx, raise...); err != nil {
			return wrap(err, "raise the latest posts of %d authors", to-from)
		}
		if err := s.ForgetOutboxes(ctx, authors[from:to]); err != nil {
			return err
		}
	}
	return s.Forget(ctx, authors)
}

// ForgetOutboxes makes the outboxes of the authors Missing, as Drop does.
//
// Cost: one round trip per 1,000 authors, O(size) each.
func (s *Store) ForgetOutboxes(ctx context.Context, authors []int64) error {
	for chunk := range slices.Chunk(authors, batch) {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, author := range chunk {
				p.Del(ctx, Outbox(author).keys()...)
			}
			return nil
		})
		if err != nil {
			return wrap(err, "forget %d outboxes", len(chunk))
		}
	}
	return nil
}
