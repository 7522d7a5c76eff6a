package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/queue"
	"tideline/timeline"
)

// roster goes through those followers of an author who may have an inbox or a
// connection: a page at a time, from a position on, the most recently active
// first. The numbers of followers and of active users decide how:
//
//   - Far fewer users are active than follow: it goes through the active users,
//     and asks SQL which of them follow.
//   - About as many are active: it begins with one page of the most recently
//     active followers. Then it goes through all followers, with the set of
//     active users in memory.
//   - Far more are active: it goes through the followers, some pages at a time,
//     and asks Redis which of them are active, and how recently.
//   - The followers fit into one page: it reads that, and asks nothing.
type roster struct {
	w        *Workers
	author   *ent.User
	position rosterPosition
	job      *queue.Job
	pageSize int
	large    bool // several pages

	active    []timeline.Activity // still to go through, if position.ByActivity
	inMemory  bool                // activeSet is used
	loaded    func() error        // waits until activeSet is complete
	activeSet map[int64]struct{}  // all active users
	recentSet map[int64]struct{}  // the most recently active, whose page came first
	muters    map[int64]bool      // of the author, if large
	total     int                 // about how many users there are to go through
}

const (
	// readsPerLookUp is how many followers an index range reads in the time of one
	// look-up.
	readsPerLookUp = 20
	// maxActiveShare is how many active users for each follower are still worth
	// reading into memory.
	maxActiveShare = 4
	// sortedPages is how many pages of followers are ordered by activity at a time.
	sortedPages = 4
)

// maxClockSkew is the most by which the clocks of two processes may differ.
const maxClockSkew = 5 * time.Minute

// rosterPosition is how far a roster has come. It is part of the state of a job:
// its names in JSON must not change.
type rosterPosition struct {
	// Before is the follow that the next page of followers starts before; 0 at the
	// beginning.
	Before int64 `json:"Before"`
	// RecentDone says that the page of the most recently active followers is done.
	// RecentLeft is how many of these the roster has still to come by.
	RecentDone bool `json:"Latest"`
	RecentLeft int  `json:"Ahead"`

	Seen int `json:"Seen"` // how many users the roster has come by, followers or not

	// ByActivity says that the roster goes through the active users: down from the
	// deadline From, as far as the deadline Until by now.
	ByActivity bool  `json:"ByActivity"`
	From       int64 `json:"From"`
	Until      int64 `json:"Until"`
}

// page is a step of a roster.
type page struct {
	followers []visibility.Follower // with the verdict on the post
	allActive bool                  // all of them are known to be active
	left      error                 // says of whom it is not known whether they are active
	half      bool                  // with this page half of the roster is done
	end       bool                  // this page is the last
	after     rosterPosition        // where the roster goes on after this page
	err       error
}

// roster returns the roster of the author's followers from the position at.
func (w *Workers) roster(ctx context.Context, j *queue.Job, author *ent.User, at rosterPosition) (*roster, error) {
	r := &roster{w: w, author: author, position: at, job: j, pageSize: w.PageSize(), total: author.FollowerCount}
	// An earlier attempt may have had smaller pages, or the author more followers.
	if r.large = author.FollowerCount > r.pageSize || at.ByActivity; !r.large {
		return r, nil
	}
	var count int
	err := w.Timelines.Masters().Try(ctx, func(ctx context.Context) (err error) {
		count, err = w.Timelines.ActiveCount(ctx)
		return err
	})
	if err != nil {
		return r.withoutActivity(err)
	}
	begun := at != rosterPosition{}
	// A process of the version before ends at once where an audience that was gone through by
	// activity fits into its page. It may be next, and has the configured size.
	r.position.ByActivity = at.ByActivity || !begun && author.FollowerCount > w.Config.PageSize && count < author.FollowerCount/readsPerLookUp
	if !r.position.ByActivity {
		// One that had larger pages, or no list of the active users, came by some of the most
		// recently active followers in their turn.
		r.position.RecentDone = at.RecentDone || begun
		r.inMemory = count <= maxActiveShare*author.FollowerCount
		return r, nil
	}
	// The post is committed: users who become active later read it from SQL.
	active, err := w.Timelines.ActiveByRecency(ctx)
	if err != nil {
		return r.withoutActivity(w.Timelines.Masters().Tolerate(ctx, err))
	}
	if begun {
		// The earlier attempt has done the users between the two deadlines. The
		// margin is for users who have read since by a clock that is behind.
		visited := at.From - maxClockSkew.Milliseconds()
		active = slices.DeleteFunc(active, func(a timeline.Activity) bool {
			return a.Until > at.Until && a.Until <= visited
		})
	} else if len(active) > 0 {
		r.position.From = active[0].Until
	}
	r.active, r.total = active, at.Seen+len(active)
	return r, nil
}

// withoutActivity returns the roster that goes through all followers, because a list of
// the active users cannot be had. It fails if that is for another reason than a part of
// a cluster that cannot be reached.
func (r *roster) withoutActivity(err error) (*roster, error) {
	if !unreached(err) {
		return nil, err
	}
	if r.position.ByActivity {
		r.position = rosterPosition{}
	}
	r.active, r.inMemory, r.total = nil, false, r.author.FollowerCount
	return r, nil
}

// unreached reports whether err says that some users were not reached.
func unreached(err error) bool {
	var some *timeline.Unreached
	return errors.As(err, &some)
}

