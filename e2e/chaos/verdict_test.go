package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/e2e/worldtest"
)

// truth is the contents of SQL.
type truth struct {
	posts                map[int64]row
	follow, block, mutes map[[2]int64]bool
}

type row struct {
	links
	text, visibility string
}

func (w *world) truth(ctx context.Context) (truth, error) {
	tr := truth{posts: map[int64]row{}}
	posts, err := w.db.SQL.QueryContext(ctx, `SELECT p.id, p.author_id, p.text, p.visibility,
		CASE WHEN p.repost_of IS NULL THEN coalesce(p.root_id, 0) ELSE 0 END, coalesce(p.parent_author_id, 0), coalesce(p.repost_of, 0) FROM posts p`)
	if err != nil {
		return tr, err
	}
	defer posts.Close()
	for posts.Next() {
		var id int64
		var r row
		if err := posts.Scan(&id, &r.author, &r.text, &r.visibility, &r.root, &r.answered, &r.original); err != nil {
			return tr, err
		}
		tr.posts[id] = r
	}
	if err := posts.Err(); err != nil {
		return tr, err
	}
	if tr.follow, err = w.pairs(ctx, `SELECT follower_id, followee_id FROM follows`); err != nil {
		return tr, err
	}
	if tr.block, err = w.pairs(ctx, `SELECT blocker_id, blocked_id FROM blocks`); err != nil {
		return tr, err
	}
	tr.mutes, err = w.pairs(ctx, `SELECT muter_id, muted_id FROM mutes`)
	return tr, err
}

// pairs returns the rows of a query that selects two ids.
func (w *world) pairs(ctx context.Context, query string) (map[[2]int64]bool, error) {
	rows, err := w.db.SQL.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[[2]int64]bool{}
	for rows.Next() {
		var pair [2]int64
		if err := rows.Scan(&pair[0], &pair[1]); err != nil {
			return nil, err
		}
		all[pair] = true
	}
	return all, rows.Err()
}

// rule returns the rule for the present.
func (tr truth) rule() rule {
	pairs := map[string]map[[2]int64]bool{"follow": tr.follow, "block": tr.block, "mute": tr.mutes}
	holds := func(kind string, from, to int64) bool { return pairs[kind][[2]int64{from, to}] }
	return rule{
		post:  func(id int64) (links, bool) { r, ok := tr.posts[id]; return r.links, ok },
		has:   func(id int64, v values) bool { return tr.posts[id].visibility == visibilities[v] },
		holds: holds,
		lacks: func(kind string, from, to int64) bool { return !holds(kind, from, to) },
	}
}

// timeline returns the ids of the posts in the viewer's home timeline, newest first.
func (tr truth) timeline(viewer int64) []int64 {
	is := tr.rule()
	return tr.list(func(id int64) bool { return is.home(viewer, id) })
}

// profile returns the ids of the author's posts that the viewer may see, newest first.
func (tr truth) profile(viewer, author int64) []int64 {
	is := tr.rule()
	return tr.list(func(id int64) bool { return tr.posts[id].author == author && is.profile(viewer, id) })
}

func (tr truth) list(belongs func(id int64) bool) (ids []int64) {
	for id := range tr.posts {
		if belongs(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int64) int { return int(b - a) })
	return ids
}

// finding is an error in one list.
type finding struct {
	post  int64  // the post concerned, or 0 if the order of the list is wrong
	what  string // for example "missing from"
	kind  string // kind of list: timeline, profile, client
	whose string
}

// differences compares the contents of a list with the expected contents.
func differences(kind, whose string, want, have []int64) (found []finding) {
	count := map[int64]int{}
	for _, id := range have {
		count[id]++
	}
	for _, id := range want {
		if count[id] == 0 {
			found = append(found, finding{id, "missing from", kind, whose})
		}
		count[id]--
	}
	for id, n := range count {
		if n > 0 && slices.Contains(want, id) {
			found = append(found, finding{id, "more than once in", kind, whose})
		} else if n > 0 {
			found = append(found, finding{id, "should not be in", kind, whose})
		}
	}
	if len(found) == 0 && !slices.Equal(want, have) {
		found = append(found, finding{0, "another order in", kind, whose})
	}
	return found
}

