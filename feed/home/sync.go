package home

import (
	"context"
	"fmt"
	"slices"

	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// SyncInboxAndNotify is SyncInbox after the relation of the two changed in a way that
// the viewer's timeline depends on: the viewer's open subscriptions are told to read
// again when the inbox changed, or there is none, and they may have read in SQL. When
// it did not, an attempt before may have changed it and told nobody: they look at the
// journal.
//
// Each change has a number, and all this is done once for it: by the caller who made
// the change, or by the job where the caller did not come to the end. Done again, it
// would tell clients to read again that began to read after the change: an inbox that
// is being built does not say what they have read. A later change has a number of its
// own. Again says that an earlier attempt of the job may have begun: it may have
// written after it was told that all was done, so the inbox is looked at all the same.
//
// Others are the numbers of other changes of the same two that were committed before the
// call: what is done for this one is done for them.
//
// Cost: that of SyncInbox, and six round trips at most.
func (h *Home) SyncInboxAndNotify(ctx context.Context, viewer, author, change int64, again bool, others ...int64) error {
	if change != 0 && !again { // 0: it has no number, and is done each time
		if told, err := h.tl.Told(ctx, viewer, change); told || err != nil {
			return err
		}
	}
	// A distributor that read how the two stood before now looks here when done.
	if err := h.tl.Fence(ctx, author, viewer); err != nil {
		return err
	}
	changed, err := h.syncInbox(ctx, viewer, author, &change)
	if err != nil {
		return err
	}
	ev := live.Event{Kind: live.JournalChanged}
	if changed {
		ev = live.Event{Kind: live.Invalidated, Author: author, Reason: "a relation changed"}
	}
	if _, err = h.cfg.Publisher.Publish(ctx, ev, []int64{viewer}); err != nil || change == 0 {
		return rows.Wrap("tell of a changed inbox", err)
	}
	return h.tl.Tell(ctx, viewer, append(others, change)...)
}

// WordsChanged tells the viewer's clients to read again after a change of the words that
// the viewer mutes: an inbox has posts whatever their words, and the reads leave them out.
// It does so once for the number of the change.
//
// Cost: four round trips at most.
func (h *Home) WordsChanged(ctx context.Context, viewer, change int64) error {
	if told, err := h.tl.Told(ctx, viewer, change); told || err != nil {
		return err
	}
	if err := h.tl.InvalidatePositions(ctx, viewer, change); err != nil {
		return err
	}
	ev := live.Event{Kind: live.Invalidated, Reason: "muted words changed"}
	if _, err := h.cfg.Publisher.Publish(ctx, ev, []int64{viewer}); err != nil {
		return fmt.Errorf("tell of changed words: %w", err)
	}
	return h.tl.Tell(ctx, viewer, change)
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
func (h *Home) SyncInbox(ctx context.Context, viewer, author int64) (changed bool, err error) {
	return h.syncInbox(ctx, viewer, author, nil)
}

// syncInbox is SyncInbox. With the number of a change, all earlier positions in the
// journal of the inbox are worthless once it has changed, or may have: a client that is away finds
// out when it resumes. That is one step with the change, for an attempt that dies
// behind its write leaves nothing for the next one to find.
//
// Where reads merge the author, the timeline changes although the inbox does not. With
// the number of a change, the positions are worthless then, too, and it reports true.
func (h *Home) syncInbox(ctx context.Context, viewer, author int64, change *int64) (changed bool, err error) {
	var written []int64
	for range buildAttempts {
		wrote, known, err := h.syncOnce(ctx, viewer, author, change, &written)
		if err != nil {
			return changed, fmt.Errorf("make the inbox of %d agree about %d: %w", viewer, author, err)
		}
		changed = changed || wrote || !known
		if wrote {
			continue
		}
		if changed || change == nil {
			return changed, nil
		}
		merges, err := h.merged.mayMerge(ctx, author)
		if err != nil || !merges {
			return false, rows.Wrap("read authors to merge", err)
		}
		return true, h.tl.InvalidatePositions(ctx, viewer, *change)
	}
	return changed, fmt.Errorf("the relation of %d and %d does not come to rest", viewer, author)
}

// syncOnce reports whether it wrote to the inbox, and whether it could look at
// it. It remembers what it wrote; if that is not the first time, it writes only what
// it wrote before: other posts may come and go all the time.
func (h *Home) syncOnce(ctx context.Context, viewer, author int64, change *int64, written *[]int64) (wrote, known bool, err error) {
	k, limit := timeline.Inbox(viewer), h.tl.InboxCap()
	// Builders at work read SQL again, whatever they have read by now.
	if err := h.tl.Remove(ctx, k); err != nil {
		return false, false, err
	}
	ids, covered, err := h.tl.Page(ctx, k, timeline.Range{Limit: 2 * limit})
	if err != nil {
		return false, false, err
	}
	if covered.State != timeline.Ready {
		if change != nil {
			if err := h.tl.InvalidatePositions(ctx, viewer, *change); err != nil {
				return false, false, err
			}
		}
		// What was written to an inbox that is being built is for its builder to put
		// there, if it belongs.
		if len(*written) == 0 {
			return false, false, nil
		}
		err := h.tl.Remove(ctx, k, *written...)
		*written = nil
		return true, false, err
	}
	have, err := h.posts.WrittenBy(ctx, author, ids)
	if err != nil {
		return false, false, err
	}
	// A post that was put in may be gone since, and with it whose it was.
	for _, id := range *written {
		if slices.Contains(ids, id) && !slices.Contains(have, id) {
			have = append(have, id)
		}
	}
	above := timeline.Range{After: max(covered.Floor-1, 0), Limit: limit}
	posts, err := visibility.Fill(ctx, visibility.Inbox, viewer, above, h.posts.By(visibility.Inbox, author))
	if err != nil {
		return false, false, err
	}
	want, floor := rows.PostIDs(posts), int64(0)
	if len(want) == limit {
		floor = want[limit-1]
	}
	gone, missing := rows.Without(have, want), rows.Without(want, have)
	if before := *written; len(before) > 0 {
		other := func(id int64) bool { return !slices.Contains(before, id) }
		gone, missing = slices.DeleteFunc(gone, other), slices.DeleteFunc(missing, other)
	}
	if len(gone)+len(missing) > 0 || floor > covered.Floor {
		if err := h.tl.Replace(ctx, viewer, gone, missing, floor, change != nil); err != nil {
			return false, false, err
		}
	}
	*written = slices.Concat(*written, gone, missing)
	return len(gone)+len(missing) > 0, true, nil
}
