package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage"
	"tideline/timeline"
)

// queueConfig makes the queue deliver lost jobs again within tenths of a second.
var queueConfig = queue.Config{
	// The small pool has more slots than jobs are ever held.
	Pools:      map[queue.Pool]int{queue.Small: 16, queue.Large: 2, queue.Relations: 2},
	Lease:      100 * time.Millisecond,
	SweepEvery: 50 * time.Millisecond,
	Resweep:    200 * time.Millisecond,
	ClaimIdle:  200 * time.Millisecond,
	StopGrace:  10 * time.Millisecond,
	// A killed attempt counts as a failure.
	MaxAttempts: 50,
}

// engine is shared by all runs on one pair of stores: serving processes, worker processes, and a
// clock that jumps.
type engine struct {
	t      *testing.T
	ctx    context.Context
	s      *storage.Stores
	db     *ent.Client
	tl     *timeline.Store
	queue  *queue.Queue
	gate   *gate
	ahead  atomic.Int64 // how far the virtual clock is ahead of the real one
	fronts [2]*feedtest.World
	pulls  [2]*feedtest.World // serving processes with a threshold at which nothing is pushed
	back   *feedtest.World    // the process of the workers
	// balance has a home.Home for every threshold between push and pull.
	balance []*home.Home
	lives   [2]*life
	// entrances are the serving processes' entrances for clients.
	entrances map[*feedtest.World]*entrance
	seen      struct{ events, resumed, invalidated int } // totals over all clients
}

// thresholds are: always push, always pull, and values that the users' follower counts cross.
var thresholds = []int{home.NeverPull, home.AlwaysPull, 1, 2, 3, 20}

func newEngine(t *testing.T, s *storage.Stores) *engine {
	e := &engine{t: t, ctx: t.Context(), s: s, gate: &gate{}, entrances: map[*feedtest.World]*entrance{}}
	s.Redis.AddHook(e.gate)
	e.db = ent.NewClient(ent.Driver(mortalSQL{s.Driver}))
	o := feedtest.Options{
		DB: e.db, Timelines: timeline.Config{InboxCap: feedtest.InboxCap, OutboxCap: feedtest.OutboxCap}, Queue: queueConfig,
		LargeAudience: 20, Now: e.now, NowEverywhere: true,
		Policy: home.Policy{MergeAll: 1, PullAbove: 2}, // two merged authors exceed MergeAll
	}
	for i := range e.fronts {
		e.fronts[i] = e.open(o)
		pulling := o
		pulling.Policy.PullAbove = home.AlwaysPull
		e.pulls[i] = e.open(pulling)
	}
	e.back = feedtest.New(t, s, o)
	e.back.Run(e.back.IDs.Run) // jobs take the time of a change from the clock of ids
	e.tl, e.queue = e.back.Timelines, e.back.Queue
	for _, above := range thresholds {
		o.Policy.PullAbove = above
		e.balance = append(e.balance, feedtest.New(t, s, o).Home)
	}
	for i := range e.lives {
		e.lives[i] = e.start()
	}
	t.Cleanup(func() {
		e.gate.release()
		for _, l := range e.lives {
			l.stop()
		}
		for _, l := range e.lives {
			<-l.ended
		}
	})
	return e
}

// now returns the virtual time of all processes, which also determines ids.
func (e *engine) now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