// settle waits until the system is well; see the method well.
func (w *world) settle(ctx context.Context, bound time.Duration) error {
	now := time.Now()
	return eventually(ctx, bound, func() error { return w.well(ctx, now) })
}

// settleQueue waits until the queue has been empty for two seconds. It makes failed jobs that
// would wait for more than a minute due at once.
func (w *world) settleQueue(ctx context.Context, bound time.Duration) error {
	since := time.Now() // since when no job has been seen
	return eventually(ctx, bound, func() error {
		_, err := w.db.SQL.ExecContext(ctx, `UPDATE jobs SET due_at = now() WHERE NOT dead AND attempts > 0 AND due_at > now() + interval '1 minute'`)
		if err != nil {
			return err
		}
		left, err := w.count(ctx, `SELECT count(*) FROM jobs WHERE NOT dead AND kind NOT LIKE 'canary%'`)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d jobs are left", left)
		}
		if err != nil {
			since = time.Now()
		} else if time.Since(since) < 2*time.Second {
			err = errors.New("the queue is empty just now")
		}
		return err
	})
}

// compare reads all timelines and profiles through the API. It compares them, and the posts
// that the clients hold, with SQL.
func (w *world) compare(ctx context.Context) ([]finding, error) {
	tr, err := w.truth(ctx)
	if err != nil {
		return nil, err
	}
	viewers, authors := w.users, w.users
	for _, p := range w.probers {
		viewers = append(viewers[:len(viewers):len(viewers)], p.accounts...)
	}
	found := make([][]finding, len(viewers)+1)
	var g errgroup.Group
	g.SetLimit(4)
	for i, viewer := range viewers {
		server := w.servers[i%len(w.servers)]
		of := authors
		if i >= len(w.users) {
			of = []worldtest.User{viewer}
		}
		g.Go(func() error {
			have, err := viewer.Timeline(ctx, server.Process)
			if err != nil {
				return fmt.Errorf("timeline of %s: %w", viewer.Handle, err)
			}
			found[i] = differences("timeline", "of "+viewer.Handle, tr.timeline(viewer.ID), postIDs(have))
			for _, author := range of {
				have, err := viewer.Posts(ctx, server.Process, author)
				if err != nil {
					return fmt.Errorf("profile of %s: %w", author.Handle, err)
				}
				found[i] = append(found[i], differences("profile", fmt.Sprintf("of %s for %s", author.Handle, viewer.Handle),
					tr.profile(viewer.ID, author.ID), postIDs(have))...)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	clients, err := w.crowd.Report()
	if err != nil {
		return nil, err
	}
	for i, c := range clients {
		u := w.users[i%len(w.users)]
		want, have := tr.timeline(u.ID), postIDs(c.Held)
		slices.SortFunc(have, func(a, b int64) int { return int(b - a) })
		found[len(viewers)] = append(found[len(viewers)], differences("client", w.clientName(i), want, have)...)
	}
	return slices.Concat(found...), nil
}

func (w *world) clientName(i int) string {
	if i < w.steady {
		return "of " + w.users[i].Handle
	}
	return fmt.Sprintf("of %s, restless", w.users[i%len(w.users)].Handle)
}

func postIDs(ids []string) []int64 {
	list := make([]int64, len(ids))
	for i, id := range ids {
		list[i] = worldtest.PostID(id)
	}
	return list
}

// report describes the findings, one line per post: when it was accepted, the faults at that
// time, and all findings about it.
func (w *world) report(found []finding) (lines []string) {
	type list struct{ what, kind string }
	byPost := map[int64]map[list][]string{}
	for _, f := range found {
		if byPost[f.post] == nil {
			byPost[f.post] = map[list][]string{}
		}
		of := list{f.what, f.kind}
		byPost[f.post][of] = append(byPost[f.post][of], f.whose)
	}
	for _, id := range slices.Sorted(maps.Keys(byPost)) {
		var wrong []string
		for of, whose := range byPost[id] {
			slices.Sort(whose)
			wrong = append(wrong, fmt.Sprintf("%s %d %ss: %s", of.what, len(whose), of.kind, strings.Join(whose, "; ")))
		}
		slices.Sort(wrong)
		line := strings.Join(wrong, ". ")
		if id != 0 {
			line = fmt.Sprintf("post %d %s %s", id, w.describe(id), line)
		}
		lines = append(lines, line)
	}
	return lines
}

// histories describes, for each client with findings, the events that the client received
// about those posts, and when the client was told to read again.
func (w *world) histories(found []finding) (lines []string, err error) {
	told, err := w.crowd.Told()
	if err != nil {
		return nil, err
	}
	for i, events := range told {
		var again, of []string
		for _, e := range events {
			if e.Kind == "invalidated" {
				again = append(again, w.since(e.Time()))
			}
		}
		for _, f := range found {
			if f.kind == "client" && f.whose == w.clientName(i) {
				of = append(of, w.story(events, f.post))
			}
		}
		if of != nil {
			lines = append(lines, fmt.Sprintf("the client %s was told to read again %v; of posts: %s", w.clientName(i), again, strings.Join(of, ", ")))
		}
	}
	return lines, nil
}

// story describes a client's events about a post.
func (w *world) story(events []worldtest.Told, post int64) string {
	text := fmt.Sprint(post)
	for _, e := range events {
		if worldtest.PostID(e.Post) == post {
			text += fmt.Sprintf(" %s %s", e.Kind, w.since(e.Time()))
		}
	}
	return text
}

// since formats a time relative to the start of the test.
func (w *world) since(at time.Time) string { return fmt.Sprintf("+%.1f s", at.Sub(w.began).Seconds()) }

// summary counts the findings by the faults at the time when their posts were accepted.
func (w *world) summary(found []finding) string {
	type cause struct{ faults, what, kind string }
	posts, lists := map[cause]map[int64]bool{}, map[cause]int{}
	for _, f := range found {
		c := cause{w.faults.around(w.acceptedAt(f.post)), f.what, f.kind}
		if posts[c] == nil {
			posts[c] = map[int64]bool{}
		}
		posts[c][f.post] = true
		lists[c]++
	}
	var all []string
	for c, n := range lists {
		all = append(all, fmt.Sprintf("beside %s: %d posts %s %ss, %d times in all", c.faults, len(posts[c]), c.what, c.kind, n))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// acceptedAt returns when the API acknowledged a post, or zero if it did not.
func (w *world) acceptedAt(id int64) time.Time {
	w.load.mu.Lock()
	p := w.load.accepted[id]
	w.load.mu.Unlock()
	if p != nil {
		return p.at
	}
	for _, p := range w.probers {
		p.mu.Lock()
		at := p.posts[id].at
		p.mu.Unlock()
		if !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// describe describes a post: its author, its visibility and changes, and when it was accepted.
func (w *world) describe(id int64) string {
	w.load.mu.Lock()
	p := w.load.accepted[id]
	w.load.mu.Unlock()
	if p != nil {
		return fmt.Sprintf("(user%d, %s; accepted at %s", p.author-1, w.load.ledger.story(id, w.began), w.beside(p.at))
	}
	for _, p := range w.probers {
		p.mu.Lock()
		probe, found := p.posts[id]
		p.mu.Unlock()
		if found {
			return fmt.Sprintf("(%s, PUBLIC; accepted at %s", probe.by.Handle, w.beside(probe.at))
		}
	}
	return "(nobody was told that it was accepted)"
}

func (w *world) beside(at time.Time) string {
	return fmt.Sprintf("%s, +%.1f s, beside %s)", at.Format(clock), at.Sub(w.began).Seconds(), w.faults.around(at))
}
