package oracle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/timeline"
)

type entUser = ent.User

// look reads what the readers may see and compares it with the model.
func (r *run) look(s step) error {
	for i, v := range r.readers {
		if r.users[v].hidden || r.shy>>i&1 == 1 && i != s.a%len(r.readers) {
			continue
		}
		if err := r.lookAs(v); err != nil {
			return err
		}
	}
	// The other reads, in turn.
	owner := r.readers[r.turn%len(r.readers)]
	v := nobody
	if r.turn%4 > 0 {
		if v = r.readers[r.turn/2%len(r.readers)]; r.users[v].hidden {
			v = nobody
		}
	}
	if err := errors.Join(r.direct(v), r.author(v, owner), r.public(v)); err != nil {
		return err
	}
	if len(r.posts) > 0 {
		p := max(len(r.posts)-1-r.turn/3%8, 0)
		if err := errors.Join(r.threads(v, p), r.threads(v, r.rootOf(p)), r.mays(v)); err != nil {
			return err
		}
	}
	if r.turn%2 == 0 || r.users[owner].hidden {
		return nil
	}
	return r.lists(owner)
}

// lookAs reads the timeline of one viewer.
func (r *run) lookAs(v int) error {
	size := 100
	if r.turn%4 == 0 { // many small pages take longer
		size = r.page
	}
	got, err := r.read(v, size)
	if err != nil {
		return err
	}
	for _, p := range got {
		if !r.gets(v, p) {
			return fmt.Errorf("%s's timeline shows #%d, which is hidden: %v", r.name(v), p, got)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(r.certain[v])) {
		if !slices.Contains(got, p) {
			return fmt.Errorf("%s's timeline does not show #%d, which was there or was brought in: %v", r.name(v), p, got)
		}
	}
	return nil
}

// direct reads all posts by id. The result is exact at any moment.
func (r *run) direct(v int) error {
	ids := make([]int64, len(r.posts))
	for i, p := range r.posts {
		ids[i] = p.id
	}
	posts, err := r.front().Feed.Posts(r.ctx, r.viewer(v), ids)
	if err != nil {
		return err
	}
	for i, p := range posts {
		if sees := r.sees(v, i); (p != nil) != sees {
			return fmt.Errorf("%s asks for #%d: visible is %v, not %v", r.name(v), i, p != nil, sees)
		}
		if p != nil && !r.counts(p.LikeCount, r.likes, 1, i) {
			return fmt.Errorf("#%d has %d likes, not %d", i, p.LikeCount, r.likesOf(i))
		}
		if p != nil {
			if err := r.refers(p, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// author reads an author's posts. The result is exact at any moment.
func (r *run) author(v, author int) error {
	got, err := r.pages(max(r.page, 3), false, func(p paging.Page) (*paging.Connection[ent.Post], error) {
		return r.front().Feed.UserPosts(r.ctx, r.viewer(v), r.users[author].id, p)
	})
	if err != nil {
		return fmt.Errorf("%s's profile, read by %s: %w", r.name(author), r.name(v), err)
	}
	want, plain := r.profile(v, author), 0
	for _, p := range want {
		if r.posts[p].plain() {
			plain++
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s's profile shows %s %v, not %v", r.name(author), r.name(v), got, want)
	} else if n, err := r.postCount(v, author); err != nil || n != plain {
		return errors.Join(err, fmt.Errorf("%s's profile tells %s of %d posts, not %d", r.name(author), r.name(v), n, plain))
	}
	return nil
}

// public reads the newest public posts. For a user the result is exact at any moment. An anonymous viewer may not be shown the
// newest ones yet.
func (r *run) public(v int) error {
	got, err := r.pages(max(r.page, 3), false, func(p paging.Page) (*paging.Connection[ent.Post], error) {
		return r.front().Feed.PublicPosts(r.ctx, r.viewer(v), p)
	})
	if err != nil {
		return fmt.Errorf("the public posts, read by %s: %w", r.name(v), err)
	}
	want := r.publicTo(v)
	for _, p := range got {
		if !slices.Contains(want, p) {
			return fmt.Errorf("the public posts have #%d, which is hidden from %s: %v", p, r.name(v), got)
		}
	}
	if v != nobody && len(r.posts) <= visibility.MostLooked && !slices.Equal(got, want) {
		return fmt.Errorf("the public posts are %v for %s, not %v", got, r.name(v), want)
	}
	return nil
}

// postCount returns how many posts of the author the viewer may see, without replies and reposts.
func (r *run) postCount(v, author int) (int, error) {
	id := []int64{r.users[author].id}
	found, err := r.front().Directory.Users(r.ctx, id)
	if err != nil {
		return 0, err
	}
	if hidden := r.users[author].hidden; hidden || found[0] == nil {
		if (found[0] == nil) != hidden {
			err = fmt.Errorf("%s is hidden: %t, but not here", r.name(author), hidden)
		}
		return 0, err
	}
	relations, err := r.front().Feed.Relations(r.ctx, r.viewer(v), id)
	if err != nil {
		return 0, err
	}
	return visibility.PostCount(r.viewer(v).ID, relations[0], found[0]), nil
}

// lists compares the relations and counts of one user.
func (r *run) lists(u int) error {
	f, id := r.front(), r.users[u].id
	found, err := f.Directory.Users(r.ctx, []int64{id})
	if err != nil {
		return err
	}
	posts := len(r.which(func(p int) bool { return r.posts[p].author == u && r.posts[p].plain() && !r.posts[p].deleted }))
	got := [3]int{found[0].FollowerCount, found[0].FollowingCount, found[0].PostCount}
	if want := [3]int{r.follows.count(1, u), r.follows.count(0, u), posts}; !r.counts(got[0], r.follows, 1, u) ||
		!r.counts(got[1], r.follows, 0, u) || got[2] != posts {
		return fmt.Errorf("%s has followers, followees, posts %v, not %v", r.name(u), got, want)
	}
	all := 100
	page := paging.Page{First: &all}
	for _, l := range []struct {
		what  string
		rel   relation
		place int
		read  func() (*paging.Connection[ent.User], error)
	}{
		{"followers", r.follows, 1, func() (*paging.Connection[ent.User], error) { return f.Feed.Followers(r.ctx, id, page) }},
		{"followees", r.follows, 0, func() (*paging.Connection[ent.User], error) { return f.Feed.Following(r.ctx, id, page) }},
		{"requests", r.requests, 1, func() (*paging.Connection[ent.User], error) {
			return f.Feed.FollowRequests(r.ctx, r.viewer(u), id, page)
		}},
	} {
		c, err := l.read()
		if err != nil {
			return err
		}
		listed, want := map[int64]bool{}, map[int64]bool{}
		for _, u := range c.Nodes() {
			listed[u.ID] = true
		}
		for pair := range l.rel {
			if pair[l.place] == u && !r.users[pair[1-l.place]].hidden {
				want[r.users[pair[1-l.place]].id] = true
			}
		}
		if !maps.Equal(listed, want) {
			return fmt.Errorf("%s has %d %s, not %d", r.name(u), len(listed), l.what, len(want))
		}
	}
	return nil
}

// read reads the viewer's timeline downwards.
func (r *run) read(v, size int) ([]int, error) { return r.readFrom(v, size, home.Latest, false) }

func (r *run) readFrom(v, size int, order home.Order, upwards bool) ([]int, error) {
	got, err := r.pages(size, upwards, func(p paging.Page) (*paging.Connection[ent.Post], error) {
		return r.front().Home.Timeline(r.ctx, r.viewer(v), p, order)
	})
	if err != nil {
		err = fmt.Errorf("%s's timeline: %w", r.name(v), err)
	}
	return got, err
}

// pages reads a list page by page and returns its entries in order.
func (r *run) pages(size int, upwards bool, read func(paging.Page) (*paging.Connection[ent.Post], error)) (all []int, err error) {
	all = []int{}
	p := paging.Page{First: &size}
	if upwards {
		p = paging.Page{Last: &size}
	}
	if len(r.posts) > 100 {
		size = max(size, 70)
	}
	for {
		c, err := read(p)
		if err != nil {
			return nil, err
		}
		page := make([]int, len(c.Edges))
		for i, e := range c.Edges {
			n, known := r.numbers[e.Node.ID]
			if !known {
				return nil, fmt.Errorf("post %d is none of this run", e.Node.ID)
			}
			page[i] = n
		}
		more := c.HasNextPage
		if upwards {
			all, more = slices.Concat(page, all), c.HasPreviousPage
		} else {
			all = append(all, page...)
		}
		if len(page) > size || more && len(page) < size {
			return nil, fmt.Errorf("a page of %d has %d entries, and more follow: %v", size, len(page), more)
		}
		if !more {
			seen := map[int]bool{}
			for _, p := range all {
				if seen[p] {
					return nil, fmt.Errorf("#%d is there twice: %v", p, all)
				}
				seen[p] = true
			}
			return all, nil
		}
		if upwards {
			p.Before = &c.Edges[0].Cursor
		} else {
			p.After = &c.Edges[size-1].Cursor
		}
	}
}

// walk is a viewer's walk down the timeline, which takes several steps of the run.
type walk struct {
	size  int
	after *string
	must  map[int]bool // posts that the walk must reach
	last  int64
}

// stroll reads the next page of the viewer's walk, or begins a walk.
func (r *run) stroll(v, n int) error {
	w := r.walks[v]
	if w == nil {
		w = &walk{size: 1 + n%4, must: maps.Clone(r.certain[v]), last: 1 << 53}
		if len(r.posts) > 100 {
			w.size = 40
		}
		r.walks[v] = w
	}
	r.say("%s reads a page of %d more", r.name(v), w.size)
	c, err := r.front().Home.Timeline(r.ctx, r.viewer(v), paging.Page{First: &w.size, After: w.after}, home.Latest)
	if err != nil {
		return err
	}
	for _, e := range c.Edges {
		p := r.numbers[e.Node.ID]
		if !r.gets(v, p) || e.Node.ID >= w.last {
			return fmt.Errorf("%s comes by #%d, which is hidden or out of order", r.name(v), p)
		}
		w.last = e.Node.ID
		delete(w.must, p)
		w.after = &e.Cursor
	}
	if err := r.countsUnread(v); err != nil {
		return err
	}
	if c.HasNextPage {
		return nil
	}
	delete(r.walks, v)
	if len(w.must) > 0 {
		return fmt.Errorf("%s walked past %v, which had been there all the time", r.name(v), slices.Sorted(maps.Keys(w.must)))
	}
	return nil
}

// countsUnread checks the viewer's number of unread posts against two bounds. It never counts
// hidden posts, and always counts posts that have been there all the time.
func (r *run) countsUnread(v int) error {
	if r.users[v].hidden {
		return nil
	}
	fewest, most, own := 0, 0, 0
	for p, post := range r.posts {
		if post.id <= r.users[v].marker || !r.gets(v, p) {
			continue
		}
		if post.author == v {
			own++
			continue
		}
		most++
		if r.certain[v][p] {
			fewest++
		}
	}
	got, err := r.front().Home.Unread.Count(r.ctx, r.viewer(v))
	fewest = max(min(fewest+own, feedtest.InboxCap)-own, 0) // own posts are among the newest but are not counted
	if err == nil && (got < fewest || got > most) {
		err = fmt.Errorf("%s has %d unread, not %d to %d", r.name(v), got, fewest, most)
	}
	return err
}

// settle waits until no job is outstanding, and then compares everything exactly.
func (r *run) settle() error {
	if err := r.drain(); err != nil {
		return err
	}
	if err := r.farewell(); err != nil {
		return err
	}
	if err := r.advance(11 * time.Second); err != nil { // a dead builder loses its build
		return err
	}
	for _, v := range r.readers {
		if r.users[v].hidden {
			continue
		}
		if err := errors.Join(r.exact(v), r.direct(v), r.lists(v), r.mays(v)); err != nil {
			return fmt.Errorf("when all work is done: %w", err)
		}
		for p := max(len(r.posts)-6, 0); p < len(r.posts); p++ {
			if err := r.threads(v, p); err != nil {
				return fmt.Errorf("when all work is done: %w", err)
			}
		}
	}
	if err := errors.Join(r.caughtUp(), r.talksCaughtUp()); err != nil {
		return fmt.Errorf("when all work is done: %w", err)
	}
	return nil
}

// exact compares all reads of one viewer, without an inbox and with one.
func (r *run) exact(v int) error {
	want := r.timeline(v)
	same := func(how string, got []int, err error) error {
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s's timeline %s is %v, not %v", r.name(v), how, got, want)
		}
		return err
	}
	got, err := r.read(v, r.page)
	if err := same("at first", got, err); err != nil {
		return err
	}
	if err := r.built(v); err != nil {
		return err
	}
	got, err = r.read(v, r.page)
	if err := same("from the inbox", got, err); err != nil {
		return err
	}
	got, err = r.readFrom(v, r.page, home.Latest, true)
	if err := same("upwards", got, err); err != nil {
		return err
	}
	for _, p := range want {
		r.certain[v][p] = true
	}
	ids, covered, err := r.tl.Feeds.Page(r.ctx, timeline.Inbox(r.users[v].id), timeline.Range{Limit: 10 * feedtest.InboxCap})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if p := r.numbers[id]; !r.belongs(v, p) {
			return fmt.Errorf("%s's inbox (%s) has #%d, which does not belong there", r.name(v), covered.State, p)
		}
	}
	if found, err := r.front().Audit.Verify(r.ctx, r.users[v].id, 0); err != nil || len(found.Missing)+len(found.Extra) > 0 {
		return errors.Join(err, fmt.Errorf("%s's timeline does not verify: %+v", r.name(v), found))
	}
	unread, err := r.front().Home.Unread.Count(r.ctx, r.viewer(v))
	if err == nil && unread != r.unread(v) {
		err = fmt.Errorf("%s has %d unread, not %d", r.name(v), unread, r.unread(v))
	}
	if err != nil {
		return err
	}
	want = r.ranked(v)
	got, err = r.readFrom(v, max(r.page, 3), home.Ranked, false)
	return same("by rank", got, err)
}

// built waits until reads of the viewer's timeline come from the inbox.
func (r *run) built(v int) error {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		one := 1
		if _, err := r.front().Home.Timeline(r.ctx, r.viewer(v), paging.Page{First: &one}, home.Latest); err != nil {
			return err
		}
		_, covered, err := r.tl.Feeds.Page(r.ctx, timeline.Inbox(r.users[v].id), timeline.Range{})
		if err != nil || covered.State == timeline.Ready {
			return err
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("%s's inbox is not built", r.name(v))
		}
	}
}