// advance moves the virtual clock. All processes renew their id leases, as they do four times a
// minute.
func (e *engine) advance(d time.Duration) error {
	e.ahead.Add(int64(d))
	for _, w := range slices.Concat(e.fronts[:], e.pulls[:], []*feedtest.World{e.back}) {
		if err := w.IDs.Renew(e.ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens a serving process.
func (e *engine) open(o feedtest.Options) *feedtest.World {
	w := feedtest.New(e.t, e.s, o)
	w.Run(w.IDs.Run)
	w.Run(w.Home.Run)
	e.enter(w)
	return w
}

func (e *engine) must(err error) {
	e.t.Helper()
	require.NoError(e.t, err)
}

// reset removes everything that an earlier run left.
func (e *engine) reset() {
	e.gate.release()
	// The deletion of users deletes their rows. It waits for posts that are being written, so their
	// jobs are deleted after it.
	for _, table := range []string{"users", "hidden_users", "deliveries", "read_markers", "jobs"} {
		_, err := e.s.SQL.ExecContext(e.ctx, "DELETE FROM "+table)
		e.must(err)
	}
	e.must(e.rest())
	_, err := e.s.SQL.ExecContext(e.ctx, "DELETE FROM jobs")
	e.must(err)
	e.must(wipe(e.ctx, e.s.Redis))
}

// plan describes a run: the users at the beginning, and the steps.
type plan struct {
	people  int
	crowd   int  // users who follow the first two users and never read
	friends bool // all users follow each other at the beginning
	history int  // old posts of the first user
	shy     int  // bit set of the users who read only in their own steps and after settle
	page    int
	online  bool // the clients of all users are connected at the beginning
	pulling bool // timelines are merged from outboxes instead of read from inboxes
	steps   []step
}

// run is the execution of a plan.
type run struct {
	*engine
	plan
	*model
	readers []int          // users outside the crowd
	numbers map[int64]int  // the model's number of each post, by id
	certain []map[int]bool // by viewer: posts that every read must return
	walks   map[int]*walk
	clients map[int]*client // by viewer
	talks   map[int]*talk   // by viewer
	acted   time.Time       // time of the last action
	saved   bool            // a snapshot of Redis exists
	told    []string        // the steps so far, as sentences
	turn    int
}

var names = strings.Fields("ada bob cleo dan eve fay gus hal ivy jon")

func (r *run) name(user int) string {
	if user == nobody {
		return "nobody"
	}
	if user >= len(names) {
		return fmt.Sprintf("user %d", user)
	}
	return names[user]
}

func (r *run) viewer(user int) session.Viewer {
	if user == nobody {
		return session.Viewer{}
	}
	return session.Viewer{ID: r.users[user].id}
}

// front returns the serving process of this step.
func (r *run) front() *feedtest.World {
	if r.pulling {
		return r.pulls[r.turn%len(r.pulls)]
	}
	return r.fronts[r.turn%len(r.fronts)]
}

func (r *run) say(format string, args ...any) { r.told = append(r.told, fmt.Sprintf(format, args...)) }

// play executes a plan, or as much of it as the time allows. The error describes a difference
// between the feeds and the rules.
func (e *engine) play(p plan, over func() bool) (told []string, err error) {
	e.reset()
	r := &run{engine: e, plan: p, model: newModel(), numbers: map[int64]int{}, walks: map[int]*walk{}, clients: map[int]*client{}, talks: map[int]*talk{}}
	defer func() {
		for _, c := range r.clients {
			c.cut()
		}
		for _, c := range r.talks {
			c.cut()
		}
		r.comeBack()
	}()
	r.found()
	for _, v := range r.readers {
		if !p.online {
			break
		}
		if err := r.subscribe(v); err != nil {
			return r.told, err
		}
	}
	for _, s := range p.steps {
		if over() {
			break
		}
		r.turn++
		if err := r.do(s); err != nil {
			return r.told, err
		}
		if err := errors.Join(r.look(s), r.listen(), r.listenTalks()); err != nil {
			return r.told, fmt.Errorf("after this: %w", err)
		}
	}
	r.say("all work is done")
	return r.told, r.settle()
}

// found creates the users and posts with which the plan begins.
func (r *run) found() {
	r.say("%d users, %d followers more, friends: %v, %d old posts, nobody is pushed to: %v", r.people, r.crowd, r.friends, r.history, r.pulling)
	tx, err := r.db.Tx(r.ctx)
	r.must(err)
	var rows []*ent.UserCreate
	for i := range r.people + r.crowd {
		id := ids.At(r.now().Add(-time.Hour)) + int64(i)
		r.join(id, fmt.Sprint("u", i))
		if i < r.people {
			r.readers = append(r.readers, i)
		}
		rows = append(rows, tx.User.Create().SetID(id).SetHandle(fmt.Sprint("u", i)).SetPasswordHash("-"))
	}
	r.must(tx.User.CreateBulk(rows...).Exec(r.ctx))
	for a := range r.people {
		for b := range r.people {
			if a != b && r.friends {
				r.follows[[2]int{a, b}] = true
			}
		}
	}
	for c := range r.crowd {
		for b := range 2 {
			r.follows[[2]int{r.people + c, b}] = true
		}
	}
	var edges []*ent.FollowCreate
	for pair := range maps.Keys(r.follows) {
		edges = append(edges, tx.Follow.Create().SetFollowerID(r.users[pair[0]].id).SetFolloweeID(r.users[pair[1]].id))
	}
	if len(edges) > 0 {
		r.must(tx.Follow.CreateBulk(edges...).Exec(r.ctx))
	}
	var posts []*ent.PostCreate
	for i := range r.history {
		id := ids.At(r.now().Add(-time.Hour)) + int64(i+1)<<12
		r.record(newNote(id, 0, schema.Public))
		posts = append(posts, tx.Post.Create().SetID(id).SetAuthorID(r.users[0].id).SetText(texts[0]).SetVisibility(schema.Public))
	}
	for chunk := range slices.Chunk(posts, 100) {
		r.must(tx.Post.CreateBulk(chunk...).Exec(r.ctx))
	}
	for i, u := range r.users {
		change := tx.User.Update().Where(user.ID(u.id)).
			SetFollowerCount(r.follows.count(1, i)).SetFollowingCount(r.follows.count(0, i))
		if i == 0 && r.history > 0 {
			change.SetPostCount(r.history).SetPublicPostCount(r.history).SetLastPostID(r.posts[r.history-1].id)
		}
		r.must(change.Exec(r.ctx))
	}
	r.must(tx.Commit())
	for v := range r.users {
		for _, p := range r.timeline(v) {
			r.certain[v][p] = true
		}
	}
}

// join adds a user to the model.
func (r *run) join(id int64, handle string) {
	r.users = append(r.users, person{id: id, handle: handle})
	r.certain = append(r.certain, map[int]bool{})
}

// record adds a post to the model.
func (r *run) record(n note) int {
	r.posts = append(r.posts, n)
	r.numbers[n.id] = len(r.posts) - 1
	return len(r.posts) - 1
}
