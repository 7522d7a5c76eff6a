package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/delivery"
	entjob "tideline/ent/job"
	"tideline/feed/job"
	"tideline/queue"
)

// FanOutReport says what became of one fan-out. Pushed and Pulled count followers who
// mute the author as if they did not: the author, who sees these figures in the
// receipt, cannot tell who does. It is part of the state of a job: its names in JSON
// must not change.
type FanOutReport struct {
	Kind      string        `json:"Kind"` // of the job
	Post      int64         `json:"Post"`
	Followers int           `json:"Followers"` // of the author
	Pushed    int           `json:"Pushed"`    // followers whose inbox took the post; after an interruption some count twice
	Pulled    int           `json:"Pulled"`    // active followers whose reads merge the author's outbox
	Live      int           `json:"Live"`      // connections that were told
	Duration  time.Duration `json:"Duration"`  // of the last attempt
	FirstLag  time.Duration `json:"FirstLag"`  // from the post, or its change, to the first page of followers
	MedianLag time.Duration `json:"MedianLag"` // to the page with the middle follower
	LastLag   time.Duration `json:"LastLag"`   // to the last follower
	// Parts is into how many parts the fan-out was divided: the report is of what was done
	// before. Part is which of them the report is of, from 1, with its own followers. 0: none.
	Parts int `json:"-"`
	Part  int `json:"-"`
}

// lag adds that a page was done this long after the post.
func (r *FanOutReport) lag(lag time.Duration, half bool) {
	if r.FirstLag == 0 {
		r.FirstLag = lag
	}
	if half && r.MedianLag == 0 {
		r.MedianLag = lag
	}
	r.LastLag = lag
}

// receipt tells the author how far the post has come. It does so for a post that
// is new, or is shown to more followers than before.
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

// finish ends a fan-out that is done. Its report is the result of the job; the receipt
// of a post that is gone is deleted.
func (f *fanOut) finish(ctx context.Context, post *ent.Post) error {
	// A watch that stays ends by itself.
	err := f.w.Timelines.Masters().Try(ctx, func(ctx context.Context) error { return f.w.Timelines.Unwatch(ctx, f.args.Author, f.job.ID) })
	if err := f.reached(err); err != nil {
		return err
	}
	if err := f.w.Home.CrossThreshold(ctx, f.author); err != nil {
		f.w.Logger.WarnContext(ctx, "author not moved between push and pull; the next post will", "author", f.author.ID, "error", err)
	}
	r := f.progress.FanOutReport
	r.Kind, r.Post, r.Duration = f.job.Kind, f.args.Post, f.w.Now().Sub(f.started)
	if post == nil && !f.author.Hidden { // who is shown again has the receipt again
		if _, err := f.w.DB.Delivery.Delete().Where(delivery.ID(f.args.Post)).Exec(ctx); err != nil {
			return fmt.Errorf("delete the receipt: %w", err)
		}
	}
	r.Parts, r.Part = len(f.parts), f.part.Number
	parts, err := f.payloads(ctx)
	f.job.Result = finished{r, post != nil && f.hasReceipt(), f.job, parts, f.part.Of}
	return err
}

// finished is the result of a fan-out's job.
type finished struct {
	report  FanOutReport
	receipt bool // there is to be one
	job     *queue.Job
	parts   []json.RawMessage // payloads of the jobs that do the rest
	of      int               // so many parts it is one; 0: it is the whole
}

// storeFinished tells the authors of posts that are fanned out by their receipts and,
// when these are committed, operators by log and metrics.
func (w *Workers) storeFinished(ctx context.Context, tx *ent.Tx, results []any) error {
	receipts := map[int64]*ent.DeliveryCreate{} // of two fan-outs of a post, the later one
	var parts []finished
	for _, result := range results {
		f := result.(finished)
		if len(f.parts) > 0 {
			if err := w.Queue.Divide(ctx, tx, f.job, f.parts); err != nil {
				return err
			}
		}
		switch {
		case !f.receipt:
		case f.of > 0:
			parts = append(parts, f)
		default:
			receipts[f.report.Post] = receiptOf(tx.Delivery, f.report, f.report.Post, len(f.parts) == 0)
		}
	}
	if len(receipts) > 0 {
		// In order, so that two processes do not deadlock.
		var list []*ent.DeliveryCreate
		for _, post := range slices.Sorted(maps.Keys(receipts)) {
			list = append(list, receipts[post])
		}
		err := tx.Delivery.CreateBulk(list...).OnConflictColumns(delivery.FieldID).UpdateNewValues().Exec(ctx)
		if err != nil {
			return fmt.Errorf("write receipts: %w", err)
		}
	}
	slices.SortFunc(parts, func(a, b finished) int { return cmp.Compare(a.report.Post, b.report.Post) })
	for _, part := range parts {
		if err := addToReceipt(ctx, tx, part); err != nil {
			return fmt.Errorf("add a part to a receipt: %w", err)
		}
	}
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			for _, result := range results {
				w.report(ctx, result.(finished).report)
			}
			return nil
		})
	})
	return nil
}

// addToReceipt adds to the receipt what a part did. The last one makes it done.
func addToReceipt(ctx context.Context, tx *ent.Tx, part finished) error {
	r, lag := part.report, part.report.LastLag.Milliseconds()
	// From here on other parts wait for the row, so that the last finds no other.
	n, err := tx.Delivery.Update().Where(delivery.ID(r.Post)).AddPushed(r.Pushed).AddPulled(r.Pulled).Save(ctx)
	if err != nil || n == 0 { // the post is gone
		return err
	}
	left, err := partsLeft(ctx, tx, part)
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

// partsLeft counts the other parts of the fan-out that are not done, given up or not: it names
// both, because the index begins with that.
func partsLeft(ctx context.Context, tx *ent.Tx, part finished) (left int, err error) {
	j := part.job
	payloads, err := tx.Job.Query().Where(entjob.Or(entjob.Dead(false), entjob.Dead(true)), entjob.Pool(string(j.Pool)), entjob.CreatedAt(j.CreatedAt.UTC()), entjob.Kind(j.Kind)).
		Select(entjob.FieldPayload).All(ctx)
	for _, other := range payloads {
		var p job.Post
		if json.Unmarshal(other.Payload, &p) == nil && p.Post == part.report.Post {
			left++
		}
	}
	return left, err
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
