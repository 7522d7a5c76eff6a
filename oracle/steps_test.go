package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/job"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/queue"
	"tideline/timeline"
)

// step is one event of a run. Its numbers index what exists, modulo the count, so
// that a step has a meaning after any other steps.
type step struct {
	do    string
	a, b  int  // two different readers
	n     int  // a post, a visibility or another number
	quiet bool // wait for the jobs that follow from it
}

// kinds are the steps with their frequencies.
var kinds = []struct {
	name   string
	weight int
}{
	{"post", 14}, {"narrow or widen", 8}, {"delete", 4}, {"like", 3}, {"unlike", 1},
	{"follow", 12}, {"unfollow", 6}, {"accept", 4}, {"reject", 1}, {"approve", 3},
	{"block", 3}, {"unblock", 3}, {"mute", 5}, {"unmute", 5}, {"mark read", 3}, {"sign up", 1},

	{"hold", 8}, {"stall", 2}, {"release", 4}, {"kill", 4}, {"pause", 2}, {"repeat", 5},
	{"wipe", 2}, {"snapshot", 3}, {"roll back", 3}, {"lose", 4}, {"dead builder", 2}, {"balance", 7}, {"wait", 3}, {"away", 1},
	{"walk", 6}, {"settle", 3},

	{"subscribe", 8}, {"events", 4}, {"cut", 4}, {"cut off", 2}, {"back", 2}, {"pass", 2},
}

var steps = rapid.Custom(func(t *rapid.T) step {
	var all []string
	for _, k := range kinds {
		for range k.weight {
			all = append(all, k.name)
		}
	}
	n := rapid.IntRange(0, 1<<20)
	return step{
		do: rapid.SampledFrom(all).Draw(t, "do"), a: n.Draw(t, "a"), b: n.Draw(t, "b"), n: n.Draw(t, "n"),
		quiet: rapid.Bool().Draw(t, "quiet"),
	}
})

// scene is a series of steps that makes a race: a worker is stopped on its way,
// something changes, the other workers do the jobs of the change, and the stopped
// worker goes on.
func scene(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 3)
		b := (a + rapid.IntRange(1, people-1).Draw(t, "b")) % people
		// by is a step of x towards y, on the newest post if it is on any.
		by := func(label string, do []string, x, y int) step {
			return step{do: rapid.SampledFrom(do).Draw(t, label), a: x, b: (y - x - 1 + people) % people, n: n.Draw(t, "n"), quiet: true}
		}
		follow, end := []string{"follow", "unmute", "accept", "unblock"}, []string{"unfollow", "mute", "block"}
		all := slices.Concat([]string{"narrow or widen", "narrow or widen", "delete"}, follow, end, end)
		x, y := b, a
		if rapid.Bool().Draw(t, "by the author") {
			x, y = a, b
		}
		list := []step{
			{do: rapid.SampledFrom([]string{"hold", "hold", "stall"}).Draw(t, "how"), n: rapid.SampledFrom([]int{1, 1, 0, 2, 3, 4}).Draw(t, "after")},
			by("cause", slices.Concat([]string{"post", "post", "post", "post", "narrow or widen", "narrow or widen", "narrow or widen"}, follow, end[:2]), a, b),
			by("meanwhile", all, x, y),
		}
		if rapid.Bool().Draw(t, "twice") {
			list = append(list, by("then", all, x, y))
		}
		return append(list, step{do: "release", quiet: true})
	})
}

// lapse is a series of steps in which a worker stalls in the middle of a change, its heir
// finishes, the change is undone, and then the worker goes on by what it read before.
func lapse(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		author := rapid.IntRange(0, people-1).Draw(t, "author")
		reader := (author + rapid.IntRange(1, people-1).Draw(t, "reader")) % people
		to := func(v schema.Visibility) int { return slices.Index(visibilities, string(v)) }
		toAuthor := (author - reader - 1 + people) % people
		by := func(do string) step { return step{do: do, a: reader, b: toAuthor, quiet: true} }
		shown := step{do: "narrow or widen", a: author, n: to(schema.Public), quiet: true}
		hidden := step{do: "narrow or widen", a: author, n: to(schema.Private), quiet: true}
		change := rapid.SampledFrom([][]step{
			{hidden, shown}, {hidden, shown}, {shown, hidden}, {by("mute"), by("unmute")}, {by("unfollow"), by("follow")},
		}).Draw(t, "change")
		return []step{
			by("follow"), {do: "post", a: author, n: to(schema.Followers), quiet: true},
			{do: "stall", n: rapid.IntRange(0, 4).Draw(t, "after")}, change[0], change[1], {do: "release", quiet: true},
		}
	})
}

