package workers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/internal/batch"
	"tideline/queue"
	"tideline/timeline"
)

// followerScans starts follower scans. It is safe for concurrent use.
type followerScans struct {
	db         *ent.Client
	visibility *visibility.Reader
	activity   *timeline.ActiveUsers
	masters    *timeline.Masters
	pageSize   int // the configured size; an attempt may use smaller pages
	audiences  *batch.Loader[visibility.Followed, visibility.Page]

	set       batch.Shared[activeList[map[int64]struct{}]]
	byRecency batch.Shared[activeList[[]timeline.Activity]]
}

// newFollowerScans returns the followerScans of a process. pageSize is the configured page size.
func newFollowerScans(db *ent.Client, v *visibility.Reader, t *timeline.Store, pageSize int) *followerScans {
	return &followerScans{db: db, visibility: v, activity: t.Active, masters: t.Masters, pageSize: pageSize, audiences: batch.NewLoader(v.Followers.Audiences)}
}

// smallAudience is the largest follower count for which fan-outs share SQL statements and
// pipelines.
const smallAudience = 250

// followerScan goes through the followers of an author who may have an inbox or a connection. It
// reads page by page from a position, the most recently active followers first. The numbers of
// followers and active users decide how it walks:
//
//   - Far fewer users are active than follow: it walks the active users and asks SQL
//     which of them follow.
//   - About as many are active: it begins with one page of the most recently active
//     followers. Then it walks all followers, with the set of active users in memory.
//   - Far more are active: it walks the followers, several pages at a time, and asks
//     Redis which of them are active, and how recently.
//   - The followers fit into one page: it reads that page and asks nothing.
type followerScan struct {
	*followerScans
	scanStart
	position scanPosition
	large    bool // more than one page

	active     []timeline.Activity   // the users still to visit, if position.ByActivity
	inMemory   bool                  // the scan uses activeSet
	loaded     func() error          // waits until activeSet is complete
	activeSet  map[int64]struct{}    // all active users
	recentSet  map[int64]struct{}    // the most recently active, whose page was first
	objections visibility.Objections // to the author, if large
	total      int                   // about how many users the scan visits
}

const (
	// readsPerLookUp is how many followers an index range reads in the time of one look-up.
	readsPerLookUp = 20
	// maxActiveShare is the largest number of active users per follower for which the set of active
	// users is read into memory.
	maxActiveShare = 4
	// sortedPages is how many pages of followers are read and sorted by activity at a time.
	sortedPages = 4
)

// maxClockSkew is the largest difference between the clocks of two processes that is allowed for.
const maxClockSkew = 5 * time.Minute

// scanPosition is how far a followerScan has come. It is part of the state of a job, so its JSON
// names must not change.
type scanPosition struct {
	// Before is the follow below which the next page of followers begins; 0 at the beginning.
	Before int64 `json:"Before"`
	// RecentDone says that the page of the most recently active followers is done. RecentLeft is
	// how many of them the scan will meet again among all followers.
	RecentDone bool `json:"Latest"`
	RecentLeft int  `json:"Ahead"`

	Seen int `json:"Seen"` // how many users the scan has visited, followers or not

	// ByActivity says that the scan walks the active users by the time until which they are active, from
	// From downwards. It has reached Until.
	ByActivity bool  `json:"ByActivity"`
	From       int64 `json:"From"`
	Until      int64 `json:"Until"`
}

// followerPage is a step of a follower scan.
type followerPage struct {
	Followers []visibility.Follower // with the verdict on the post
	AllActive bool                  // all of them are known to be active
	Left      error                 // an Unreached with the users whose activity is unknown
	Half      bool                  // half of the scan is done with this page
	End       bool                  // this page is the last
	After     scanPosition          // where the scan continues
	Err       error
	rest      int // about how many users follow after this page
}

// scanStart says which follower scan to begin.
type scanStart struct {
	Job      *queue.Job // of the attempt
	Author   *ent.User
	Post     int64 // the post that is fanned out
	Part     followerPart
	At       scanPosition // where to continue
	PageSize int
}

