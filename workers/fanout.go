package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// Fanout is the report of one post's way to its author's followers.
type Fanout struct {
	Kind      string // of the job
	Post      int64
	Followers int           // of the author
	Pushed    int           // whose inbox took the post; after an interruption some count twice
	Pulled    int           // whose reads merge the author's outbox
	Live      int           // connections that were told
	Duration  time.Duration // of this attempt
	FirstLag  time.Duration // from the post, or its change, to the first page of followers
	MedianLag time.Duration // to the page with the middle follower
	LastLag   time.Duration // to the last follower
}

// progress is what an interrupted fan-out goes on from. A new kind of fact
// about the post (it was hidden, it is gone) starts a new round.
type progress struct {
	Of     schema.Visibility // of the post, when the pages before place were done; empty: it was gone
	place                    // in the roster
	Fanout                   // as far as it has come
}

// postCreated pushes a new post to those who may see it.
func (w *Workers) postCreated(ctx context.Context, j *queue.Job) error {
	return w.distribute(ctx, j, false)
}

// postChanged puts a post into the inboxes it belongs into now, and takes it
// out of all others.
func (w *Workers) postChanged(ctx context.Context, j *queue.Job) error {
	return w.distribute(ctx, j, true)
}

// distribute fans a post out, page by page. With withdraw, followers who may
// not see it lose it; without, they are passed over.
//
// What a distributor read before a change, it may write after that change's own
// job is done. So when all pages are through it looks again: at the post, and
// at those whose relation to the author changed meanwhile (the fence), and puts
// right what it finds. Whatever changes after that look has its own job still to run.
func (w *Workers) distribute(ctx context.Context, j *queue.Job, withdraw bool) error {
	started := time.Now()
	var args feed.PostJob
	if err := json.Unmarshal(j.Payload, &args); err != nil {
		return queue.Discard(fmt.Errorf("read payload: %w", err))
	}
	var p progress
	if j.State != nil {
		if err := json.Unmarshal(j.State, &p); err != nil {
			return queue.Discard(fmt.Errorf("read state: %w", err))
		}
	}
	// An earlier attempt may have pushed by a truth that no longer holds.
	withdraw = withdraw || j.Again
	var change feed.PostChange
	if args.From != "" {
		change.Previous = append(change.Previous, args.WithVisibility(args.From))
	}
	for {
		// What the author is now decides, not what the author was at the commit:
		// who changed it since has the inboxes or the readers make up for it.
		author, err := w.DB.User.Get(ctx, args.Author)
		if err != nil {
			return fmt.Errorf("read author: %w", err)
		}
		post, err := w.post(ctx, args.Post)
		if err != nil {
			return err
		}
		change.Current = post
		if of := visibility(post); p.Of != of {
			if p != (progress{}) {
				// Pages were done by another truth. Whoever goes on after this attempt
				// must not take them for done.
				if p.Of != "" {
					change.Previous = append(change.Previous, args.WithVisibility(p.Of))
				}
				p, withdraw = progress{Of: of}, true
				if err := j.Checkpoint(ctx, p); err != nil {
					return err
				}
			}
			p.Of = of
		}
		if post != nil || withdraw {
			if err := w.toAuthor(ctx, j, args, post, p.place == place{}); err != nil {
				return err
			}
			if err := w.toFollowers(ctx, j, author, args, change, withdraw, &p); err != nil {
				return err
			}
			if err := w.recheckFenced(ctx, j, author, args.Post, post); err != nil {
				return err
			}
		}
		again, err := w.post(ctx, args.Post)
		if err != nil {
			return err
		}
		if visibility(post) == visibility(again) {
			if err := w.Timelines.Unwatch(ctx, args.Author, j.ID); err != nil {
				return err
			}
			return w.report(ctx, j, args, again == nil, p.Fanout, started)
		}
	}
}

// post is the post as it is, nil when it is gone.
func (w *Workers) post(ctx context.Context, id int64) (*ent.Post, error) {
	p, err := w.DB.Post.Get(ctx, id)
	if ent.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read post: %w", err)
	}
	return p, nil
}

// visibility is the post's, empty when it is gone.
func visibility(post *ent.Post) schema.Visibility {
	if post == nil {
		return ""
	}
	return post.Visibility
}