// absence is a series of steps in which a process is cut off from Redis while its
// clients are connected, something happens, and time passes.
func absence(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 100)
		list := []step{{do: "subscribe", a: a}, {do: "cut off"}}
		list = append(list, rapid.SliceOfN(steps, 1, 4).Draw(t, "meanwhile")...)
		list = append(list, step{do: "post", a: n.Draw(t, "by"), n: n.Draw(t, "for"), quiet: rapid.Bool().Draw(t, "quiet")},
			step{do: "pass", n: n.Draw(t, "long")}, step{do: "events", a: a})
		if rapid.Bool().Draw(t, "moves") {
			list = append(list, step{do: "cut", a: a}, step{do: "subscribe", a: a})
		}
		return append(list, step{do: "back"})
	})
}

// journey is a series of steps in which a client loses its connection and resumes.
func journey(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 100)
		return slices.Concat(
			[]step{{do: "subscribe", a: a}}, rapid.SliceOfN(steps, 1, 3).Draw(t, "before"),
			[]step{{do: "cut", a: a, n: n.Draw(t, "events")}}, rapid.SliceOfN(steps, 1, 6).Draw(t, "away"),
			[]step{{do: "subscribe", a: a}},
		)
	})
}

// decline is a series of steps between a snapshot of Redis and its return.
var decline = rapid.Custom(func(t *rapid.T) []step {
	between := rapid.SliceOfN(steps, 1, 6).Draw(t, "between")
	back := step{do: "roll back", n: rapid.IntRange(0, 100).Draw(t, "n"), quiet: rapid.Bool().Draw(t, "quiet")}
	return slices.Concat([]step{{do: "snapshot"}}, between, []step{back})
})

var plans = rapid.Custom(func(t *rapid.T) plan {
	p := plan{
		people:  rapid.IntRange(2, 5).Draw(t, "people"),
		crowd:   rapid.SampledFrom([]int{0, 0, 0, 0, 30}).Draw(t, "crowd"),
		friends: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "friends"),
		history: rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 130, 130, 320}).Draw(t, "history"),
		shy:     rapid.IntRange(0, 31).Draw(t, "shy"),
		page:    rapid.SampledFrom([]int{100, 20, 7, 3, 2, 1}).Draw(t, "page"),
		online:  rapid.Bool().Draw(t, "online"),
		pulling: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "pulling"),
	}
	// Slices of slices, because one slice is mostly short.
	part := rapid.OneOf(scene(p.people), scene(p.people), lapse(p.people), decline, absence(p.people), journey(p.people), rapid.SliceOfN(steps, 1, 10), rapid.SliceOfN(steps, 1, 10))
	p.steps = slices.Concat(rapid.SliceOfN(part, 1, max(mostSteps/10, 1)).Draw(t, "steps")...)
	return p
})

var visibilities = schema.Visibility("").Values()

// do does the step, here and in the model, and returns an error where they differ.
func (r *run) do(s step) error {
	a := r.readers[s.a%len(r.readers)]
	b := r.readers[(s.a%len(r.readers)+1+s.b%(len(r.readers)-1))%len(r.readers)]
	p := -1
	if len(r.posts) > 0 {
		// Most steps are about the youngest posts.
		p = max(len(r.posts)-1-s.n/len(visibilities)%8, 0)
	}
	if err := r.social(s, a, b, p); err != nil {
		return err
	}
	r.acted = time.Now()
	if err := r.mishap(s, a, p); err != nil {
		return err
	}
	r.forget()
	if s.quiet && !r.gate.paused.Load() {
		r.say("  (and what follows from it)")
		return r.rest()
	}
	return nil
}

