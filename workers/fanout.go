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

// fanOut is one attempt to bring a post, or a change of it, to the followers of its author.
//
// An attempt has one or more rounds. A round
//
//  1. reads the author and the post (begin),
//  2. updates the author's own feeds and devices, and tells the watchers of the
//     conversation of the post (toAuthor),
//  3. scans the followers page by page (toFollowers): it pushes the post to those
//     who gain it (deliverPage), takes it from those who lose it (withdrawPage),
//     notifies both (tellPage), and stores its progress from time to time
//     (checkpoint),
//  4. checks again the followers whose relation to the author has changed since the
//     job was enqueued (recheckFenced),
//  5. reads the post again. If its visibility has changed, or the post is gone, the
//     next round begins. Otherwise the fan-out is done (finish).
//
// A fan-out may write data that it read before a change, although the job of that change is already done. Steps
// 4 and 5 correct this. A later change has its own job, which has still to run.
type fanOut struct {
	w       *Workers
	job     *queue.Job
	args    job.Post
	part    followerPart // zero: all followers
	started time.Time

	// withdraw takes the post from followers who may not see it. Without it they are skipped.
	withdraw bool

	// The inputs of the current round.
	author    *ent.User
	pushes    bool // into inboxes; otherwise readers merge the author's outbox
	change    visibility.PostChange
	divisible bool           // nothing was written before this round
	parts     []followerPart // the parts that become jobs
	finished  *finished      // the result; nil until the fan-out is done

	progress progress
	storedAt time.Time      // when the progress was last stored, or the round began
	telling  errgroup.Group // notifies one page while the next is pushed
	told     atomic.Int64   // connections that were told and are not yet in the progress

	missing   sync.Mutex // guards progress.Left, progress.Untold and unreached
	unreached error      // why users are left, if this attempt knows
}

// progress is the state of the job, from which a later attempt resumes. The JSON names must not
// change, because a newer process may resume the state of an older one.
type progress struct {
	// Of is the visibility of the post for which the pages up to the position were written. It is
	// "" if the post was gone.
	Of schema.Visibility `json:"Of"`
	scanPosition
	FanOutReport // up to the position
	outstanding
	// Unwatched says that the author's fences were not watched for the whole time.
	Unwatched bool `json:"Unwatched,omitempty"`
	// ToldConversation says that the watchers of the conversation of the post were told.
	ToldConversation bool `json:"ToldConversation,omitempty"`
}

// postCreated pushes a new post to those who may see it.
func (w *Workers) postCreated(ctx context.Context, j *queue.Job) (*finished, error) {
	return w.distribute(ctx, j, false)
}

// postChanged puts a post into the inboxes to which it now belongs and takes it out of all others.
func (w *Workers) postChanged(ctx context.Context, j *queue.Job) (*finished, error) {
	return w.distribute(ctx, j, true)
}

// distribute makes one attempt to fan out a post. With withdraw, followers who may not see the post
// lose it. The result is nil if the author is gone.
func (w *Workers) distribute(ctx context.Context, j *queue.Job, withdraw bool) (_ *finished, err error) {
	f := &fanOut{w: w, job: j, started: w.Now()}
	var of partOfPost
	if err := decode(j, &of, &f.progress); err != nil {
		return nil, err
	}
	if f.args, f.part = of.Post, of.Part; j.State == nil {
		f.progress.scanPosition = f.part.Start
	}
	ctx, span := trace.Begin(ctx, "fan-out")
	span.Int("tideline.post", f.args.Post)
	defer func() { span.End(err) }()
	// An earlier attempt may have pushed for a visibility that no longer holds.
	f.withdraw = withdraw || j.Again
	if f.args.From != "" {
		f.change.Before = f.args.WithVisibility(f.args.From)
		f.wasVisible(f.args.From)
	}
	f.telling.SetLimit(1)
	err = f.run(ctx)
	return f.finished, err
}

// wasVisible records that the post had visibility v before.
func (f *fanOut) wasVisible(v schema.Visibility) {
	f.change.Previous = append(f.change.Previous, f.args.WithVisibility(v))
}

