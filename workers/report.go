package workers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/feed/job"
	"tideline/queue"
)

// FanOutReport is the result of one fan-out. Pushed and Pulled also count followers who mute the
// author, so that the author cannot tell from the receipt who does. It is part of the state of a
// job, so its JSON names must not change.
type FanOutReport struct {
	Kind      string        `json:"Kind"` // of the job
	Post      int64         `json:"Post"`
	Followers int           `json:"Followers"` // of the author
	Pushed    int           `json:"Pushed"`    // followers to whose inboxes the post was pushed; some count twice after an interruption
	Pulled    int           `json:"Pulled"`    // active followers whose reads merge the author's outbox
	Live      int           `json:"Live"`      // connections that were notified
	Duration  time.Duration `json:"Duration"`  // of the last attempt
	FirstLag  time.Duration `json:"FirstLag"`  // from the post, or its change, to the end of the first follower page
	MedianLag time.Duration `json:"MedianLag"` // to the end of the page with the middle follower
	LastLag   time.Duration `json:"LastLag"`   // to the end of the last page
	// Parts is the number of parts into which the fan-out was divided; the report then covers the
	// work before the division. Part is the number of the part, from 1, that the report covers.
	// Both are 0 for a fan-out that was not divided.
	Parts int `json:"-"`
	Part  int `json:"-"`
}

// lag records the lag at the end of a page. half says that half of the scan is done.
func (r *FanOutReport) lag(lag time.Duration, half bool) {
	if r.FirstLag == 0 {
		r.FirstLag = lag
	}
	if half && r.MedianLag == 0 {
		r.MedianLag = lag
	}
	r.LastLag = lag
}

// receipt stores how far the post has come, for the author. It does so for a new post and for a
// post that is shown to more followers than before.
func (f *fanOut) receipt(ctx context.Context) error {
	if !f.hasReceipt() || f.part.Of > 0 {
		return nil
	}
	err := receiptOf(f.w.DB.Delivery, f.progress.FanOutReport, f.args.Post, false).OnConflictColumns(delivery.FieldID).UpdateNewValues().Exec(ctx)
	if err != nil {
		return fmt.Errorf("write the receipt: %w", err)
	}
	return nil
}

func (f *fanOut) hasReceipt() bool {
	return f.job.Kind == job.PostCreated || f.args.Widens() && !f.args.Edited
}

func receiptOf(receipts *ent.DeliveryClient, r FanOutReport, post int64, done bool) *ent.DeliveryCreate {
	return receipts.Create().SetID(post).
		SetPushed(r.Pushed).SetPulled(r.Pulled).SetSkipped(max(0, r.Followers-r.Pushed-r.Pulled)).
		SetFirstLag(r.FirstLag.Milliseconds()).SetMedianLag(r.MedianLag.Milliseconds()).
		SetLastLag(r.LastLag.Milliseconds()).SetDone(done)
}

// finish ends a fan-out that is done. It sets finished, divides the job if there are parts, and
// deletes the receipt of a post that is gone.
func (f *fanOut) finish(ctx context.Context, post *ent.Post) error {
	// A watch that is left ends by itself.
	err := f.w.Timelines.Masters.WithinLimit(ctx, func(ctx context.Context) error { return f.w.Timelines.Fences.Unwatch(ctx, f.args.Author, f.job.ID) })
	if err := f.reached(err); err != nil {
		return err
	}
	if err := f.w.Home.FanOutModes.CrossThreshold(ctx, f.author); err != nil {
		f.w.Logger.WarnContext(ctx, "author not moved between push and pull; the next post will", "author", f.author.ID, "error", err)
	}
	r := f.progress.FanOutReport
	r.Kind, r.Post, r.Duration = f.job.Kind, f.args.Post, f.w.Now().Sub(f.started)
	if post == nil && !f.author.Hidden { // an author who is shown again has the receipt again
		if _, err := f.w.DB.Delivery.Delete().Where(delivery.ID(f.args.Post)).Exec(ctx); err != nil {
			return fmt.Errorf("delete the receipt: %w", err)
		}
	}
	r.Parts, r.Part = len(f.parts), f.part.Number
	f.finished = &finished{report: r, receipt: post != nil && f.hasReceipt(), job: f.job, of: f.part.Of}
	if f.parts == nil {
		return nil
	}
	payloads := make([]partOfPost, len(f.parts))
	for i, part := range f.parts {
		payloads[i] = partOfPost{f.args, part}
	}
	return queue.Divide(ctx, f.job, payloads)
}

