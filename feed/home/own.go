package home

import (
	"context"
	"log/slog"
	"time"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/queue"
	"tideline/timeline"
)

// ownSyncLimit bounds SyncOwnInbox: what it reads is not written later than that.
const ownSyncLimit = 10 * time.Second

// SyncOwnInbox brings the caller's own inbox up to date before a change of a relation
// returns. If that fails, the caller's next read comes from SQL, and one more job does it:
// the change's own may have been done already, before this wrote what it had read.
func (h *Home) SyncOwnInbox(ctx context.Context, viewer, other, change int64) {
	ctx, cancel := context.WithTimeout(ctx, ownSyncLimit)
	defer cancel()
	do := func(ctx context.Context) error { return h.SyncInboxAndNotify(ctx, viewer, other, change, false) }
	err := do(ctx)
	if err == nil {
		return
	}
	h.log.WarnContext(ctx, "own inbox not updated; the next read goes past it, and a job will", "error", err)
	h.distrust(ctx, viewer, timeline.Inbox(viewer), do)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), ownSyncLimit) // the limit, or the caller's, may have passed
	defer cancel()
	err = rows.InTx(ctx, h.db, func(tx *ent.Tx) error {
		return h.cfg.Queue.Enqueue(ctx, tx, queue.Relations, job.RelationChanged, job.Relation{Users: [2]int64{viewer, other}, First: true})
	})
	if err != nil {
		h.log.ErrorContext(ctx, "own inbox not updated, and no job will", "error", err)
	}
}

// ownFeeds changes the feeds of the user who acts, before the job of the change does.
type ownFeeds struct {
	tl     *timeline.Store
	log    *slog.Logger
	writes pendingWrites
}

// distrust drops a feed that lacks what its user did, so that every server reads SQL: a
// Redis whose memory is full takes that. If Redis takes nothing from this process, the
// user's next read here repeats what was done.
func (o *ownFeeds) distrust(ctx context.Context, user int64, k timeline.Key, repeat func(context.Context) error) {
	patient, cancel := patiently(context.WithoutCancel(ctx))
	defer cancel()
	if err := o.tl.Drop(patient, k); err != nil {
		o.log.WarnContext(ctx, "own feed not dropped; other servers show it as it was until a job is done", "feed", k.String(), "error", err)
		o.writes.remember(user, repeat)
	}
}

// AddOwn shows authors their own post at once, before its job does. It waits no longer
// for Redis than a page does; what Redis does not take, the author's next read has from
// SQL. It costs one round trip.
func (o *ownFeeds) AddOwn(ctx context.Context, author, post int64) {
	o.changeOwn(ctx, timeline.OwnChange{Author: author, Post: post}, o.tl.Add)
}

// RemoveOwn takes a deleted post out of its author's own feeds, as AddOwn.
func (o *ownFeeds) RemoveOwn(ctx context.Context, author, post int64) {
	o.changeOwn(ctx, timeline.OwnChange{Author: author, Post: post, Gone: true}, o.tl.RemoveDeleted)
}

// changeOwn makes the change. The next read does not trust a feed for which Redis refuses it.
func (o *ownFeeds) changeOwn(ctx context.Context, c timeline.OwnChange, repeat func(context.Context, timeline.Key, ...int64) error) {
	patient, cancel := patiently(ctx)
	done := o.tl.ChangeOwn(patient, c)
	cancel()
	for k, err := range map[timeline.Key]error{timeline.Inbox(c.Author): done.Inbox, timeline.Outbox(c.Author): done.Outbox} {
		if err != nil {
			o.log.WarnContext(ctx, "own feed not updated; the next read goes past it", "post", c.Post, "error", err)
			o.distrust(ctx, c.Author, k, func(ctx context.Context) error { return repeat(ctx, k, c.Post) })
		}
	}
}
