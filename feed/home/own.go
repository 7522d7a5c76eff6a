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

// ownSyncLimit bounds SyncOwnInbox, and so the time between its reads and its writes.
const ownSyncLimit = 10 * time.Second

// SyncOwnInbox brings the caller's own inbox up to date before a change of a relation returns. If
// that fails, the caller's next read comes from SQL, and one more job repeats the sync. The job
// of the change is not enough: it may have finished before this attempt wrote what it had read.
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

// distrust drops a feed that lacks a change of its user, so that every server reads SQL. A Redis
// whose memory is full still accepts the drop. If Redis accepts nothing from this process, the
// user's next read here repeats the change.
func (o *ownFeeds) distrust(ctx context.Context, user int64, k timeline.Key, repeat func(context.Context) error) {
	patient, cancel := patiently(context.WithoutCancel(ctx))
	defer cancel()
	if err := o.tl.Drop(patient, k); err != nil {
		o.log.WarnContext(ctx, "own feed not dropped; other servers show it as it was until a job is done", "feed", k.String(), "error", err)
		o.writes.remember(user, repeat)
	}
}

// AddOwn adds a post to its author's own feeds at once, before its job does. It waits for Redis
// no longer than a page does. If Redis refuses the change, the author's next read comes from SQL.
//
// Cost: one round trip.
func (o *ownFeeds) AddOwn(ctx context.Context, author, post int64) {
	o.changeOwn(ctx, timeline.OwnChange{Author: author, Post: post}, o.tl.Add)
}

// RemoveOwn removes a deleted post from its author's own feeds, as AddOwn adds one.
func (o *ownFeeds) RemoveOwn(ctx context.Context, author, post int64) {
	o.changeOwn(ctx, timeline.OwnChange{Author: author, Post: post, Gone: true}, o.tl.RemoveDeleted)
}

// changeOwn changes both feeds. It distrusts a feed for which Redis refuses the change.
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
