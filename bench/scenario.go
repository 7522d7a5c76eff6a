package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// scenarios has the relative frequency of each kind of operation in each scenario.
var scenarios = map[string]map[string]int{
	"mixed":         {reads: 9, posts: 1},
	"read-heavy":    {reads: 99, posts: 1},
	"celebrity":     {reads: 9, celebrityPosts: 1},
	"login-storm":   {logIns: 1},
	"follow-storm":  {follows: 8, untrackedPosts: 1, reads: 1},
	"conversations": {reads: 27, posts: 1, replies: 1, reposts: 1},
	hotSpot:         {follows: 4, likes: 4, untrackedPosts: 1, reads: 1},
}

// hotSpot is the scenario whose load goes to one author first, and then to all.
const hotSpot = "hot-spot"

// mixable has the kinds that --mix can name.
var mixable = map[string]string{"reads": reads, "posts": posts, "replies": replies, "reposts": reposts}

// Kinds of operations.
const (
	reads          = "timeline reads"  // the first page of any user
	posts          = "posts"           // of any user
	celebrityPosts = "celebrity posts" // of the most followed user
	untrackedPosts = "author's posts"  // of the most followed user too, but deliveries are not checked, since followers come and go
	replies        = "replies"         // of any user to the first post of any user; deliveries are not checked, since not all followers want them
	reposts        = "reposts"         // repost the first post of any user, or undo it; deliveries are not checked
	logIns         = "log-ins"         // followed by a page and a subscription that ends at once
	follows        = "follows"         // follow the most followed user, or unfollow if the user already follows
	likes          = "likes"           // like a post of the most followed user, or unlike it if the user already likes it
	liveDeliveries = "live deliveries" // not an operation: the deliveries of posts
)

const (
	underWay = 2000        // most concurrent operations; any more fail
	rest     = time.Minute // longest wait for the deliveries of a step
)

// frequencies returns the relative frequency of each kind of operation of the run.
func (o Options) frequencies() map[string]int {
	if len(o.Mix) == 0 {
		return scenarios[o.Scenario]
	}
	mix := map[string]int{}
	for name, times := range o.Mix {
		mix[mixable[name]] = times
	}
	return mix
}

// talks reports whether the run has replies or reposts.
func (o Options) talks() bool {
	mix := o.frequencies()
	return mix[replies]+mix[reposts] > 0
}

// drawn returns the list to draw from: the kinds of operations, each repeated by its frequency.
func drawn(frequencies map[string]int) (kinds []string) {
	for kind, times := range frequencies {
		for range times {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds) // for the same order in each run
	return kinds
}

// arrive starts operations at random moments, rate per second on average, and returns after the last has
// ended. It does not wait for one operation before it starts the next. do gets the moment at which its
// operation was due, which may be in the past. refused is the number of operations that were not started,
// because underWay others were in progress.
func arrive(ctx context.Context, rate float64, length time.Duration, do func(due time.Time)) (refused int) {
	random := rand.New(rand.NewPCG(3, 4))
	slots := make(chan struct{}, underWay)
	var all sync.WaitGroup
	defer all.Wait()
	began := time.Now()
	for due := began; ; {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if due.Sub(began) >= length {
			return refused
		}
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return refused
			}
		}
		select {
		case <-ctx.Done():
			return refused
		case slots <- struct{}{}:
			all.Go(func() {
				defer func() { <-slots }()
				do(due)
			})
		default:
			refused++
		}
	}
}

// samples has the durations and failures of operations by kind.
type samples struct {
	mu     sync.Mutex
	took   map[string][]time.Duration
	failed map[string]int
}

func newSamples() *samples {
	return &samples{took: map[string][]time.Duration{}, failed: map[string]int{}}
}

func (s *samples) add(kind string, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed[kind]++
		return
	}
	s.took[kind] = append(s.took[kind], took)
}

// crowd makes that many clients do operations without pause for the given time, each one after the other, and
// returns after the last has ended.
func crowd(ctx context.Context, clients int, length time.Duration, do func(due time.Time)) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				do(time.Now())
			}
		})
	}
}