// begin returns the follower scan.
//
// Cost: none for one page, otherwise a round trip to Redis, and a list of the active users if it walks them.
func (s *followerScans) begin(ctx context.Context, w scanStart) (*followerScan, error) {
	author, at := w.Author, w.At
	r := &followerScan{followerScans: s, scanStart: w, position: at, total: author.FollowerCount}
	// An earlier attempt may have had smaller pages, or the author more followers.
	if r.large = author.FollowerCount > w.PageSize || at.ByActivity || w.Part != (followerPart{}); !r.large {
		return r, nil
	}
	var count int
	err := s.masters.WithinLimit(ctx, func(ctx context.Context) (err error) {
		count, err = s.activity.Count(ctx)
		return err
	})
	if err != nil {
		return r.withoutActivity(err)
	}
	begun := at != scanPosition{}
	r.position.ByActivity = at.ByActivity || !begun && author.FollowerCount > s.pageSize && count < author.FollowerCount/readsPerLookUp
	if !r.position.ByActivity {
		// An earlier attempt may have visited some of the most recently active followers, in the order
		// of the follows: their page is skipped.
		r.position.RecentDone = begun
		r.inMemory = count <= maxActiveShare*author.FollowerCount
		return r, nil
	}
	// The post is committed: users who become active later read it from SQL.
	active, err := activeUsers(ctx, r, &s.byRecency, s.activity.ByRecency)
	if err != nil {
		return r.withoutActivity(s.masters.MarkUnreached(ctx, err))
	}
	if !begun && len(active) > 0 {
		r.position.From = active[0].Until
	}
	// An earlier attempt has done the users between the two deadlines. The margin allows for users
	// who have visited since through a process whose clock is behind.
	visited := at.From - maxClockSkew.Milliseconds()
	for _, a := range active {
		if done := begun && a.Until > at.Until && a.Until <= visited; !done && w.Part.has(a.User) {
			r.active = append(r.active, a)
		}
	}
	r.total = at.Seen + len(r.active)
	return r, nil
}

// withoutActivity makes the scan walk all followers, because a list of active users is not
// available. It returns err unless the cause is a part of a cluster that cannot be reached.
func (r *followerScan) withoutActivity(err error) (*followerScan, error) {
	if !timeline.SomeUnreached(err) {
		return nil, err
	}
	if r.position.ByActivity {
		r.position = scanPosition{}
	}
	r.active, r.inMemory, r.total = nil, false, r.Author.FollowerCount
	return r, nil
}

// restCount returns about how many users the scan has yet to visit.
func (r *followerScan) restCount() int { return r.total - r.position.Seen }

// first reads only the first page, of a scan that may be divided after it.
func (r *followerScan) first(ctx context.Context, c visibility.PostChange) followerPage {
	r.loaded = func() error { return nil }
	return r.next(ctx, c)
}

// read sends pages to the channel until the last one or the first one that fails. It reads the next
// page while the receiver works on the previous one.
func (r *followerScan) read(ctx context.Context, c visibility.PostChange, to chan<- followerPage) {
	defer close(to)
	var loading errgroup.Group
	if r.inMemory {
		loading.Go(func() (err error) {
			// The post is committed: users who become active later read it from SQL.
			r.activeSet, err = activeUsers(ctx, r, &r.set, r.activity.All)
			return err
		})
	}
	r.loaded = loading.Wait
	defer func() { _ = loading.Wait() }() // nextFollowers returns its error
	for {
		giveWay := r.Job.GiveWay(ctx)
		p := r.next(ctx, c)
		if r.large {
			giveWay()
		}
		select {
		case to <- p:
		case <-ctx.Done():
			return
		}
		if p.End || p.Err != nil {
			return
		}
	}
}

// next reads the next page.
func (r *followerScan) next(ctx context.Context, c visibility.PostChange) (p followerPage) {
	switch {
	case r.position.ByActivity:
		p = r.nextActive(ctx, c)
	case r.inMemory && !r.position.RecentDone:
		p = r.recentFollowers(ctx, c)
	default:
		p = r.nextFollowers(ctx, c)
	}
	p.Half, p.After, p.rest = 2*r.position.Seen >= r.total, r.position, r.restCount()
	return p
}

// nextActive reads the followers among the next active users.
func (r *followerScan) nextActive(ctx context.Context, c visibility.PostChange) (p followerPage) {
	chunk := r.active[:min(len(r.active), r.PageSize)]
	r.active = r.active[len(chunk):]
	p.AllActive, p.End = true, len(r.active) == 0
	if len(chunk) == 0 {
		return p
	}
	p.Followers, p.Err = r.followersAmong(ctx, c, chunk)
	r.position.Until = chunk[len(chunk)-1].Until
	r.position.Seen += len(chunk)
	return p
}