// toAuthor keeps the author's own feeds and devices up to date, and watches the
// author's fences from the beginning on. All at once: the followers wait for it.
func (w *Workers) toAuthor(ctx context.Context, j *queue.Job, args feed.PostJob, post *ent.Post, beginning bool) error {
	put, kind := w.Timelines.Add, live.Added
	if post == nil {
		put, kind = w.Timelines.Remove, live.Removed
	}
	g, ctx := errgroup.WithContext(ctx)
	if beginning {
		g.Go(func() error { return w.Timelines.Watch(ctx, args.Author, j.ID) })
	}
	for _, k := range []timeline.Key{timeline.Inbox(args.Author), timeline.Outbox(args.Author)} {
		g.Go(func() error { return put(ctx, k, args.Post) })
	}
	g.Go(func() error {
		_, err := w.tell(ctx, kind, args, []int64{args.Author})
		return err
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("update the author's own feeds: %w", err)
	}
	return nil
}

// toFollowers goes through the followers from where the progress stands.
func (w *Workers) toFollowers(ctx context.Context, j *queue.Job, author *ent.User, args feed.PostJob, change feed.PostChange, withdraw bool, p *progress) error {
	id := args.Post
	// An earlier attempt went to them first; now they are gone to in their turn.
	if feed.Pushes(author) {
		p.Pushed -= p.Ahead
	} else {
		p.Pulled -= p.Ahead
	}
	p.Ahead = 0
	r, err := w.roster(ctx, j, author, p.place)
	if err != nil {
		return err
	}
	p.Followers = author.FollowerCount
	since := feed.TimeOf(id)
	if j.Kind != feed.PostCreated {
		since = j.CreatedAt // the change is what they wait for
	}
	ctx, stop := context.WithCancel(ctx)
	pages := make(chan page, 1)
	var reader sync.WaitGroup
	reader.Go(func() { r.read(ctx, change, pages) })
	// Those of one page are told while the next is pushed.
	var telling errgroup.Group
	var told atomic.Int64
	telling.SetLimit(1)
	defer func() {
		stop()
		reader.Wait()
		_ = telling.Wait() // its error has been seen, or another one stopped it
	}()
	kept := time.Now()
	for page := range pages {
		if page.err != nil {
			return page.err
		}
		// Who could not see the post before is not told that it is gone, nor which.
		var in, out, never []int64
		for _, f := range page.followers {
			switch {
			case f.Sees:
				in = append(in, f.ID)
			case withdraw && f.Saw:
				out = append(out, f.ID)
			case withdraw:
				never = append(never, f.ID)
			}
		}
		wasHidden := args.HiddenThenShown(change.Current)
		if wasHidden { // noted as gone, before it is there again
			if err := w.Timelines.Withdraw(ctx, []int64{id}, in); err != nil {
				return fmt.Errorf("withdraw post %d: %w", id, err)
			}
		}
		if time.Since(feed.TimeOf(id)) > feed.LateAfter {
			late := timeline.Arrival{Post: id, Pulled: !feed.Pushes(author), Again: j.Again && args.Widens()}
			if err := w.Timelines.DeliverLate(ctx, late, in); err != nil {
				return err
			}
		}
		// Who holds a connection has read the timeline: the active ones are all.
		reached := in
		switch {
		case !feed.Pushes(author) && !page.known:
			reached, err = w.Timelines.ActiveOf(ctx, in)
			p.Pulled += len(reached)
		case !feed.Pushes(author):
			p.Pulled += len(in)
		case page.known:
			err = w.Timelines.Push(ctx, id, in, j.GiveWay(ctx))
			p.Pushed += len(in)
		default:
			reached, err = w.Timelines.Deliver(ctx, id, in)
			p.Pushed += len(reached)
		}
		if err != nil {
			return fmt.Errorf("deliver post %d: %w", id, err)
		}
		if err := w.Timelines.Withdraw(ctx, []int64{id}, out); err != nil {
			return fmt.Errorf("withdraw post %d: %w", id, err)
		}
		if err := w.Timelines.RemoveUnjournaled(ctx, []int64{id}, never); err != nil {
			return fmt.Errorf("take back post %d: %w", id, err)
		}
		telling.Go(func() error {
			var err error
			if wasHidden { // who read in between knows no more than that it is there
				_, err = w.tell(ctx, live.JournalChanged, args, reached)
			}
			if err == nil {
				var n int
				n, err = w.tell(ctx, live.Added, args, reached)
				told.Add(int64(n))
			}
			if err == nil {
				_, err = w.tell(ctx, live.Removed, args, out)
			}
			if err == nil {
				_, err = w.tell(ctx, live.JournalChanged, args, never)
			}
			return err
		})
		p.lag(time.Since(since), page.half)
		if !page.end && time.Since(kept) < w.KeepEvery {
			p.place = page.after
			continue
		}
		if err := telling.Wait(); err != nil {
			return err
		}
		p.Live += int(told.Swap(0))
		if page.end {
			return nil
		}
		p.place = page.after
		kept = time.Now()
		if err := w.receipt(ctx, j, args, p.Fanout, false); err != nil {
			return err
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// lag notes how long after the post a page was through.
func (f *Fanout) lag(lag time.Duration, half bool) {
	if f.FirstLag == 0 {
		f.FirstLag = lag
	}
	if half && f.MedianLag == 0 {
		f.MedianLag = lag
	}
	f.LastLag = lag
}

// receipt tells the author how far a post has come that is new, or is shown to
// more.
func (w *Workers) receipt(ctx context.Context, j *queue.Job, args feed.PostJob, f Fanout, done bool) error {
	if j.Kind != feed.PostCreated && !args.Widens() {
		return nil
	}
	err := w.DB.Delivery.Create().SetID(args.Post).
		SetPushed(f.Pushed).SetPulled(f.Pulled).SetSkipped(max(0, f.Followers-f.Pushed-f.Pulled)).
		SetFirstLag(f.FirstLag.Milliseconds()).SetMedianLag(f.MedianLag.Milliseconds()).
		SetLastLag(f.LastLag.Milliseconds()).SetDone(done).
		OnConflictColumns(delivery.FieldID).UpdateNewValues().Exec(ctx)
	if err != nil {
		return fmt.Errorf("write the receipt: %w", err)
	}
	return nil
}

func (w *Workers) tell(ctx context.Context, kind live.Kind, args feed.PostJob, users []int64) (int, error) {
	n, err := w.Publisher.Publish(ctx, live.Event{Kind: kind, Post: args.Post, Author: args.Author}, users)
	if err != nil {
		return n, fmt.Errorf("publish post %d: %w", args.Post, err)
	}
	return n, nil
}

// recheckFenced looks again at those whose relation to the author changed while
// the post was on its way: they may have been given it, or have lost it, by what
// the relation was before.
func (w *Workers) recheckFenced(ctx context.Context, j *queue.Job, author *ent.User, id int64, post *ent.Post) error {
	// No attempt began before the job did.
	fenced, whole, err := w.Timelines.Fenced(ctx, author.ID, j.ID, j.CreatedAt.Add(-clocksDiffer))
	if err != nil {
		return err
	}
	if !whole {
		// Redis was wiped meanwhile. It may be anybody who has an inbox by now.
		active, err := w.Timelines.ActiveUsers(ctx)
		if err != nil {
			return err
		}
		delete(active, author.ID) // whose own posts are nobody's to take
		fenced = slices.Collect(maps.Keys(active))
	}
	for users := range slices.Chunk(fenced, w.PageSize) {
		if err := w.recheck(ctx, author, id, post, users); err != nil {
			return err
		}
	}
	return nil
}

// rechecks is how often relations may change while a recheck writes what they were.
const rechecks = 5

func (w *Workers) recheck(ctx context.Context, author *ent.User, id int64, post *ent.Post, users []int64) error {
	in, err := w.whoSees(ctx, author.ID, post, users)
	for range rechecks {
		if err != nil {
			return err
		}
		out := slices.DeleteFunc(slices.Clone(users), func(user int64) bool {
			_, sees := slices.BinarySearch(in, user)
			return sees
		})
		// Reads hide it already. Whoever was shown it before starts over: whoever
		// looks after the inbox because the relation changed may find it done.
		if err := w.Timelines.RemoveUnjournaled(ctx, []int64{id}, out); err != nil {
			return fmt.Errorf("take back post %d: %w", id, err)
		}
		if _, err := w.tell(ctx, live.JournalChanged, feed.PostJob{Post: id, Author: author.ID}, out); err != nil {
			return err
		}
		if feed.Pushes(author) {
			if _, err := w.Timelines.Deliver(ctx, id, in); err != nil {
				return fmt.Errorf("deliver post %d: %w", id, err)
			}
		}
		before := in
		// Who changes a relation from here on has a job that writes after this.
		if in, err = w.whoSees(ctx, author.ID, post, users); err == nil && slices.Equal(before, in) {
			return nil
		}
	}
	return fmt.Errorf("the relations of %d do not come to rest", author.ID)
}

// whoSees is in whose timelines of the users the post belongs, in ascending order.
func (w *Workers) whoSees(ctx context.Context, author int64, post *ent.Post, users []int64) ([]int64, error) {
	followers, err := w.Feed.Among(ctx, author, feed.PostChange{Current: post}, users)
	var list []int64
	for _, f := range followers {
		if f.Sees {
			list = append(list, f.ID)
		}
	}
	slices.Sort(list)
	return list, err
}

// report tells of a fan-out that is done: the author by the receipt, unless the
// post is gone, operators by log and metrics.
func (w *Workers) report(ctx context.Context, j *queue.Job, args feed.PostJob, gone bool, f Fanout, started time.Time) error {
	f.Kind, f.Post, f.Duration = j.Kind, args.Post, time.Since(started)
	if gone {
		if _, err := w.DB.Delivery.Delete().Where(delivery.ID(args.Post)).Exec(ctx); err != nil {
			return fmt.Errorf("delete the receipt: %w", err)
		}
	} else if err := w.receipt(ctx, j, args, f, true); err != nil {
		return err
	}
	w.Observe(f)
	log := w.Logger.InfoContext
	if f.LastLag > w.LagLimit {
		log = w.Logger.WarnContext
	}
	log(ctx, "post distributed", "kind", f.Kind, "post", f.Post, "followers", f.Followers, "pushed", f.Pushed,
		"pulled", f.Pulled, "live", f.Live, "duration", f.Duration, "first_lag", f.FirstLag, "last_lag", f.LastLag)
	return nil
}
