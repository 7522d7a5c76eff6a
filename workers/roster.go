package workers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed"
	"tideline/queue"
	"tideline/timeline"
)

// roster goes through those followers of an author who may have an inbox or a
// connection, a page at a time, from where the progress stands, the most recently
// active first. It takes the cheapest way that the numbers of followers and of
// active people allow:
//
//   - far fewer are active than follow: through the active, the most recent
//     first, asking SQL which of them follow;
//   - about as many: first those who were active last, a page of them; then
//     through the followers, with the active in memory;
//   - far more: through the followers, some pages at a time, asking Redis which
//     of them are active, and since when;
//   - few followers: so, in one page.
type roster struct {
	w        *Workers
	author   *ent.User
	position rosterPosition
	job      *queue.Job
	large    bool // several pages

	active []timeline.Activity // left to go through, when position.ByActivity
	held   bool                // the active are held in memory:
	loaded func() error        // waits for
	among  map[int64]struct{}  // all of them,
	latest map[int64]struct{}  // and those who have been gone to first
	muters map[int64]bool      // of the author, when large
	total  int                 // how many there are to go through, about
}

const (
	// lookUps is how many followers in an index are read in the time of one look-up.
	lookUps = 20
	// manyMore active than follow are not worth holding in memory.
	manyMore = 4
	// window is how many pages of followers are put in order at a time.
	window = 4
)

// clocksDiffer is by how much the clocks of two processes may, at most.
const clocksDiffer = 5 * time.Minute

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
	followers []feed.Follower // with the verdict on the post
	known     bool            // all of them are active
	half      bool            // half of the roster is through with it
	end       bool            // it is the last
	after     rosterPosition  // where the roster goes on behind it
	err       error
}

func (w *Workers) roster(ctx context.Context, j *queue.Job, author *ent.User, at rosterPosition) (*roster, error) {
	r := &roster{w: w, author: author, position: at, job: j, total: author.FollowerCount}
	if r.large = author.FollowerCount > w.PageSize; !r.large {
		return r, nil
	}
	count, err := w.Timelines.ActiveCount(ctx)
	if err != nil {
		return nil, err
	}
	begun := at != rosterPosition{}
	r.position.ByActivity = at.ByActivity || !begun && count < author.FollowerCount/lookUps
	if !r.position.ByActivity {
		r.held = count <= manyMore*author.FollowerCount
		return r, nil
	}
	// The post is committed: who is not active by now reads it from SQL.
	active, err := w.Timelines.Recent(ctx)
	if err != nil {
		return nil, err
	}
	if begun {
		// The earlier attempt has been through those between the two deadlines,
		// but for who has read since by a clock that is behind.
		visited := at.From - clocksDiffer.Milliseconds()
		active = slices.DeleteFunc(active, func(a timeline.Activity) bool {
			return a.Until > at.Until && a.Until <= visited
		})
	} else if len(active) > 0 {
		r.position.From = active[0].Until
	}
	r.active, r.total = active, at.Seen+len(active)
	return r, nil
}

// read sends the pages until the last, or the first that fails. The next page
// is read while the one before is worked on.
func (r *roster) read(ctx context.Context, c feed.PostChange, to chan<- page) {
	defer close(to)
	var loading errgroup.Group
	if r.held {
		loading.Go(func() (err error) {
			// The post is committed: who is not active by now reads it from SQL.
			r.among, err = r.w.Timelines.ActiveUsers(ctx)
			return err
		})
	}
	r.loaded = loading.Wait
	defer func() { _ = loading.Wait() }() // whoever needs it sees its error
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

func (r *roster) next(ctx context.Context, c feed.PostChange) (p page) {
	switch {
	case r.position.ByActivity:
		p = r.nextActive(ctx, c)
	case r.held && !r.position.RecentDone:
		p = r.latestActive(ctx, c)
	default:
		p = r.nextFollowers(ctx, c)
	}
	p.half, p.after = 2*r.position.Seen >= r.total, r.position
	return p
}

// nextActive is the next of the active who follow.
func (r *roster) nextActive(ctx context.Context, c feed.PostChange) (p page) {
	chunk := r.active[:min(len(r.active), r.w.PageSize)]
	r.active = r.active[len(chunk):]
	p.known, p.end = true, len(r.active) == 0
	if len(chunk) == 0 {
		return p
	}
	p.followers, p.err = r.followersAmong(ctx, c, chunk)
	r.position.Until = chunk[len(chunk)-1].Until
	r.position.Seen += len(chunk)
	return p
}

// latestActive is those who were active last of all, as far as they follow.
func (r *roster) latestActive(ctx context.Context, c feed.PostChange) (p page) {
	p.known, r.position.RecentDone = true, true
	chunk, err := r.w.Timelines.Latest(ctx, r.w.PageSize)
	if err != nil {
		p.err = err
		return p
	}
	r.latest = make(map[int64]struct{}, len(chunk))
	for _, a := range chunk {
		r.latest[a.User] = struct{}{}
	}
	p.followers, p.err = r.followersAmong(ctx, c, chunk)
	for _, f := range p.followers {
		if f.Sees {
			r.position.RecentLeft++
		}
	}
	return p
}

// followersAmong is those of the users who follow, in the order given.
func (r *roster) followersAmong(ctx context.Context, c feed.PostChange, chunk []timeline.Activity) ([]feed.Follower, error) {
	rank := make(map[int64]int, len(chunk))
	users := make([]int64, len(chunk))
	for i, a := range chunk {
		users[i], rank[a.User] = a.User, i
	}
	followers, err := r.w.Feed.Among(ctx, r.author.ID, c, users)
	if err != nil {
		return nil, fmt.Errorf("find followers among the active: %w", err)
	}
	slices.SortFunc(followers, func(a, b feed.Follower) int { return rank[a.ID] - rank[b.ID] })
	return followers, nil
}

// nextFollowers is the next followers; those who are not active are left out
// where there are several pages.
func (r *roster) nextFollowers(ctx context.Context, c feed.PostChange) (p page) {
	limit := r.w.PageSize
	if r.large && r.muters == nil {
		// Who changes this from now on is fenced, and looked at again.
		if r.muters, p.err = r.w.Feed.Muters(ctx, r.author.ID); p.err != nil {
			return p
		}
	}
	if p.err = r.loaded(); p.err != nil {
		return p
	}
	if r.large && !r.held {
		limit *= window
	}
	p.followers, r.position.Before, p.err = r.w.Feed.Audience(ctx, r.author.ID, c, r.muters, r.position.Before, limit)
	p.end = r.position.Before == 0
	r.position.Seen += len(p.followers)
	if p.known = r.large; !p.known || p.err != nil {
		return p
	}
	if r.held {
		p.followers = slices.DeleteFunc(p.followers, func(f feed.Follower) bool {
			_, active := r.among[f.ID]
			_, before := r.latest[f.ID]
			if before && f.Sees {
				r.position.RecentLeft--
			}
			return !active || before
		})
		return p
	}
	p.followers, p.err = r.activeOf(ctx, p.followers)
	return p
}

// activeOf is those of the followers who are active, the most recent first.
func (r *roster) activeOf(ctx context.Context, followers []feed.Follower) ([]feed.Follower, error) {
	ids := make([]int64, len(followers))
	found := make(map[int64]feed.Follower, len(followers))
	for i, f := range followers {
		ids[i], found[f.ID] = f.ID, f
	}
	active, err := r.w.Timelines.ActiveOf(ctx, ids)
	list := make([]feed.Follower, len(active))
	for i, id := range active {
		list[i] = found[id]
	}
	return list, err
}
