package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/live"
	"tideline/timeline"
)

// buildAttempts is how often a build reads SQL again because something was
// removed meanwhile.
const buildAttempts = 5

// cachedFeed is a feed that is cachedFeed in Redis, and where its truth is.
type cachedFeed struct {
	key  timeline.Key
	cap  int
	door Surface // what is let in: posts that
	user int64   // this user may be shown at that door
	from source
	// merge, if any, says what of others reads of a span put together with it.
	merge func(ctx context.Context, user int64, s span, n int) (mergePlan, error)
	// begun is the build that somebody who asks for it has opened already.
	begun *timeline.Build
	// part is what the known range of it held a moment ago.
	known timeline.Range
	part  timeline.Part
}

// inbox is the user's home timeline.
func (f *Feed) inbox(user int64) cachedFeed {
	return cachedFeed{key: timeline.Inbox(user), cap: f.cfg.InboxCap, door: HomeTimeline, user: user, from: f.pulled(user), merge: f.planNow}
}

// outbox is all that the author posted, whoever may see it.
func (f *Feed) outbox(author int64) cachedFeed {
	return cachedFeed{key: timeline.Outbox(author), cap: f.cfg.OutboxCap, door: Direct, user: author, from: f.inSQL(post.AuthorID(author))}
}

// buildSoon asks for a feed to be built in the background.
func (f *Feed) buildSoon(k cachedFeed) {
	select {
	case f.builds <- k:
	default: // the next read asks again
	}
}

// BuildInbox fills the inbox of an active user from SQL, up to its cap, if it is
// missing and not being built. What is posted meanwhile is not missed.
//
// Cost: as a first page without an inbox, of cap posts.
func (f *Feed) BuildInbox(ctx context.Context, user int64) error {
	return f.build(ctx, f.inbox(user))
}

func (f *Feed) build(ctx context.Context, k cachedFeed) error {
	// From Begin on the feed takes what is delivered; only then SQL is read.
	var b timeline.Build
	if k.begun != nil {
		b = *k.begun
	} else {
		var started bool
		var err error
		if b, started, err = f.tl.Begin(ctx, k.key); err != nil || !started {
			return err
		}
	}
	// Nor before its user is active: Redis may have forgotten that, and who makes the
	// user active again has dropped the inbox before it was begun here.
	if k.key == timeline.Inbox(k.user) {
		active, err := f.tl.Active(ctx, []int64{k.user})
		if err != nil {
			return wrap("build an inbox", err)
		}
		if !active[0] {
			return wrap("build an inbox", f.tl.Drop(ctx, k.key))
		}
	}
	for range buildAttempts {
		posts, err := f.fill(ctx, k.door, k.user, k.cap, span{}, k.from)
		if err != nil {
			return err
		}
		floor := int64(0)
		if len(posts) == k.cap {
			floor = posts[k.cap-1].ID
		}
		ids := idsOf(posts)
		// What was posted meanwhile, and is yet to be delivered, may have been shown
		// from SQL: who reads the feed next must not miss it.
		if len(ids) > 0 {
			newer, err := f.fill(ctx, k.door, k.user, k.cap, span{low: ids[0]}, k.from)
			if err != nil {
				return err
			}
			ids = slices.Concat(idsOf(newer), ids)
		}
		done, err := f.tl.Finish(ctx, &b, ids, floor)
		if errors.Is(err, timeline.ErrBuildLost) {
			return nil // the next read begins again
		}
		if done || err != nil {
			return err
		}
	}
	return f.tl.Drop(ctx, k.key)
}

func idsOf(posts []*ent.Post) []int64 {
	ids := make([]int64, len(posts))
	for i, p := range posts {
		ids[i] = p.ID
	}
	return ids
}

// SyncInboxAndNotify is Agree after the relation of the two changed in a way that the viewer's
// timeline depends on: the viewer's open subscriptions are told to read again when
// the inbox changed, or there is none, and they may have read in SQL. When it did
// not, an attempt before may have changed it and told nobody: they look what is noted.
//
// Cost: that of Agree, and four round trips at most.
func (f *Feed) SyncInboxAndNotify(ctx context.Context, viewer, author int64) error {
	// A distributor that read how the two stood before now looks here when done.
	if err := f.tl.Fence(ctx, author, viewer); err != nil {
		return err
	}
	changed, err := f.SyncInbox(ctx, viewer, author)
	if err != nil {
		return err
	}
	ev := live.Event{Kind: live.JournalChanged}
	if changed {
		if err := f.tl.InvalidatePositions(ctx, viewer); err != nil { // who is away finds out when resuming
			return err
		}
		ev = live.Event{Kind: live.Invalidated, Author: author, Reason: "a relation changed"}
	}
	_, err = f.cfg.Publisher.Publish(ctx, ev, []int64{viewer})
	return wrap("tell of a changed inbox", err)
}

