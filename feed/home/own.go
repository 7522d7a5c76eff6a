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

// ownSyncLimit bounds OwnFeeds.SyncInbox, and so the time between its reads and its writes.
const ownSyncLimit = 10 * time.Second

// OwnFeeds changes the feeds of the user who acts, before the job of the change does. It is safe
// for concurrent use.
type OwnFeeds struct {
	db     *ent.Client
	queue  *queue.Queue
	feeds  *timeline.Feeds
	own    *timeline.OwnFeeds
	log    *slog.Logger
	sync   *Sync
	writes pendingWrites
}

// SyncInbox brings the caller's own inbox up to date before a change of a relation returns. If
// that fails, the caller's next read comes from SQL, and one more job repeats the sync. The job
// of the change is not enough: it may have finished before this attempt wrote what it had read.
func (o *OwnFeeds) SyncInbox(ctx context.Context, viewer, other, change int64) {
	ctx, cancel := context.WithTimeout(ctx, ownSyncLimit)
	defer cancel()
	do := func(ctx context.Context) error { return o.sync.InboxAndNotify(ctx, viewer, other, change, false) }
	err := do(ctx)
	if err == nil {
		return
	}
	o.log.WarnContext(ctx, "own inbox not updated; the next read goes past it, and a job will", "error", err)
	o.distrust(ctx, viewer, timeline.Inbox(viewer), do)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), ownSyncLimit) // the limit, or the caller's, may have passed
	defer cancel()
	err = rows.InTx(ctx, o.db, func(tx *ent.Tx) error {
		return o.queue.Enqueue(ctx, tx, queue.Relations, job.RelationChanged, job.Relation{Users: [2]int64{viewer, other}, First: true})
	})
	if err != nil {
		o.log.ErrorContext(ctx, "own inbox not updated, and no job will", "error", err)
	}
}

// distrust drops a feed that lacks a change of its user, so that every server reads SQL. A Redis
// whose memory is full still accepts the drop. If Redis accepts nothing from this process, the
// user's next read here repeats the change.
func (o *OwnFeeds) distrust(ctx context.Context, user int64, k timeline.Key, repeat func(context.Context) error) {
	patient, cancel := patiently(context.WithoutCancel(ctx))
	defer cancel()
	if err := o.feeds.Drop(patient, k); err != nil {
		o.log.WarnContext(ctx, "own feed not dropped; other servers show it as it was until a job is done", "feed", k.String(), "error", err)
		o.writes.remember(user, repeat)
	}
}

// Add adds a post to its author's own feeds at once, before its job does. It waits for Redis
// no longer than a page does. If Redis refuses the change, the author's next read comes from SQL.
//
// Cost: one round trip.
func (o *OwnFeeds) Add(ctx context.Context, author, post int64) {
	o.change(ctx, timeline.OwnChange{Author: author, Post: post}, o.feeds.Add)
}

// Remove removes a deleted post from its author's own feeds, as Add adds one.
func (o *OwnFeeds) Remove(ctx context.Context, author, post int64) {
	o.change(ctx, timeline.OwnChange{Author: author, Post: post, Gone: true}, o.feeds.RemoveDeleted)
}

// change changes both feeds. It distrusts a feed for which Redis refuses the change.
func (o *OwnFeeds) change(ctx context.Context, c timeline.OwnChange, repeat func(context.Context, timeline.Key, ...int64) error) {
	patient, cancel := patiently(ctx)
	done := o.own.Change(patient, c)
	cancel()
	for k, err := range map[timeline.Key]error{timeline.Inbox(c.Author): done.Inbox, timeline.Outbox(c.Author): done.Outbox} {
		if err != nil {
			o.log.WarnContext(ctx, "own feed not updated; the next read goes past it", "post", c.Post, "error", err)
			o.distrust(ctx, c.Author, k, func(ctx context.Context) error { return repeat(ctx, k, c.Post) })
		}
	}
}