// finished is the result of a fan-out's job.
type finished struct {
	report  FanOutReport
	receipt bool // whether to write a receipt
	job     *queue.Job
	of      int // number of parts, if this is one of them; 0: it is the whole
}

// storeFinished writes the receipts of finished fan-outs. After the commit it reports them in the
// log and the metrics.
func (w *Workers) storeFinished(ctx context.Context, tx *ent.Tx, results []*finished) error {
	receipts := map[int64]*ent.DeliveryCreate{} // if a post has two fan-outs, the later one
	var parts []*finished
	for _, f := range results {
		switch {
		case !f.receipt:
		case f.of > 0:
			parts = append(parts, f)
		default:
			receipts[f.report.Post] = receiptOf(tx.Delivery, f.report, f.report.Post, f.report.Parts == 0)
		}
	}
	if len(receipts) > 0 {
		// Sorted, so that two processes do not deadlock.
		var list []*ent.DeliveryCreate
		for _, post := range slices.Sorted(maps.Keys(receipts)) {
			list = append(list, receipts[post])
		}
		err := tx.Delivery.CreateBulk(list...).OnConflictColumns(delivery.FieldID).UpdateNewValues().Exec(ctx)
		if err != nil {
			return fmt.Errorf("write receipts: %w", err)
		}
	}
	slices.SortFunc(parts, func(a, b *finished) int { return cmp.Compare(a.report.Post, b.report.Post) })
	for _, part := range parts {
		if err := w.addToReceipt(ctx, tx, part); err != nil {
			return fmt.Errorf("add a part to a receipt: %w", err)
		}
	}
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			for _, f := range results {
				w.report(ctx, f.report)
			}
			return nil
		})
	})
	return nil
}

// addToReceipt adds the counts of a part to the receipt. The last part marks the receipt done.
func (w *Workers) addToReceipt(ctx context.Context, tx *ent.Tx, part *finished) error {
	r, lag := part.report, part.report.LastLag.Milliseconds()
	// The update locks the row, so other parts wait and the last one finds no other.
	n, err := tx.Delivery.Update().Where(delivery.ID(r.Post)).AddPushed(r.Pushed).AddPulled(r.Pulled).Save(ctx)
	if err != nil || n == 0 { // the post is gone
		return err
	}
	left, err := w.Queue.PartsLeft(ctx, tx, part.job)
	if err != nil {
		return err
	}
	stored, err := tx.Delivery.Get(ctx, r.Post)
	if err != nil {
		return err
	}
	update := stored.Update().SetSkipped(max(0, stored.Skipped-r.Pushed-r.Pulled)).SetLastLag(max(stored.LastLag, lag)).SetDone(left == 0)
	if stored.MedianLag == 0 && 2*left <= part.of {
		update.SetMedianLag(lag)
	}
	return update.Exec(ctx)
}

func (w *Workers) report(ctx context.Context, r FanOutReport) {
	w.Observe(r)
	log := w.Logger.InfoContext
	if r.LastLag > w.LagLimit {
		log = w.Logger.WarnContext
	}
	log(ctx, "post distributed", "kind", r.Kind, "post", r.Post, "followers", r.Followers, "pushed", r.Pushed,
		"pulled", r.Pulled, "parts", r.Parts, "part", r.Part, "live", r.Live, "duration", r.Duration, "first_lag", r.FirstLag, "last_lag", r.LastLag)
}