// recentFollowers reads the followers among the most recently active users.
func (r *followerScan) recentFollowers(ctx context.Context, c visibility.PostChange) (p followerPage) {
	p.AllActive, r.position.RecentDone = true, true
	chunk, err := r.activity.Recent(ctx, r.PageSize)
	if err != nil {
		if p.Err = r.masters.MarkUnreached(ctx, err); timeline.SomeUnreached(p.Err) {
			p.Err = nil // they are visited with the other followers
		}
		return p
	}
	r.recentSet = make(map[int64]struct{}, len(chunk))
	for _, a := range chunk {
		r.recentSet[a.User] = struct{}{}
	}
	p.Followers, p.Err = r.followersAmong(ctx, c, chunk)
	for _, f := range p.Followers {
		if f.Counts {
			r.position.RecentLeft++
		}
	}
	return p
}

// followersAmong returns the followers among the users, in the order of the users.
func (r *followerScan) followersAmong(ctx context.Context, c visibility.PostChange, chunk []timeline.Activity) ([]visibility.Follower, error) {
	rank := make(map[int64]int, len(chunk))
	users := make([]int64, len(chunk))
	for i, a := range chunk {
		users[i], rank[a.User] = a.User, i
	}
	followers, err := r.visibility.Followers.Among(ctx, r.Author, c, users)
	if err != nil {
		return nil, fmt.Errorf("find followers among the active: %w", err)
	}
	slices.SortFunc(followers, func(a, b visibility.Follower) int { return rank[a.ID] - rank[b.ID] })
	return followers, nil
}

// nextFollowers reads the next followers. For a large audience it returns only the active ones.
func (r *followerScan) nextFollowers(ctx context.Context, c visibility.PostChange) (p followerPage) {
	limit := r.PageSize
	if r.large && r.objections == nil {
		// Users who mute or unmute the author from now on are fenced and checked again at the end.
		if r.objections, p.Err = r.visibility.Followers.Objections(ctx, r.Author.ID); p.Err != nil {
			return p
		}
	}
	if p.Err = r.loaded(); p.Err != nil {
		if _, p.Err = r.withoutActivity(r.masters.MarkUnreached(ctx, p.Err)); p.Err != nil {
			return p
		}
		r.loaded = func() error { return nil }
	}
	if r.large && !r.inMemory {
		limit *= sortedPages
	}
	p.Followers, r.position.Before, p.Err = r.audience(ctx, c, limit)
	p.End = r.position.Before == 0
	r.position.Seen += len(p.Followers)
	p.Followers = slices.DeleteFunc(p.Followers, func(f visibility.Follower) bool { return !r.Part.has(f.ID) })
	if p.AllActive = r.large; !p.AllActive || p.Err != nil {
		return p
	}
	if r.inMemory {
		p.Followers = slices.DeleteFunc(p.Followers, func(f visibility.Follower) bool {
			_, active := r.activeSet[f.ID]
			_, done := r.recentSet[f.ID]
			if done && f.Counts {
				r.position.RecentLeft--
			}
			return !active || done
		})
		return p
	}
	if p.Followers, p.Err = r.activeOf(ctx, p.Followers); timeline.SomeUnreached(p.Err) {
		p.Left, p.Err = p.Err, nil
	}
	return p
}

// audience reads followers from the position, like visibility.Followers.Audience. For a large audience
// it passes the objections. First reads of small audiences share a statement.
func (r *followerScan) audience(ctx context.Context, c visibility.PostChange, limit int) ([]visibility.Follower, int64, error) {
	if r.Job.Again || r.large || r.position.Before != 0 || r.Author.FollowerCount > smallAudience {
		return r.visibility.Followers.Audience(ctx, r.Author.ID, c, r.objections, r.position.Before, r.Part.After, limit)
	}
	p, err := r.audiences.Load(ctx, visibility.Followed{Author: r.Author.ID, Change: c, Limit: limit})
	return p.Followers, p.Next, err
}

// activeOf returns the active ones among the followers, most recently active first.
func (r *followerScan) activeOf(ctx context.Context, followers []visibility.Follower) ([]visibility.Follower, error) {
	ids := make([]int64, len(followers))
	found := make(map[int64]visibility.Follower, len(followers))
	for i, f := range followers {
		ids[i], found[f.ID] = f.ID, f
	}
	active, err := r.activity.Of(ctx, ids)
	list := make([]visibility.Follower, len(active))
	for i, id := range active {
		list[i] = found[id]
	}
	return list, err
}
