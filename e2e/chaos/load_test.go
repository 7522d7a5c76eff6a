package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	tideline "tideline/clients/go"
	"tideline/e2e/worldtest"
)

const (
	// think is the average pause between two actions of a user.
	think = 1500 * time.Millisecond
	// impatience is the timeout of an attempt. It is longer than a server takes to refuse
	// a call.
	impatience = 8 * time.Second
	// giveUp bounds the retries of an action. Each attempt goes to a random server.
	giveUp = 4 * time.Minute
)

// load generates the users' actions during the faults and records what the users read.
type load struct {
	servers []*worldtest.Process
	users   []worldtest.User
	ledger  *ledger

	mu       sync.Mutex
	busy     map[[2]int64]bool // pairs of users with an unfinished change of their relation
	accepted map[int64]*accepted
	newest   []*accepted // the last of them
	seen     []page
	actions  int
	failed   []string // abandoned actions
}

// accepted is a post that the API acknowledged.
type accepted struct {
	id int64
	links
	text    string
	at      time.Time
	deleted bool // deleted, or about to be deleted
	taken   bool // a change of the post is in progress
}

// page is a page that a user read.
type page struct {
	viewer       int64
	home         bool // home timeline; otherwise a profile
	posts        []int64
	began, ended time.Time
}

func newLoad(servers []*worldtest.Process, users []worldtest.User) *load {
	return &load{servers: servers, users: users, ledger: newLedger(),
		busy: map[[2]int64]bool{}, accepted: map[int64]*accepted{}}
}

