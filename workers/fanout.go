package workers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/feed/visibility"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// fanOut is one attempt to bring a post, or a change of it, to the followers of
// its author.
//
// The attempt goes in rounds. A round
//
//  1. reads the author and the post (begin),
//  2. updates the author's own feeds and devices (toAuthor),
//  3. goes through the followers, page by page (toFollowers): it pushes the post
//     to those who gain it (deliverPage), takes it from those who lose it
//     (withdrawPage), tells both (tellPage), and stores now and then how far it
//     has come (checkpoint),
//  4. looks again at those followers whose relation to the author changed
//     meanwhile (recheckFenced),
//  5. reads the post again: if it has another visibility, or is gone, the next
//     round begins. Otherwise the fan-out is done (finish).
//
// What a fan-out read before a change, it may write after that change's own job
// is done. Steps 4 and 5 put that right. Whatever changes after them has its own
// job still to run.
type fanOut struct {
	w       *Workers
	job     *queue.Job
	args    job.Post
	part    followerPart // zero: the whole
	started time.Time

	// withdraw makes followers lose the post if they may not see it. Without it
	// they are passed over.
	withdraw bool

	// What the current round goes by.
	author    *ent.User
	pushes    bool // into inboxes; otherwise readers merge the author's outbox
	change    visibility.PostChange
	divisible bool           // nothing was done before the round
	parts     []followerPart // for which there will be jobs

	progress progress
	storedAt time.Time      // when the progress was stored, or the round began
	telling  errgroup.Group // one page is told while the next is pushed
	told     atomic.Int64   // connections told that the progress does not count yet

	missing   sync.Mutex // guards what the progress has as left or untold
	unreached error      // why there is something left, if this attempt knows
}

// progress is the state of the job: what a later attempt goes on from. The names
// in JSON must not change, as a newer process goes on from an older one's state.
type progress struct {
	// Of is the visibility of the post by which the pages up to the position were
	// done; "" when the post was gone.
	Of schema.Visibility `json:"Of"`
	scanPosition
	FanOutReport // as far as it has come
	outstanding
	// Unwatched says that the author's fences were not watched all the time.
	Unwatched bool `json:"Unwatched,omitempty"`
}

// postCreated pushes a new post to those who may see it.
func (w *Workers) postCreated(ctx context.Context, j *queue.Job) error {
	return w.distribute(ctx, j, false)
}

// postChanged puts a post into the inboxes that it belongs into now, and takes it
// out of all others.
func (w *Workers) postChanged(ctx context.Context, j *queue.Job) error {
	return w.distribute(ctx, j, true)
}

// distribute makes one attempt to fan a post out. With withdraw, followers who
// may not see the post lose it.
func (w *Workers) distribute(ctx context.Context, j *queue.Job, withdraw bool) (err error) {
	f := &fanOut{w: w, job: j, started: w.Now()}
	var of partOfPost
	if err := decode(j, &of, &f.progress); err != nil {
		return err
	}
	if f.args, f.part = of.Post, of.Part; j.State == nil {
		f.progress.scanPosition = f.part.Start
	}
	ctx, span := trace.Begin(ctx, "fan-out")
	span.Int("tideline.post", f.args.Post)
	defer func() { span.End(err) }()
	// An earlier attempt may have pushed by a visibility that no longer holds.
	f.withdraw = withdraw || j.Again
	if f.args.From != "" {
		f.change.Before = f.args.WithVisibility(f.args.From)
		f.wasVisible(f.args.From)
	}
	f.telling.SetLimit(1)
	return f.run(ctx)
}

// wasVisible adds to the change that the post had this visibility before.
func (f *fanOut) wasVisible(v schema.Visibility) {
	f.change.Previous = append(f.change.Previous, f.args.WithVisibility(v))
}

// run makes rounds until the post stays as it is during one.
func (f *fanOut) run(ctx context.Context) error {
	for {
		if err := f.begin(ctx); err != nil {
			return err
		}
		if f.author == nil {
			return nil // with the author, the posts and the followers are gone
		}
		ctx := f.share(ctx)
		if f.change.Current != nil || f.withdraw {
			err := f.round(ctx)
			if errors.Is(err, errPostChanged) {
				continue
			}
			if err != nil {
				return err
			}
		}
		author, post, err := f.stored(ctx)
		if err != nil {
			return err
		}
		if f.author = author; author == nil {
			return nil
		}
		if visibility.Of(post) == f.progress.Of {
			if f.progress.Left != nil {
				return f.comeBack(ctx)
			}
			return f.finish(ctx, post)
		}
	}
}