// step runs the scenario at a rate, and waits until the posts have been delivered.
func (r *run) step(ctx context.Context, rate float64) *step {
	kinds, s := drawn(r.options.frequencies()), newSamples()
	calls := context.WithoutCancel(ctx)
	began, refused := time.Now(), 0
	do := func(due time.Time) {
		kind := kinds[rand.IntN(len(kinds))]
		err := r.operate(calls, kind, due)
		s.add(kind, time.Since(due), err)
		r.failed(err)
	}
	if r.options.Clients > 0 {
		crowd(ctx, r.options.Clients, r.options.Duration, do)
	} else {
		refused = arrive(ctx, rate, r.options.Duration, do)
	}
	elapsed := time.Since(began)
	r.drain(rest)
	<-time.After(lateness)
	if latencies, missing := r.ledger.Take(); len(latencies)+missing > 0 {
		s.took[liveDeliveries], s.failed[liveDeliveries] = latencies, missing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := newStep(rate, elapsed, s, r.options.P99)
	st.Errors, r.errs = r.errs, map[string]int{}
	if refused > 0 {
		st.Errors["NOT_BEGUN"] = refused
		st.miss()
	}
	return st
}

func (r *run) operate(ctx context.Context, kind string, due time.Time) error {
	celebrity := 0
	if r.spread {
		celebrity = rand.IntN(len(r.users))
	}
	switch kind {
	case posts:
		return r.create(ctx, rand.IntN(len(r.users)), due)
	case celebrityPosts:
		return r.create(ctx, celebrity, due)
	case untrackedPosts:
		_, err := r.client.Call(ctx, r.users[celebrity].token, createPost, r.post("to whom it may concern"), &struct{}{})
		return err
	case replies:
		return r.reply(ctx, rand.IntN(len(r.users)), rand.IntN(len(r.users)))
	case reposts:
		original := rand.IntN(len(r.users))
		return r.toggleRepost(ctx, r.anyBut(original), original)
	case logIns:
		return r.logIn(ctx, rand.IntN(len(r.users)))
	case follows:
		return r.toggle(ctx, r.anyBut(celebrity), celebrity)
	case likes:
		return r.toggleLike(ctx, r.anyBut(celebrity), celebrity)
	}
	_, err := r.client.Call(ctx, r.users[rand.IntN(len(r.users))].token, timelineQuery, nil, &struct{}{})
	return err
}

// logIn logs in, reads a page and subscribes, as an app does when it starts.
func (r *run) logIn(ctx context.Context, user int) error {
	var data struct{ LogIn struct{ Token string } }
	_, err := r.client.Call(ctx, "", `mutation($input: LogInInput!) { logIn(input: $input) { token } }`,
		map[string]any{"input": map[string]string{"handle": r.handle(user), "password": r.password()}}, &data)
	if err != nil {
		return err
	}
	if _, err := r.client.Call(ctx, data.LogIn.Token, timelineQuery, nil, &struct{}{}); err != nil {
		return err
	}
	open, err := r.client.Open(ctx, data.LogIn.Token, eventsQuery)
	if err != nil {
		return err
	}
	return open.Close()
}

// anyBut returns a random user other than the given one.
func (r *run) anyBut(user int) int {
	return (user + 1 + rand.IntN(len(r.users)-1)) % len(r.users)
}

// toggle makes the user follow another one, or unfollow.
func (r *run) toggle(ctx context.Context, user, other int) error {
	verb := "follow"
	if r.flip(toggled{follows, user, other}, slices.Contains(r.graph[other], user)) {
		verb = "unfollow"
	}
	_, err := r.client.Call(ctx, r.users[user].token, `mutation($user: ID!) { `+verb+`(input: {userId: $user}) { user { id } } }`,
		map[string]any{"user": r.users[other].id}, &struct{}{})
	return err
}

// toggleLike makes the user like the author's post, or unlike it.
func (r *run) toggleLike(ctx context.Context, user, author int) error {
	verb := "likePost"
	if r.flip(toggled{likes, user, author}, false) {
		verb = "unlikePost"
	}
	_, err := r.client.Call(ctx, r.users[user].token, `mutation($post: ID!) { `+verb+`(input: {postId: $post}) { post { likeCount } } }`,
		map[string]any{"post": r.liked[author]}, &struct{}{})
	return err
}

// reply replies to the first post of another user, or of the same.
func (r *run) reply(ctx context.Context, user, to int) error {
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	input := map[string]string{"text": r.text("a reply"), "visibility": "PUBLIC", "replyTo": r.liked[to]}
	_, err := r.client.Call(ctx, r.users[user].token, createPost, map[string]any{"input": input}, &data)
	r.keep(user, data.CreatePost.Post.ID, err)
	return err
}

// toggleRepost makes the user repost the first post of another one, or undo it.
func (r *run) toggleRepost(ctx context.Context, user, author int) error {
	if !r.flip(toggled{reposts, user, author}, false) {
		return r.repost(ctx, user, author)
	}
	_, err := r.client.Call(ctx, r.users[user].token, `mutation($input: PostInput!) { undoRepost(input: $input) { post { id } } }`,
		map[string]any{"input": map[string]string{"postId": r.liked[author]}}, &struct{}{})
	return err
}

// repost reposts the first post of another user.
func (r *run) repost(ctx context.Context, user, author int) error {
	var data struct {
		Repost struct{ Post struct{ ID string } }
	}
	_, err := r.client.Call(ctx, r.users[user].token, `mutation($input: RepostInput!) { repost(input: $input) { post { id } } }`,
		map[string]any{"input": map[string]string{"postId": r.liked[author], "visibility": "PUBLIC"}}, &data)
	r.keep(user, data.Repost.Post.ID, err)
	return err
}

// toggled identifies a follow, like or repost that users switch on and off.
type toggled struct {
	kind        string
	user, other int
}

// flip returns the previous state and inverts it. The initial state is first.
func (r *run) flip(t toggled, first bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.toggled[t]
	if !known {
		was = first
	}
	r.toggled[t] = !was
	return was
}

// postToLike creates the first post of each user, for others to like, reply to and repost.
func (r *run) postToLike(ctx context.Context) error {
	r.liked = make([]string, len(r.users))
	var all errgroup.Group
	all.SetLimit(preparing)
	for i := range r.users {
		all.Go(func() error {
			var data struct {
				CreatePost struct{ Post struct{ ID string } }
			}
			post := map[string]any{"input": map[string]string{"text": r.text("to be liked"), "visibility": "PUBLIC"}}
			err := r.client.Insist(ctx, r.users[i].token, createPost, post, &data)
			r.liked[i] = data.CreatePost.Post.ID
			return err
		})
	}
	return all.Wait()
}