// social does the steps of users.
func (r *run) social(s step, a, b, p int) error {
	f, v := r.front(), r.viewer(a)
	between := func(doing string, call func(context.Context, account.Viewer, int64) error, want string) error {
		r.say("%s %s %s", r.name(a), doing, r.name(b))
		return r.checkRefusal(call(r.ctx, v, r.users[b].id), want)
	}
	// relate is call without the user in its result.
	relate := func(call func(context.Context, account.Viewer, int64) (*entUser, error)) func(context.Context, account.Viewer, int64) error {
		return func(ctx context.Context, v account.Viewer, id int64) error { _, err := call(ctx, v, id); return err }
	}
	switch s.do {
	case "sign up":
		if len(r.readers) > 6 {
			return nil
		}
		r.say("somebody signs up")
		auth, err := f.Accounts.SignUp(r.ctx, fmt.Sprint("new", r.turn), "a long password", "")
		if err != nil {
			return err
		}
		r.join(auth.User.ID)
		r.readers = append(r.readers, len(r.users)-1)
	case "post":
		vis := schema.Visibility(visibilities[s.n%len(visibilities)])
		made, err := f.Feed.CreatePost(r.ctx, v, feed.Draft{Text: "hello", Visibility: &vis})
		if err != nil {
			return err
		}
		n := r.record(note{id: made.ID, author: a, visibility: vis})
		r.say("%s posts #%d for %s", r.name(a), n, vis)
		r.certain[a][n] = true
	case "follow":
		want, begun := r.follow(a, b)
		if begun {
			defer r.shows(a, b)
		}
		return between("follows", relate(f.Feed.Follow), want)
	case "unfollow":
		r.unfollow(a, b)
		return between("unfollows", relate(f.Feed.Unfollow), "")
	case "accept":
		want, begun := r.accept(a, b)
		if begun {
			defer r.shows(a, b)
		}
		return between("accepts", relate(f.Feed.AcceptFollower), want)
	case "reject":
		return between("rejects", relate(f.Feed.RejectFollower), r.reject(a, b))
	case "block":
		r.block(a, b)
		return between("blocks", relate(f.Feed.Block), "")
	case "unblock":
		delete(r.blocks, [2]int{a, b})
		return between("unblocks", relate(f.Feed.Unblock), "")
	case "mute":
		r.mutes[[2]int{a, b}] = true
		return between("mutes", relate(f.Feed.Mute), "")
	case "unmute":
		if r.mutes[[2]int{a, b}] {
			defer r.shows(a, b)
		}
		delete(r.mutes, [2]int{a, b})
		return between("unmutes", relate(f.Feed.Unmute), "")
	case "approve":
		approves := s.n%2 == 0
		r.say("%s approves followers: %v", r.name(a), approves)
		r.users[a].approves = approves
		_, err := f.Accounts.UpdateProfile(r.ctx, v, account.Profile{ApprovesFollowers: &approves})
		return err
	case "mark read":
		return r.markRead(a, s.n)
	default:
		if p >= 0 {
			return r.onPost(s, a, p)
		}
	}
	return nil
}

// onPost does the steps of users on posts: mostly on their own, where only authors
// may act.
// authors may.
func (r *run) onPost(s step, a, p int) error {
	f, post := r.front(), r.posts[p]
	if (s.do == "narrow or widen" || s.do == "delete") && s.b%8 > 0 {
		a = post.author
	}
	v := r.viewer(a)
	switch s.do {
	case "narrow or widen":
		vis := schema.Visibility(visibilities[s.n%len(visibilities)])
		r.say("%s makes #%d %s", r.name(a), p, vis)
		want := r.change(a, p)
		if want == "" {
			r.posts[p].visibility = vis
		}
		_, err := f.Feed.SetVisibility(r.ctx, v, post.id, vis)
		return r.checkRefusal(err, want)
	case "delete":
		r.say("%s deletes #%d", r.name(a), p)
		want := r.change(a, p)
		if want == "" {
			r.remove(p)
		}
		return r.checkRefusal(f.Feed.DeletePost(r.ctx, v, post.id), want)
	case "like", "unlike":
		r.say("%s %ss #%d", r.name(a), s.do, p)
		want, call := "", f.Feed.LikePost
		if s.do == "unlike" {
			call = f.Feed.UnlikePost
		}
		if !r.sees(a, p) {
			want = notFound
		} else if delete(r.likes, [2]int{a, p}); s.do == "like" {
			r.likes[[2]int{a, p}] = true
		}
		got, err := call(r.ctx, v, post.id)
		if err == nil && got.LikeCount != r.likesOf(p) {
			return fmt.Errorf("#%d has %d likes, not %d", p, got.LikeCount, r.likesOf(p))
		}
		return r.checkRefusal(err, want)
	}
	return nil
}