// errPostChanged ends a round: the post is not as the round has it.
var errPostChanged = errors.New("the post has changed")

// round does the steps of a round between its two looks at the post.
func (f *fanOut) round(ctx context.Context) error {
	for _, step := range []func(context.Context) error{f.toAuthor, f.toFollowers, f.recheckFenced} {
		// A worker that was stopped may have read long ago what it goes by.
		if err := f.job.Confirm(ctx); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin reads what the round goes by. If pages were done by another visibility,
// it goes back to the first page.
func (f *fanOut) begin(ctx context.Context) error {
	// The author's fan-out mode counts as it is now, not as it was at the commit. A
	// change of it since makes up for the difference, in the inboxes or at the reads.
	author, post, err := f.stored(ctx)
	if f.author = author; err != nil || author == nil {
		return err
	}
	f.pushes, f.change.Current, f.parts = home.Pushes(author), post, nil
	of, fresh := visibility.Of(post), f.progress == progress{scanPosition: f.part.Start}
	f.divisible = fresh && !f.job.Again && f.part == followerPart{}
	if f.progress.Of == of {
		return nil
	}
	if fresh {
		f.progress.Of = of
		return nil
	}
	// The new start is stored at once: a later attempt must not take the pages
	// that were done by the other visibility for done.
	if f.progress.Of != "" {
		f.wasVisible(f.progress.Of)
	}
	f.progress, f.withdraw = progress{Of: of, scanPosition: f.part.Start}, true
	return f.job.Checkpoint(ctx, f.progress)
}

// toAuthor brings the author's own feeds and devices up to date. At the beginning
// of a follower scan it also starts to watch the author's fences. It does all this at the
// same time, because the followers wait for it.
func (f *fanOut) toAuthor(ctx context.Context) error {
	if f.part != (followerPart{}) {
		return f.watch(ctx) // the rest was done before there were parts
	}
	own, kind := timeline.OwnChange{Author: f.args.Author, Post: f.args.Post}, live.Added
	if f.change.Current == nil {
		own.Gone, kind = true, live.Removed
	}
	if f.begins() {
		own.Watch = f.job.ID
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var done timeline.OwnChanged
		_ = f.w.Timelines.Masters().Try(ctx, func(ctx context.Context) error {
			done = f.w.Timelines.ChangeOwn(ctx, own)
			return nil
		})
		f.progress.Unwatched = f.progress.Unwatched || done.Watch != nil
		for _, err := range []error{done.Watch, done.Inbox, done.Outbox} {
			if err := f.reached(f.w.Timelines.Masters().Tolerate(ctx, err)); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		_, err := f.tell(ctx, kind, []int64{f.args.Author})
		return err
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("update the author's own feeds: %w", err)
	}
	return nil
}

// toFollowers goes through the followers from where the progress stands. The next
// page is read while one is pushed.
func (f *fanOut) toFollowers(ctx context.Context) error {
	p := &f.progress
	if p.Only != nil && *p.Only == (slots{}) && !p.TellAll {
		return nil // only the author was not reached
	}
	f.countRecentLater() // an earlier attempt counted them
	r, err := f.w.scans.begin(ctx, scanStart{
		Job: f.job, Author: f.author, Post: f.args.Post, Part: f.part, At: p.scanPosition, PageSize: f.w.PageSize,
	})
	if err != nil {
		return err
	}
	p.Followers, f.storedAt = f.author.FollowerCount, time.Now()
	if done, err := f.divide(ctx, r); done || err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	pages := make(chan followerPage, 1)
	var reader sync.WaitGroup
	reader.Go(func() { r.read(ctx, f.change, pages) })
	defer func() {
		stop()
		reader.Wait()
		_ = f.telling.Wait() // its error has been seen, or another one stopped it
	}()
	for page := range pages {
		if page.Err != nil {
			return page.Err
		}
		if err := f.nextPage(ctx, page); err != nil || page.End {
			return err
		}
	}
	return ctx.Err()
}

// nextPage does a page, and a checkpoint when one is due.
func (f *fanOut) nextPage(ctx context.Context, page followerPage) (err error) {
	ctx, span := trace.Begin(ctx, "fan-out page")
	span.Int("tideline.followers", int64(len(page.Followers)))
	defer func() { span.End(err) }()
	// Followers who never saw the post are not told that it is gone, nor which.
	var gain, had, muters, lose, neverSaw []int64
	for _, follower := range page.Followers {
		if follower.Counts && !follower.Sees {
			muters = append(muters, follower.ID)
		}
		switch {
		case follower.Sees:
			gain = append(gain, follower.ID)
			if follower.Had {
				had = append(had, follower.ID)
			}
		case f.withdraw && follower.Saw:
			lose = append(lose, follower.ID)
		case f.withdraw:
			neverSaw = append(neverSaw, follower.ID)
		}
	}
	if err := f.job.Confirm(ctx); err != nil { // the page may have been read long ago
		return err
	}
	if err := f.reached(page.Left); err != nil {
		return err
	}
	if f.args.Edited { // it stays where it is
		lose, neverSaw = nil, nil
	}
	told := [3][]int64{gain, lose, neverSaw}
	only := f.progress.Only
	gain, lose, neverSaw, muters = only.of(gain), only.of(lose), only.of(neverSaw), only.of(muters)
	had = only.of(had)
	reached, err := f.deliverPage(ctx, gain, had, muters, page.AllActive)
	if err != nil {
		return err
	}
	if err := f.withdrawPage(ctx, lose, neverSaw); err != nil {
		return err
	}
	if !f.progress.TellAll {
		told = [3][]int64{reached, lose, neverSaw}
	}
	f.tellPage(ctx, told[0], told[1], told[2])
	f.progress.lag(f.w.Now().Sub(f.since()), page.Half)
	if f.part.Of > 0 {
		f.progress.Followers = page.After.Seen - f.part.Start.Seen
	}
	if !page.End && time.Since(f.storedAt) < f.w.KeepEvery {
		f.progress.scanPosition = page.After
		return nil
	}
	if err := f.waitUntilTold(); err != nil || page.End {
		return err
	}
	f.progress.scanPosition = page.After
	return f.checkpoint(ctx)
}

// deliverPage brings the post to followers who may see it, and returns those of
// them who are active: a user who is not has no connection. AllActive says that
// all of them are. Had are those of them who had it right before the change. Those
// who mute the author get nothing and are counted alike, in the same steps.
func (f *fanOut) deliverPage(ctx context.Context, gain, had, muters []int64, allActive bool) (reached []int64, err error) {
	post, p := f.args.Post, &f.progress
	if f.args.Edited { // they have it, or another job brings it
		reached, err = f.w.Timelines.ActiveOf(ctx, gain)
		if err = f.reached(err); err == nil {
			err = f.editedFor(ctx, reached)
		}
		return reached, err
	}
	if f.hiddenThenShown() { // the journals say that it is gone before it is there again
		if err := f.reached(f.w.Timelines.Withdraw(ctx, []int64{post}, gain)); err != nil {
			return nil, fmt.Errorf("withdraw post %d: %w", post, err)
		}
	}
	if f.w.Now().Sub(ids.TimeOf(post)) > home.LateAfter {
		// A client is told of what an earlier attempt pushed in time: it is not taken to have
		// that while the job is there, unless the job is too old.
		unheard := f.job.Again && f.args.Widens() && f.w.Now().Sub(f.job.CreatedAt) > home.ForgetLate
		late := timeline.Arrival{Post: post, Pulled: !f.pushes, Again: unheard}
		slices.Sort(had)
		hadNot := slices.DeleteFunc(slices.Clone(gain), func(user int64) bool { return contains(had, user) })
		if err := f.reached(f.w.Timelines.DeliverLate(ctx, late, hadNot)); err != nil {
			return nil, err
		}
		late.Had = true
		if err := f.reached(f.w.Timelines.DeliverLate(ctx, late, had)); err != nil {
			return nil, err
		}
	}
	reached, pace, count := gain, f.job.GiveWay(ctx), len(gain)+len(muters)
	if !allActive {
		reached, err = f.w.Timelines.ActiveOf(ctx, slices.Concat(gain, muters))
		if err := f.reached(err); err != nil {
			return nil, fmt.Errorf("deliver post %d: %w", post, err)
		}
		count, pace = len(reached), func() {}
		slices.Sort(muters)
		reached = slices.DeleteFunc(reached, func(user int64) bool { return contains(muters, user) })
	}
	if !f.pushes {
		p.Pulled += count
		return reached, nil
	}
	p.Pushed += count
	if err := f.reached(f.w.Timelines.Push(ctx, post, reached, pace)); err != nil {
		return nil, fmt.Errorf("deliver post %d: %w", post, err)
	}
	return reached, nil
}

// editedFor has those of the users who mute words read again what an edited post says: it may
// have such a word now, or no more. In an inbox it stays.
func (f *fanOut) editedFor(ctx context.Context, users []int64) error {
	muting, err := f.w.Visibility.MutedWords(ctx, users)
	if err == nil {
		err = f.reached(f.w.Timelines.Reread(ctx, slices.Collect(maps.Keys(muting))))
	}
	return err
}

// withdrawPage takes the post out of the inboxes of followers who may not see it.
func (f *fanOut) withdrawPage(ctx context.Context, lose, neverSaw []int64) error {
	post := []int64{f.args.Post}
	if err := f.reached(f.w.Timelines.Withdraw(ctx, post, lose)); err != nil {
		return fmt.Errorf("withdraw post %d: %w", f.args.Post, err)
	}
	if err := f.reached(f.w.Timelines.RemoveUnjournaled(ctx, post, neverSaw)); err != nil {
		return fmt.Errorf("remove post %d: %w", f.args.Post, err)
	}
	return nil
}

// tellPage begins to tell the connections of the followers. It first waits until
// those of the page before are told.
func (f *fanOut) tellPage(ctx context.Context, reached, lose, neverSaw []int64) {
	f.telling.Go(func() error {
		var err error
		if f.hiddenThenShown() { // a client that read in between knows only that the post is there
			_, err = f.tell(ctx, live.JournalChanged, reached)
		}
		if err == nil {
			var n int
			n, err = f.tell(ctx, live.Added, reached)
			f.told.Add(int64(n))
		}
		if err == nil {
			_, err = f.tell(ctx, live.Removed, lose)
		}
		if err == nil {
			_, err = f.tell(ctx, live.JournalChanged, neverSaw)
		}
		return err
	})
}

// waitUntilTold waits until the connections of all pages up to here are told.
func (f *fanOut) waitUntilTold() error {
	err := f.telling.Wait()
	f.progress.Live += int(f.told.Swap(0))
	return err
}

// hiddenThenShown reports whether this change hid the post from followers, and
// another one has shown it again.
func (f *fanOut) hiddenThenShown() bool { return f.args.HiddenThenShown(f.change.Current) }

// tell publishes an event of the post to the users, and returns how many
// connections there were. Those that could not be told are told by the next attempt.
func (f *fanOut) tell(ctx context.Context, kind live.Kind, users []int64) (int, error) {
	if err := f.job.Confirm(ctx); err != nil {
		return 0, err
	}
	ev := live.Event{Kind: kind, Post: f.args.Post, Author: f.args.Author}
	if f.args.Edited && kind == live.Added {
		ev.Reason = live.Edited
	}
	n, err := f.w.Publisher.Publish(ctx, ev, users)
	tolerated := f.w.Timelines.Masters().Tolerate(ctx, err)
	if tolerated = f.reached(tolerated); tolerated != nil {
		return n, fmt.Errorf("publish post %d: %w", f.args.Post, err)
	}
	if err != nil {
		f.missing.Lock()
		f.progress.Untold = true
		f.missing.Unlock()
	}
	return n, nil
}

// checkpoint stores how far the fan-out has come: for its author in the receipt,
// for a later attempt in the state of the job.
func (f *fanOut) checkpoint(ctx context.Context) error {
	f.storedAt = time.Now()
	if err := f.receipt(ctx); err != nil {
		return err
	}
	return f.job.Checkpoint(ctx, f.progress)
}

// since is what the lag counts from: the post, or its change.
func (f *fanOut) since() time.Time {
	if f.job.Kind == job.PostCreated {
		return ids.TimeOf(f.args.Post)
	}
	return f.job.CreatedAt
}