// read sends the pages until the last, or the first that fails. It reads the next
// page while the receiver works on the one before.
func (r *roster) read(ctx context.Context, c visibility.PostChange, to chan<- page) {
	defer close(to)
	var loading errgroup.Group
	if r.inMemory {
		loading.Go(func() (err error) {
			// The post is committed: users who become active later read it from SQL.
			r.activeSet, err = r.w.Timelines.ActiveUsers(ctx)
			return err
		})
	}
	r.loaded = loading.Wait
	defer func() { _ = loading.Wait() }() // nextFollowers returns its error
	for {
		giveWay := r.job.GiveWay(ctx)
		p := r.next(ctx, c)
		if r.large {
			giveWay()
		}
		select {
		case to <- p:
		case <-ctx.Done():
			return
		}
		if p.end || p.err != nil {
			return
		}
	}
}

// next reads the next page.
func (r *roster) next(ctx context.Context, c visibility.PostChange) (p page) {
	switch {
	case r.position.ByActivity:
		p = r.nextActive(ctx, c)
	case r.inMemory && !r.position.RecentDone:
		p = r.recentFollowers(ctx, c)
	default:
		p = r.nextFollowers(ctx, c)
	}
	p.half, p.after = 2*r.position.Seen >= r.total, r.position
	return p
}

// nextActive reads the followers among the next active users.
func (r *roster) nextActive(ctx context.Context, c visibility.PostChange) (p page) {
	chunk := r.active[:min(len(r.active), r.pageSize)]
	r.active = r.active[len(chunk):]
	p.allActive, p.end = true, len(r.active) == 0
	if len(chunk) == 0 {
		return p
	}
	p.followers, p.err = r.followersAmong(ctx, c, chunk)
	r.position.Until = chunk[len(chunk)-1].Until
	r.position.Seen += len(chunk)
	return p
}

// recentFollowers reads the followers among the most recently active users.
func (r *roster) recentFollowers(ctx context.Context, c visibility.PostChange) (p page) {
	p.allActive, r.position.RecentDone = true, true
	chunk, err := r.w.Timelines.RecentlyActive(ctx, r.pageSize)
	if err != nil {
		if p.err = r.w.Timelines.Masters().Tolerate(ctx, err); unreached(p.err) {
			p.err = nil // they come in their turn
		}
		return p
	}
	r.recentSet = make(map[int64]struct{}, len(chunk))
	for _, a := range chunk {
		r.recentSet[a.User] = struct{}{}
	}
	p.followers, p.err = r.followersAmong(ctx, c, chunk)
	for _, f := range p.followers {
		if f.Counts {
			r.position.RecentLeft++
		}
	}
	return p
}

// followersAmong reads the followers among the users, and keeps the order of the
// users.
func (r *roster) followersAmong(ctx context.Context, c visibility.PostChange, chunk []timeline.Activity) ([]visibility.Follower, error) {
	rank := make(map[int64]int, len(chunk))
	users := make([]int64, len(chunk))
	for i, a := range chunk {
		users[i], rank[a.User] = a.User, i
	}
	followers, err := r.w.Visibility.Among(ctx, r.author.ID, c, users)
	if err != nil {
		return nil, fmt.Errorf("find followers among the active: %w", err)
	}
	slices.SortFunc(followers, func(a, b visibility.Follower) int { return rank[a.ID] - rank[b.ID] })
	return followers, nil
}

// nextFollowers reads the next followers. Of a large audience it keeps the active
// ones only.
func (r *roster) nextFollowers(ctx context.Context, c visibility.PostChange) (p page) {
	limit := r.pageSize
	if r.large && r.muters == nil {
		// A user who mutes or unmutes the author from now on is fenced, and checked
		// again at the end.
		if r.muters, p.err = r.w.Visibility.Muters(ctx, r.author.ID); p.err != nil {
			return p
		}
	}
	if p.err = r.loaded(); p.err != nil {
		if _, p.err = r.withoutActivity(r.w.Timelines.Masters().Tolerate(ctx, p.err)); p.err != nil {
			return p
		}
		r.loaded = func() error { return nil }
	}
	if r.large && !r.inMemory {
		limit *= sortedPages
	}
	p.followers, r.position.Before, p.err = r.audience(ctx, c, limit)
	p.end = r.position.Before == 0
	r.position.Seen += len(p.followers)
	if p.allActive = r.large; !p.allActive || p.err != nil {
		return p
	}
	if r.inMemory {
		p.followers = slices.DeleteFunc(p.followers, func(f visibility.Follower) bool {
			_, active := r.activeSet[f.ID]
			_, done := r.recentSet[f.ID]
			if done && f.Counts {
				r.position.RecentLeft--
			}
			return !active || done
		})
		return p
	}
	if p.followers, p.err = r.activeOf(ctx, p.followers); unreached(p.err) {
		p.left, p.err = p.err, nil
	}
	return p
}

// activeOf returns those of the followers who are active, the most recent first.
func (r *roster) activeOf(ctx context.Context, followers []visibility.Follower) ([]visibility.Follower, error) {
	ids := make([]int64, len(followers))
	found := make(map[int64]visibility.Follower, len(followers))
	for i, f := range followers {
		ids[i], found[f.ID] = f.ID, f
	}
	active, err := r.w.Timelines.ActiveOf(ctx, ids)
	list := make([]visibility.Follower, len(active))
	for i, id := range active {
		list[i] = found[id]
	}
	return list, err
}
