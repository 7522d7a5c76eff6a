package workers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed"
	"tideline/timeline"
)

// roster goes through those followers of an author who may have an inbox or a
// connection, a page at a time, from where the progress stands. It takes the
// cheapest way that the numbers of followers and of active people allow:
//
//   - far fewer are active than follow: through the active, the most recently
//     active first, asking SQL which of them follow;
//   - about as many: through the followers, with the active in memory;
//   - few followers: through them, asking Redis which of them are active.
type roster struct {
	w      *Workers
	author *ent.User
	place  place

	active []timeline.Activity // left to go through, when place.ByActivity
	among  []int64             // the active in ascending order, when they are in memory
	total  int                 // how many there are to go through, about
	seen   int
}

// clocksDiffer is by how much the clocks of two processes may, at most.
const clocksDiffer = 5 * time.Minute

// place is how far a roster has come. It is part of the job's state.
type place struct {
	Before int64 // through all followers: the next page starts before this follow

	ByActivity bool
	Latest     int64 // through the active: the latest deadline when it began,
	Until      int64 // and down to which deadline it has come
}

// page is a step of a roster.
type page struct {
	followers []feed.Follower // with the verdict on the post
	known     bool            // all of them are active
	half      bool            // half of the roster is through with it
	end       bool            // it is the last
	after     place           // where the roster goes on behind it
	err       error
}

func (w *Workers) roster(ctx context.Context, author *ent.User, at place) (*roster, error) {
	r := &roster{w: w, author: author, place: at, total: author.FollowerCount}
	if author.FollowerCount <= w.PageSize {
		return r, nil
	}
	count, err := w.Timelines.ActiveCount(ctx)
	if err != nil {
		return nil, err
	}
	begun := at != place{}
	r.place.ByActivity = at.ByActivity || !begun && count < author.FollowerCount/4
	if !r.place.ByActivity && count > 4*author.FollowerCount {
		return r, nil
	}
	// The post is committed: who is not active by now reads it from SQL.
	if !r.place.ByActivity {
		r.among, err = w.Timelines.ActiveUsers(ctx)
		return r, err
	}
	active, err := w.Timelines.Recent(ctx)
	if err != nil {
		return nil, err
	}
	if begun {
		// The earlier attempt has been through those between the two deadlines,
		// but for who has read since by a clock that is behind.
		visited := at.Latest - clocksDiffer.Milliseconds()
		active = slices.DeleteFunc(active, func(a timeline.Activity) bool {
			return a.Until > at.Until && a.Until <= visited
		})
	} else if len(active) > 0 {
		r.place.Latest = active[0].Until
	}
	r.active, r.total = active, len(active)
	return r, nil
}

// read sends the pages until the last, or the first that fails. The next page
// is read while the one before is worked on.
func (r *roster) read(ctx context.Context, post *ent.Post, to chan<- page) {
	defer close(to)
	for {
		p := r.next(ctx, post)
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

func (r *roster) next(ctx context.Context, post *ent.Post) (p page) {
	if r.place.ByActivity {
		p = r.nextActive(ctx, post)
	} else {
		p.followers, r.place.Before, p.err = r.w.Feed.Audience(ctx, r.author.ID, post, r.place.Before, r.w.PageSize)
		p.end = r.place.Before == 0
		r.seen += len(p.followers)
		if p.known = r.among != nil; p.known {
			p.followers = slices.DeleteFunc(p.followers, func(f feed.Follower) bool {
				_, active := slices.BinarySearch(r.among, f.ID)
				return !active
			})
		}
	}
	p.half, p.after = 2*r.seen >= r.total, r.place
	return p
}

func (r *roster) nextActive(ctx context.Context, post *ent.Post) (p page) {
	chunk := r.active[:min(len(r.active), r.w.PageSize)]
	r.active = r.active[len(chunk):]
	p.known, p.end = true, len(r.active) == 0
	if len(chunk) == 0 {
		return p
	}
	users := make([]int64, len(chunk))
	for i, a := range chunk {
		users[i] = a.User
	}
	if p.followers, p.err = r.w.Feed.Among(ctx, r.author.ID, post, users); p.err != nil {
		p.err = fmt.Errorf("find followers among the active: %w", p.err)
	}
	r.place.Until = chunk[len(chunk)-1].Until
	r.seen += len(chunk)
	return p
}
