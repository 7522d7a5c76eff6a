package workers

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/feed/job"
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
func (f *fanOut) receipt(ctx context.Context, r FanOutReport, done bool) error {
	if f.job.Kind != job.PostCreated && !f.args.Widens() {
		return nil
	}
	err := f.w.DB.Delivery.Create().SetID(f.args.Post).
		SetPushed(r.Pushed).SetPulled(r.Pulled).SetSkipped(max(0, r.Followers-r.Pushed-r.Pulled)).
		SetFirstLag(r.FirstLag.Milliseconds()).SetMedianLag(r.MedianLag.Milliseconds()).
		SetLastLag(r.LastLag.Milliseconds()).SetDone(done).
		OnConflictColumns(delivery.FieldID).UpdateNewValues().Exec(ctx)
	if err != nil {
		return fmt.Errorf("write the receipt: %w", err)
	}
	return nil
}

// finish ends a fan-out that is done. It tells the author by the receipt, which
// goes with the post if that is gone, and operators by log and metrics.
func (f *fanOut) finish(ctx context.Context, post *ent.Post) error {
	// A watch that stays ends by itself.
	err := f.w.Timelines.Masters().Try(ctx, func(ctx context.Context) error { return f.w.Timelines.Unwatch(ctx, f.args.Author, f.job.ID) })
	if err := f.reached(err); err != nil {
		return err
	}
	r := f.progress.FanOutReport
	r.Kind, r.Post, r.Duration = f.job.Kind, f.args.Post, f.w.Now().Sub(f.started)
	if post == nil {
		if _, err := f.w.DB.Delivery.Delete().Where(delivery.ID(f.args.Post)).Exec(ctx); err != nil {
			return fmt.Errorf("delete the receipt: %w", err)
		}
	} else if err := f.receipt(ctx, r, true); err != nil {
		return err
	}
	f.w.Observe(r)
	log := f.w.Logger.InfoContext
	if r.LastLag > f.w.LagLimit {
		log = f.w.Logger.WarnContext
	}
	log(ctx, "post distributed", "kind", r.Kind, "post", r.Post, "followers", r.Followers, "pushed", r.Pushed,
		"pulled", r.Pulled, "live", r.Live, "duration", r.Duration, "first_lag", r.FirstLag, "last_lag", r.LastLag)
	return nil
}