// live makes the users act until the channel acting is closed. It returns when the last
// action is done or abandoned.
func (l *load) live(ctx context.Context, acting <-chan struct{}, seed uint64) {
	var all sync.WaitGroup
	for i, u := range l.users {
		a := &actor{load: l, user: u, rng: rand.New(rand.NewPCG(seed, uint64(i))), reposted: map[int64]bool{}}
		all.Go(func() {
			for {
				select {
				case <-acting:
					return
				case <-time.After(time.Duration((0.5 + a.rng.Float64()) * float64(think))):
				}
				a.act(ctx)
				l.mu.Lock()
				l.actions++
				l.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// actor performs the actions of one user.
type actor struct {
	*load
	user  worldtest.User
	rng   *rand.Rand
	mine  []*accepted
	wrote int
	// reposted are the originals that the user has reposted. A repeated repost would return the first.
	reposted map[int64]bool
}

var visibilities = map[values]string{gone: "deleted", public: "PUBLIC", followers: "FOLLOWERS", mutuals: "MUTUALS", private: "PRIVATE"}

func (a *actor) visibility() values {
	return []values{public, public, followers, followers, followers, mutuals, mutuals, private}[a.rng.IntN(8)]
}

// settled reports whether only posts change the user's timeline: the user does not change
// relations, and nobody blocks the user. Changed relations make a client read again, which
// would hide events that it missed.
func settled(u worldtest.User) bool { return u.ID%2 == 0 }

func (a *actor) act(ctx context.Context) {
	other := a.users[a.rng.IntN(len(a.users))]
	n := a.rng.IntN(100)
	if n >= 78 && (settled(a.user) || n == 90 && settled(other)) {
		n = a.rng.IntN(78)
	}
	switch {
	case n < 29:
		a.post(ctx, 0)
	case n < 40:
		a.post(ctx, a.recent())
	case n < 45:
		a.repost(ctx, a.recent())
	case n < 67:
		a.read(ctx, other)
	case n < 75:
		a.changePost(ctx, "setPostVisibility")
	case n < 78:
		a.changePost(ctx, "deletePost")
	case n < 86:
		a.relate(ctx, other, "follow")
	case n < 90:
		a.relate(ctx, other, "unfollow")
	case n < 91:
		a.relate(ctx, other, "block")
	case n < 94:
		a.relate(ctx, other, "unblock")
	case n < 96:
		a.relate(ctx, other, "mute")
	default:
		a.relate(ctx, other, "unmute")
	}
}

// call repeats an operation until it is done, a server refuses it permanently, or giveUp has
// passed. It passes the result of each attempt to attempted, which reports whether the
// operation is done.
func (a *actor) call(ctx context.Context, query string, variables map[string]any, data any, attempted func(error) (done bool)) bool {
	for deadline := time.Now().Add(giveUp); ; time.Sleep(200 * time.Millisecond) {
		attempt, cancel := context.WithTimeout(ctx, impatience)
		err := a.servers[a.rng.IntN(len(a.servers))].Call(attempt, a.user.Token, query, variables, data)
		cancel()
		if attempted(err) {
			return true
		}
		if forGood := answered(err) && !slices.Contains([]string{"INTERNAL", "TIMEOUT"}, tideline.CodeOf(err)); forGood ||
			time.Now().After(deadline) || ctx.Err() != nil {
			a.mu.Lock()
			a.failed = append(a.failed, fmt.Sprintf("%s: %s %v: %v", a.user.Handle, query, variables, err))
			a.mu.Unlock()
			return false
		}
	}
}

// answered reports whether a call got an answer, so that no server still works on it.
func answered(err error) bool { return err == nil || errors.Is(err, worldtest.ErrRefused) }

// post writes a post, or a reply to the post replyTo unless that is 0.
func (a *actor) post(ctx context.Context, replyTo int64) {
	a.wrote++
	v, text := a.visibility(), fmt.Sprintf("%s writes for the %d. time", a.user.Handle, a.wrote)
	variables := map[string]any{"t": text, "v": visibilities[v]}
	p := &accepted{links: links{author: a.user.ID}, text: text}
	if replyTo != 0 {
		variables["r"] = worldtest.GlobalID("Post", replyTo)
		a.mu.Lock()
		parent := a.accepted[replyTo]
		p.root, p.answered = cmp.Or(parent.root, parent.id), parent.author
		a.mu.Unlock()
	}
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	if a.call(ctx, `mutation($t: String!, $v: Visibility!, $r: ID) { createPost(input: {text: $t, visibility: $v, idempotencyKey: $t, replyTo: $r}) { post { id } } }`,
		variables, &data, func(err error) bool { return err == nil }) {
		a.posted(p, data.CreatePost.Post.ID, v)
	}
}

// repost passes the original on, unless it is 0 or the user has done so before.
func (a *actor) repost(ctx context.Context, original int64) {
	if original == 0 || a.reposted[original] {
		return
	}
	a.reposted[original] = true
	v := a.visibility()
	var data struct {
		Repost struct{ Post struct{ ID string } }
	}
	if a.call(ctx, `mutation($p: ID!, $v: Visibility!) { repost(input: {postId: $p, visibility: $v}) { post { id } } }`,
		map[string]any{"p": worldtest.GlobalID("Post", original), "v": visibilities[v]}, &data, func(err error) bool { return err == nil }) {
		a.posted(&accepted{links: links{author: a.user.ID, original: original}}, data.Repost.Post.ID, v)
	}
}

// posted records a post that the API acknowledged.
func (a *actor) posted(p *accepted, id string, v values) {
	p.id, p.at = worldtest.PostID(id), time.Now()
	a.mine = append(a.mine, p)
	a.ledger.posted(p.id, p.links, v)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted[p.id] = p
	a.newest = append(a.newest, p)
}

// recent returns one of the last posts that are not reposts, or 0. The user may be unable to see it: a
// refusal is as good as an answer.
func (a *actor) recent() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.newest) == 0 {
		return 0
	}
	p := a.newest[max(0, len(a.newest)-1-a.rng.IntN(20))]
	return cmp.Or(p.original, p.id)
}

// changePost hides, shows or deletes one of the user's last ten posts, unless another change
// of it is in progress.
func (a *actor) changePost(ctx context.Context, change string) {
	if len(a.mine) == 0 {
		return
	}
	i := max(0, len(a.mine)-1-a.rng.IntN(10))
	p, to := a.mine[i], gone
	if change != "deletePost" {
		to = a.visibility()
	}
	if !a.take(p, to == gone) {
		return
	}
	defer a.release(p)
	if to == gone {
		a.mine = slices.Delete(a.mine, i, i+1)
	}
	a.change(ctx, p, to)
}

// take reserves the post for a change, until release. It returns false if the post is already
// taken or deleted. forGood marks the post as deleted.
func (l *load) take(p *accepted, forGood bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.taken || p.deleted {
		return false
	}
	p.taken, p.deleted = true, forGood
	return true
}

func (l *load) release(p *accepted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.taken = false
}

// takeNewest takes up to n of the newest posts.
func (l *load) takeNewest(n int) (taken []*accepted) {
	l.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.accepted))
	all := make([]*accepted, len(ids))
	for i, id := range ids {
		all[i] = l.accepted[id]
	}
	l.mu.Unlock()
	for _, p := range slices.Backward(all) {
		if len(taken) < n && l.take(p, false) {
			taken = append(taken, p)
		}
	}
	return taken
}

// change changes the visibility of one of the user's posts, or deletes it if to is gone. The
// caller has taken the post.
func (a *actor) change(ctx context.Context, p *accepted, to values) {
	query := `mutation($p: ID!, $v: Visibility!) { setPostVisibility(input: {postId: $p, visibility: $v}) { post { id } } }`
	variables := map[string]any{"p": worldtest.GlobalID("Post", p.id), "v": visibilities[to]}
	if to == gone {
		query = `mutation($p: ID!) { deletePost(input: {postId: $p}) { deletedPostId } }`
		delete(variables, "v")
	}
	attempted := a.ledger.begin(to, fact{"post", p.id, 0})
	tried := false
	a.call(ctx, query, variables, nil, func(err error) bool {
		// A repeated deletion fails if the first attempt already deleted the post.
		done := err == nil || tried && answered(err) && to == gone && a.isGone(ctx, p.id)
		attempted(done, answered(err))
		tried = true
		return done
	})
}

// isGone reports whether the API says that the user's own post no longer exists.
func (a *actor) isGone(ctx context.Context, post int64) bool {
	ctx, cancel := context.WithTimeout(ctx, impatience)
	defer cancel()
	var data struct{ Post *struct{ ID string } }
	err := a.servers[a.rng.IntN(len(a.servers))].Call(ctx, a.user.Token, `query($p: ID!) { post(id: $p) { id } }`,
		map[string]any{"p": worldtest.GlobalID("Post", post)}, &data)
	return err == nil && data.Post == nil
}

// relate changes the relation between the user and another user, unless a change of it is in
// progress. verb is the name of the mutation.
func (a *actor) relate(ctx context.Context, other worldtest.User, verb string) {
	pair := [2]int64{min(a.user.ID, other.ID), max(a.user.ID, other.ID)}
	a.mu.Lock()
	blocked := a.ledger.now(fact{"block", a.user.ID, other.ID})|a.ledger.now(fact{"block", other.ID, a.user.ID}) != no
	taken := a.busy[pair] || other.ID == a.user.ID || verb == "follow" && blocked
	if !taken {
		a.busy[pair] = true
	}
	a.mu.Unlock()
	if taken {
		return
	}
	to, kind := yes, verb
	if len(verb) > 2 && verb[:2] == "un" {
		to, kind = no, verb[2:]
	}
	attempts := []func(bool, bool){a.ledger.begin(to, fact{kind, a.user.ID, other.ID})}
	if verb == "block" {
		attempts = append(attempts, a.ledger.begin(no, fact{"follow", a.user.ID, other.ID}, fact{"follow", other.ID, a.user.ID}))
	}
	a.call(ctx, fmt.Sprintf(`mutation($u: ID!) { %s(input: {userId: $u}) { relationship { following } } }`, verb),
		map[string]any{"u": worldtest.GlobalID("User", other.ID)}, nil, func(err error) bool {
			for _, attempted := range attempts {
				attempted(err == nil, answered(err))
			}
			return err == nil
		})
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, pair)
}

// by returns an actor for the author of the post.
func (l *load) by(p *accepted, rng *rand.Rand) *actor {
	return &actor{load: l, user: l.users[p.author-1], rng: rng}
}

// read reads the first page of the user's timeline or of the other user's profile. It does
// not retry.
func (a *actor) read(ctx context.Context, other worldtest.User) {
	ctx, cancel := context.WithTimeout(ctx, impatience)
	defer cancel()
	p := page{viewer: a.user.ID, home: a.rng.IntN(2) == 0, began: time.Now()}
	var data struct {
		Timeline worldtest.List
		User     struct{ Posts worldtest.List }
	}
	query, variables := `{ timeline(first: 50) { nodes { id } } }`, map[string]any(nil)
	if !p.home {
		query = `query($h: String!) { user(handle: $h) { posts(first: 50) { nodes { id } } } }`
		variables = map[string]any{"h": other.Handle}
	}
	if a.servers[a.rng.IntN(len(a.servers))].Call(ctx, a.user.Token, query, variables, &data) != nil {
		return // the prober counts refusals
	}
	p.ended = time.Now()
	for _, n := range append(data.Timeline.Nodes, data.User.Posts.Nodes...) {
		p.posts = append(p.posts, worldtest.PostID(n.ID))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, p)
}