// markRead marks an entry of the newest page as read.
func (r *run) markRead(a, n int) error {
	page, err := r.front().Home.Timeline(r.ctx, r.viewer(a), paging.Page{}, home.Latest)
	if err != nil || len(page.Edges) == 0 {
		return err
	}
	at := page.Edges[n%len(page.Edges)]
	r.say("%s marks #%d as read", r.name(a), r.numbers[at.Node.ID])
	r.users[a].marker = max(r.users[a].marker, at.Node.ID)
	_, err = r.front().Home.MarkRead(r.ctx, r.viewer(a), at.Cursor)
	return err
}

// checkRefusal compares the result of a call with the model's refusal.
func (r *run) checkRefusal(err error, want string) error {
	if got := string(refusal.CodeOf(err)); err != nil && got == "" {
		return err
	} else if got != want {
		return fmt.Errorf("this was answered %q, not %q", got, want)
	}
	return nil
}

// shows records that the viewer did something that adds b's posts to the timeline
// at once.
func (r *run) shows(viewer, b int) {
	for _, p := range r.timeline(viewer) {
		if r.posts[p].author == b {
			r.certain[viewer][p] = true
		}
	}
}

// forget removes the hidden posts from those that a read must have.
func (r *run) forget() {
	for v := range r.users {
		for p := range r.certain[v] {
			if !r.gets(v, p) {
				delete(r.certain[v], p)
				if w := r.walks[v]; w != nil {
					delete(w.must, p)
				}
			}
		}
	}
}

// mishap does a mishap.
func (r *run) mishap(s step, a, p int) error {
	switch s.do {
	case "hold", "stall":
		if after := s.n % 6; r.gate.arm(after, s.do == "stall") {
			r.say("a worker will %s at inbox access %d from now", map[string]string{"hold": "stop", "stall": "hang"}[s.do], after)
		}
	case "release":
		r.say("workers go on")
		r.gate.release()
	case "pause":
		r.say("workers take no more jobs")
		r.gate.paused.Store(true)
	case "kill":
		i := s.n % len(r.lives)
		r.say("worker %d is killed", i)
		r.lives[i].kill()
		r.lives[i] = r.start()
	case "repeat":
		return r.repeat(s, a, p)
	case "wipe":
		r.say("Redis is wiped")
		return wipe(r.ctx, r.s.Redis)
	case "snapshot":
		return r.snapshot()
	case "roll back":
		return r.rollBack(s.n)
	case "lose":
		return r.lose(s.n, a)
	case "dead builder":
		r.say("a builder of %s's inbox dies", r.name(a))
		_, _, err := r.tl.Begin(r.ctx, timeline.Inbox(r.users[a].id))
		return err
	case "balance":
		i := s.n % len(thresholds)
		r.say("authors are balanced, push up to %d", thresholds[i])
		if s.b%3 > 0 {
			if err := r.jump(31 * time.Second); err != nil {
				return err
			}
		}
		return r.balance[i].Rebalance(r.ctx)
	case "wait":
		return r.jump([]time.Duration{3 * time.Second, 11 * time.Second, 40 * time.Second}[s.n%3])
	case "away":
		// A fence lasts for an hour: no worker may be at work that long.
		if err := r.settle(); err != nil {
			return err
		}
		for _, c := range r.clients {
			c.cut()
		}
		return r.jump(80 * time.Hour)
	case "settle":
		r.say("all work is done")
		return r.settle()
	case "walk":
		return r.stroll(a, s.n)
	default:
		return r.onClient(s, a)
	}
	return nil
}