// SyncInbox makes the viewer's inbox agree with SQL about the posts of one author:
// those that belong there come in, the others go. It is level-triggered: what
// it does depends on the relation as it is, not on what happened to it, so it
// may run late, twice, and beside its opposite. It reports whether the inbox
// changed, as far as it can tell.
//
// What it reads may be old when it writes: a relation may have changed and
// changed back, a post may have been hidden or shown, and the jobs of all that be
// done. So it looks again after what it wrote, until that is right. What changes
// after that look has its own job still to run.
//
// Cost: the inbox, and four queries of as many posts as it holds, at most; twice
// when the inbox changes.
func (f *Feed) SyncInbox(ctx context.Context, viewer, author int64) (changed bool, err error) {
	var written []int64
	for range buildAttempts {
		wrote, known, err := f.syncOnce(ctx, viewer, author, &written)
		if err != nil {
			return changed, fmt.Errorf("make the inbox of %d agree about %d: %w", viewer, author, err)
		}
		changed = changed || wrote || !known
		if !wrote {
			return changed, nil
		}
	}
	return changed, fmt.Errorf("the relation of %d and %d does not come to rest", viewer, author)
}

func (f *Feed) relation(ctx context.Context, viewer, other int64) (Relation, error) {
	found, err := f.relations(ctx, viewer, []int64{other})
	return found[other], err
}

// syncOnce reports whether it wrote to the inbox, and whether it could look at
// it. It notes what it wrote; if that is not the first time, it writes only what
// it wrote before: other posts may come and go all the time.
func (f *Feed) syncOnce(ctx context.Context, viewer, author int64, written *[]int64) (wrote, known bool, err error) {
	k := timeline.Inbox(viewer)
	r, err := f.relation(ctx, viewer, author)
	if err != nil {
		return false, false, err
	}
	// If not even a public post belongs into the inbox, none does.
	belongs := mayShow(HomeTimeline, viewer, r, &ent.Post{AuthorID: author, Visibility: schema.Public})
	// Builders at work read SQL again, whatever they have read by now.
	if err := f.tl.Remove(ctx, k); err != nil {
		return false, false, err
	}
	ids, covered, err := f.tl.Page(ctx, k, timeline.Range{Limit: 2 * f.cfg.InboxCap})
	if err != nil {
		return false, false, err
	}
	if covered.State != timeline.Ready {
		// What was written to an inbox that is being built is for its builder to put
		// there, if it belongs.
		if len(*written) == 0 {
			return false, false, nil
		}
		err := f.tl.Remove(ctx, k, *written...)
		*written = nil
		return true, false, err
	}
	have, err := f.db.Post.Query().Where(f.among(post.FieldID, ids), post.AuthorID(author)).IDs(ctx)
	if err != nil {
		return false, false, fmt.Errorf("read posts: %w", err)
	}
	// A post that was put in may be gone since, and with it whose it was.
	for _, id := range *written {
		if slices.Contains(ids, id) && !slices.Contains(have, id) {
			have = append(have, id)
		}
	}
	var want []int64
	floor := int64(0)
	if belongs {
		above := span{low: max(covered.Floor-1, 0)}
		posts, err := f.fill(ctx, HomeTimeline, viewer, f.cfg.InboxCap, above, f.writtenBy(HomeTimeline, author))
		if err != nil {
			return false, false, err
		}
		if want = idsOf(posts); len(want) == f.cfg.InboxCap {
			floor = want[len(want)-1]
		}
	}
	gone, missing := without(have, want), without(want, have)
	if before := *written; len(before) > 0 {
		other := func(id int64) bool { return !slices.Contains(before, id) }
		gone, missing = slices.DeleteFunc(gone, other), slices.DeleteFunc(missing, other)
	}
	// The floor first: what is cut off below it would be a hole before.
	if len(missing) > 0 || floor > covered.Floor {
		if err := f.tl.Merge(ctx, k, missing, floor); err != nil {
			return false, false, err
		}
	}
	if len(gone) > 0 {
		if err := f.tl.Remove(ctx, k, gone...); err != nil {
			return false, false, err
		}
	}
	*written = slices.Concat(*written, gone, missing)
	return len(gone)+len(missing) > 0, true, nil
}

// without is the ids that are not among others.
func without(ids, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(others, id) })
}

// syncOwnInbox brings the caller's own feed up to date before a change of a
// relation returns. The job does it again, so a failure costs freshness only.
func (f *Feed) syncOwnInbox(ctx context.Context, viewer, other int64) {
	if err := f.SyncInboxAndNotify(ctx, viewer, other); err != nil {
		f.log.WarnContext(ctx, "own inbox not updated; the job will", "error", err)
	}
}