// run makes rounds until the post does not change during one.
func (f *fanOut) run(ctx context.Context) error {
	for {
		if err := f.begin(ctx); err != nil {
			return err
		}
		if f.author == nil {
			return nil // the author is gone, and so are the posts and the followers
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

// errPostChanged ends a round: the post has changed since the round read it.
var errPostChanged = errors.New("the post has changed")

// round does the steps of a round between its two reads of the post.
func (f *fanOut) round(ctx context.Context) error {
	for _, step := range []func(context.Context) error{f.toAuthor, f.toFollowers, f.recheckFenced} {
		// The worker may have been suspended since it read its inputs.
		if err := f.job.Confirm(ctx); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin reads the inputs of the round. If earlier pages were written for another visibility, it
// goes back to the first page.
func (f *fanOut) begin(ctx context.Context) error {
	// The fan-out mode is the current one, not the one at the commit. A change of the mode makes up
	// for the difference, in the inboxes or when they are read.
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
	// Store the new start now: a later attempt must not skip the pages that were written for the
	// other visibility.
	if f.progress.Of != "" {
		f.wasVisible(f.progress.Of)
	}
	f.progress, f.withdraw = progress{Of: of, scanPosition: f.part.Start}, true
	return f.job.Checkpoint(ctx, f.progress)
}

// toAuthor updates the author's own feeds and devices, and tells the watchers of the conversation. At the beginning of a follower scan it also
// starts to watch the author's fences. All of this runs concurrently, because the followers wait
// for it.
func (f *fanOut) toAuthor(ctx context.Context) error {
	if f.part != (followerPart{}) {
		return f.watch(ctx) // the first job of the divided fan-out did the rest
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
		_ = f.w.Timelines.Masters.WithinLimit(ctx, func(ctx context.Context) error {
			done = f.w.Timelines.Own.Change(ctx, own)
			return nil
		})
		f.progress.Unwatched = f.progress.Unwatched || done.Watch != nil
		for _, err := range []error{done.Watch, done.Inbox, done.Outbox} {
			if err := f.reached(f.w.Timelines.Masters.MarkUnreached(ctx, err)); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		_, err := f.tell(ctx, kind, []int64{f.args.Author})
		return err
	})
	g.Go(func() error { return f.tellConversation(ctx) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("update the author's own feeds: %w", err)
	}
	return nil
}

// toFollowers scans the followers from the position of the progress. The next page is read while
// one is pushed.
func (f *fanOut) toFollowers(ctx context.Context) error {
	p := &f.progress
	if p.Only != nil && *p.Only == (slots{}) && !p.TellAll {
		return nil // only the author was not reached
	}
	f.countRecentLater() // an earlier attempt has counted them
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
		_ = f.telling.Wait() // its error was returned, or another error stopped it
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

// nextPage writes a page, and a checkpoint when it is due.
func (f *fanOut) nextPage(ctx context.Context, page followerPage) (err error) {
	ctx, span := trace.Begin(ctx, "fan-out page")
	span.Int("tideline.followers", int64(len(page.Followers)))
	defer func() { span.End(err) }()
	// Followers who never saw the post receive an event that does not name it.
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
	if f.args.Edited { // it stays in the inboxes
		lose, neverSaw = nil, nil
	}
	tellGain, tellLose, tellNeverSaw := gain, lose, neverSaw
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
		tellGain, tellLose, tellNeverSaw = reached, lose, neverSaw
	}
	f.tellPage(ctx, tellGain, tellLose, tellNeverSaw)
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

// deliverPage brings the post to followers who may see it and returns the active ones among them.
// Nothing is published to the others: their next visit drops the inbox. had is the part of gain that had the post right
// before the change. muters mute the author: they get nothing, but are counted in the same steps as
// the others. allActive says that all of them are known to be active.
func (f *fanOut) deliverPage(ctx context.Context, gain, had, muters []int64, allActive bool) (reached []int64, err error) {
	post, p := f.args.Post, &f.progress
	if f.args.Edited { // they have it, or another job delivers it
		reached, err = f.w.Timelines.Active.Of(ctx, gain)
		if err = f.reached(err); err == nil {
			err = f.editedFor(ctx, reached)
		}
		return reached, err
	}
	if f.hiddenThenShown() { // the journals must record the removal before the arrival
		if err := f.reached(f.w.Timelines.Inboxes.Withdraw(ctx, []int64{post}, gain)); err != nil {
			return nil, fmt.Errorf("withdraw post %d: %w", post, err)
		}
	}
	if f.w.Now().Sub(ids.TimeOf(post)) > home.LateAfter {
		// An earlier attempt may have pushed the post in time. Clients still accept its event: no client is
		// assumed to have the post while the job exists, unless the job is older than ForgetLate.
		unheard := f.job.Again && f.args.Widens() && f.w.Now().Sub(f.job.CreatedAt) > home.ForgetLate
		late := timeline.Arrival{Post: post, Pulled: !f.pushes, Again: unheard}
		slices.Sort(had)
		hadNot := slices.DeleteFunc(slices.Clone(gain), func(user int64) bool { return contains(had, user) })
		if err := f.reached(f.w.Timelines.Inboxes.DeliverLate(ctx, late, hadNot)); err != nil {
			return nil, err
		}
		late.Had = true
		if err := f.reached(f.w.Timelines.Inboxes.DeliverLate(ctx, late, had)); err != nil {
			return nil, err
		}
	}
	reached, pace, count := gain, f.job.GiveWay(ctx), len(gain)+len(muters)
	if !allActive {
		reached, err = f.w.Timelines.Active.Of(ctx, slices.Concat(gain, muters))
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
	if err := f.reached(f.w.Timelines.Inboxes.Push(ctx, post, reached, pace)); err != nil {
		return nil, fmt.Errorf("deliver post %d: %w", post, err)
	}
	return reached, nil
}

// editedFor makes readers check an edited post again for the users who mute words, because the edit may have
// added or removed a muted word. The post stays in their inboxes.
func (f *fanOut) editedFor(ctx context.Context, users []int64) error {
	muting, err := f.w.Visibility.MutedWords(ctx, users)
	if err == nil {
		err = f.reached(f.w.Timelines.Inboxes.Reread(ctx, slices.Collect(maps.Keys(muting))))
	}
	return err
}

// withdrawPage takes the post out of the inboxes of followers who may not see it.
func (f *fanOut) withdrawPage(ctx context.Context, lose, neverSaw []int64) error {
	post := []int64{f.args.Post}
	if err := f.reached(f.w.Timelines.Inboxes.Withdraw(ctx, post, lose)); err != nil {
		return fmt.Errorf("withdraw post %d: %w", f.args.Post, err)
	}
	if err := f.reached(f.w.Timelines.Inboxes.RemoveUnjournaled(ctx, post, neverSaw)); err != nil {
		return fmt.Errorf("remove post %d: %w", f.args.Post, err)
	}
	return nil
}

// tellPage starts to notify the connections of the followers. It first waits until the previous
// page has been notified.
func (f *fanOut) tellPage(ctx context.Context, reached, lose, neverSaw []int64) {
	f.telling.Go(func() error {
		var err error
		if f.hiddenThenShown() { // a client that read meanwhile knows only that it has the post
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

// waitUntilTold waits until the connections of all pages so far have been notified.
func (f *fanOut) waitUntilTold() error {
	err := f.telling.Wait()
	f.progress.Live += int(f.told.Swap(0))
	return err
}

// hiddenThenShown reports whether this change hid the post from followers and another change has
// shown it again.
func (f *fanOut) hiddenThenShown() bool { return f.args.HiddenThenShown(f.change.Current) }

// tell publishes an event about the post to the users and returns the number of their connections.
// The next attempt notifies those that could not be reached.
func (f *fanOut) tell(ctx context.Context, kind live.Kind, users []int64) (int, error) {
	if err := f.job.Confirm(ctx); err != nil {
		return 0, err
	}
	ev := live.Event{Kind: kind, Post: f.args.Post, Author: f.args.Author}
	if f.args.Edited && kind == live.Added {
		ev.Reason = live.Edited
		if f.args.Base {
			ev.Reason = live.BaseChanged
		}
	}
	n, err := f.w.Publisher.Publish(ctx, ev, users)
	tolerated := f.w.Timelines.Masters.MarkUnreached(ctx, err)
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

// checkpoint stores the progress: in the receipt for the author, and in the state of the job for a
// later attempt.
func (f *fanOut) checkpoint(ctx context.Context) error {
	f.storedAt = time.Now()
	if err := f.receipt(ctx); err != nil {
		return err
	}
	return f.job.Checkpoint(ctx, f.progress)
}

// since returns the time from which the lag counts: the time of the post, or of its change.
func (f *fanOut) since() time.Time {
	if f.job.Kind == job.PostCreated {
		return ids.TimeOf(f.args.Post)
	}
	return f.job.CreatedAt
}