// onClient does the steps of clients, and of the processes that they are connected to.
func (r *run) onClient(s step, a int) error {
	switch s.do {
	case "subscribe":
		return r.subscribe(a)
	case "events", "cut":
		c := r.clients[a]
		if c == nil || c.at == nil {
			return nil
		}
		if s.do == "events" {
			return r.take(c, 1000)
		}
		most := s.n % 3
		r.say("%s takes up to %d events, and the connection breaks", r.name(a), most)
		err := r.take(c, most)
		c.cut()
		return err
	case "cut off":
		r.leave()
	case "back":
		if r.comeBack() {
			r.say("all processes hear from Redis")
		}
	case "pass":
		return r.pass([]time.Duration{100 * time.Second, 150 * time.Second, 5 * time.Minute, 15 * time.Minute, 3 * time.Hour}[s.n%5])
	}
	return nil
}

// pass lets more time pass than a step of a job may take: no attempt is in the middle
// of one, unless its process has stalled.
func (r *run) pass(d time.Duration) error {
	if r.gate.caught(false) > 0 {
		r.say("workers go on")
		r.gate.release()
	}
	working := func(l *life) bool { return l.busy() && !l.stalled.Load() }
	for begun := time.Now(); r.gate.paused.Load() && slices.ContainsFunc(r.lives[:], working); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			return errors.New("what was begun does not come to an end")
		}
	}
	if !r.gate.paused.Load() {
		if err := r.rest(); err != nil {
			return err
		}
	}
	return r.jump(d)
}

// jump lets time pass.
func (r *run) jump(d time.Duration) error {
	r.say("%s pass", d)
	return r.advance(d)
}

// repeat enqueues a job that was done before, or that no change asks for.
func (r *run) repeat(s step, a, p int) error {
	kind, payload := job.RelationChanged, any(job.Relation{Users: [2]int64{r.users[a].id, r.viewer(r.readers[s.b%len(r.readers)]).ID}})
	switch {
	case s.n%4 == 1:
		kind, payload = job.AuthorReturns, job.Author{Author: r.users[a].id}
	case s.n%4 > 1 && p >= 0:
		kind = []string{job.PostCreated, job.PostChanged}[s.n%2]
		payload = job.Post{Post: r.posts[p].id, Author: r.users[r.posts[p].author].id}
	case a == r.readers[s.b%len(r.readers)]:
		return nil
	}
	r.say("the job %s is done once more: %+v", kind, r.worded(payload))
	tx, err := r.db.Tx(r.ctx)
	if err != nil {
		return err
	}
	if err := r.queue.Enqueue(r.ctx, tx, queue.Small, kind, payload); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *run) worded(payload any) string {
	user := func(id int64) string {
		for i, u := range r.users {
			if u.id == id {
				return r.name(i)
			}
		}
		return "?"
	}
	switch j := payload.(type) {
	case job.Relation:
		return user(j.Users[0]) + " and " + user(j.Users[1])
	case job.Author:
		return user(j.Author)
	case job.Post:
		return fmt.Sprintf("#%d by %s", r.numbers[j.Post], user(j.Author))
	}
	return ""
}

// lose deletes a key of Redis.
func (r *run) lose(n, a int) error {
	inbox, outbox := timeline.Inbox(r.users[a].id), timeline.Outbox(r.users[a].id)
	if n%7 >= 5 {
		what := map[int]string{5: "who is active", 6: "whose posts are the newest"}[n%7]
		r.say("Redis forgets %s", what)
		r.deafen()
		for shard := range 16 {
			if err := r.s.Redis.Del(r.ctx, fmt.Sprintf("tl:{%s%d}", map[int]string{5: "a", 6: "n"}[n%7], shard)).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	key := []string{inbox.String() + ":z", inbox.String() + ":m", outbox.String() + ":z", outbox.String() + ":m", inbox.String() + ":m"}[n%7]
	r.say("Redis loses %s of %s", map[string]string{
		inbox.String() + ":z": "the entries of the inbox", inbox.String() + ":m": "the coverage of the inbox",
		outbox.String() + ":z": "the entries of the outbox", outbox.String() + ":m": "the coverage of the outbox",
	}[key], r.name(a))
	return r.s.Redis.Del(r.ctx, key).Err()
}

func wipe(ctx context.Context, rdb redis.UniversalClient) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	}
	return rdb.FlushAll(ctx).Err()
}
