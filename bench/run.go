package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/bench/client"
	"tideline/bench/ledger"
	"tideline/bench/meter"
	tideline "tideline/clients/go"
)

const (
	tryAgainLater = 1013                                       // close code of a server that asks the client to return later
	frame         = len(`{"id":"1","type":"next","payload":}`) // bytes around a result

	preparing = 8                      // concurrent calls before the load: a sign-up is expensive by design
	atOnce    = 64                     // most concurrent createPost calls; if all are in progress, the rate falls behind
	deaf      = 30 * time.Second       // if no further user gets a first event in this time, the run fails
	arrival   = 10 * time.Second       // an event that has not arrived this long after the load is missing
	lateness  = 500 * time.Millisecond // how long the run waits for events that must not arrive
)

// run is a run in progress.
type run struct {
	options Options
	client  *client.Client
	name    string // part of its users' handles and its posts' texts
	users   []account
	graph   [][]int // followers by user
	ledger  *ledger.Ledger
	subs    []*tideline.Subscription
	heard   []atomic.Bool // which subscriptions have received an event
	broken  atomic.Int64  // subscriptions that ended unexpectedly
	closing atomic.Bool

	subscription string         // query of the subscriptions
	hearing      sync.WaitGroup // goroutines that read the subscriptions

	loaded time.Duration // duration of the load
	liked  []string      // id of each user's first post, for others to like, reply to and repost
	spread bool          // in a hot-spot: the load goes to all users and not only to the first

	mu          sync.Mutex
	reads       []time.Duration
	pageBytes   int // of all reads
	eventBytes  int // of all events with a numbered post
	events      int
	invalidated int
	errs        map[string]int // by code
	toggled     map[toggled]bool
	made        []madePost // with --model
}

// madePost is a post whose receipt can be requested.
type madePost struct {
	author int
	id     string
}

type account struct{ id, token string }

func newRun(o Options) *run {
	return &run{
		options: o,
		client:  client.New(o.URL),
		name:    strconv.FormatUint(rand.Uint64(), 36),
		users:   make([]account, o.Users),
		graph:   followGraph(o.Users, o.Followers),
		heard:   make([]atomic.Bool, o.Subscribers),
		errs:    map[string]int{},
		toggled: map[toggled]bool{},

		subscription: eventsQuery,
	}
}

// followGraph chooses the followers of each user: the first user has the most, the k-th user 1/k of that, and
// each at least one. It is the same for every run.
func followGraph(users, most int) [][]int {
	random := rand.New(rand.NewPCG(1, 2))
	graph := make([][]int, users)
	for user := range graph {
		n := max(1, most/(user+1))
		for _, follower := range random.Perm(users)[:n+1] {
			if follower != user && len(graph[user]) < n {
				graph[user] = append(graph[user], follower)
			}
		}
	}
	return graph
}

func (r *run) handle(user int) string { return fmt.Sprintf("b%s_%d", r.name, user) }
func (r *run) password() string       { return r.name + "-password" }

// populate signs up the users and makes them follow each other.
func (r *run) populate(ctx context.Context) error {
	signUps, signUpCtx := errgroup.WithContext(ctx)
	signUps.SetLimit(preparing)
	for i := range r.users {
		signUps.Go(func() error {
			var data struct {
				SignUp struct {
					Token string
					User  struct{ ID string }
				}
			}
			err := r.client.Insist(signUpCtx, "", `mutation($input: SignUpInput!) { signUp(input: $input) { token user { id } } }`,
				map[string]any{"input": map[string]string{
					"handle": r.handle(i), "name": fmt.Sprintf("Bench %d", i), "password": r.password(),
				}}, &data)
			if err != nil {
				return fmt.Errorf("sign up: %w", err)
			}
			r.users[i] = account{data.SignUp.User.ID, data.SignUp.Token}
			return nil
		})
	}
	if err := signUps.Wait(); err != nil {
		return err
	}
	follows, followCtx := errgroup.WithContext(ctx)
	follows.SetLimit(preparing)
	for user, followers := range r.graph {
		for _, follower := range followers {
			follows.Go(func() error {
				err := r.client.Insist(followCtx, r.users[follower].token,
					`mutation($user: ID!) { follow(input: {userId: $user}) { user { id } } }`,
					map[string]any{"user": r.users[user].id}, &struct{}{})
				if err != nil {
					return fmt.Errorf("follow: %w", err)
				}
				return nil
			})
		}
	}
	return follows.Wait()
}

// subscribe opens the subscriptions and waits until the server serves them.
func (r *run) subscribe(ctx context.Context) error {
	if err := r.dial(ctx); err != nil {
		return err
	}
	return r.awaitHeard(ctx)
}

// dial opens the subscriptions.
func (r *run) dial(ctx context.Context) error {
	r.ledger = ledger.New(r.graph, r.options.Subscribers)
	r.subs = make([]*tideline.Subscription, r.options.Subscribers)
	opening, openCtx := errgroup.WithContext(ctx)
	opening.SetLimit(preparing)
	for sub := range r.subs {
		opening.Go(func() error {
			open, err := r.client.Open(openCtx, r.users[r.ledger.UserOf(sub)].token, r.subscription)
			if err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			r.connected(sub, open)
			r.hearing.Go(func() { r.listen(ctx, sub, open) })
			return nil
		})
	}
	return opening.Wait()
}

// awaitHeard waits until the server serves each subscription. The protocol does not tell that it does, but
// users receive their own posts: the users of silent subscriptions post until each has received an event.
func (r *run) awaitHeard(ctx context.Context) error {
	var deadline time.Time
	for fewest := len(r.users) + 1; ; {
		silent := r.silent()
		if len(silent) == 0 {
			return nil
		}
		if len(silent) < fewest {
			fewest, deadline = len(silent), time.Now().Add(deaf)
		}
		if time.Now().After(deadline) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return fmt.Errorf("the subscriptions of %d users received nothing for %v; errors: %s", len(silent), deaf, counts(r.errs))
		}
		for _, user := range silent {
			if err := r.client.Insist(ctx, r.users[user].token, createPost, r.post("warm-up"), &struct{}{}); err != nil {
				return fmt.Errorf("create post: %w", err)
			}
		}
		select {
		case <-time.After(lateness):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// silent returns the users with a subscription that has received nothing yet.
func (r *run) silent() []int {
	found := map[int]bool{}
	var users []int
	for sub := range r.heard {
		if user := r.ledger.UserOf(sub); !r.heard[sub].Load() && !found[user] {
			found[user] = true
			users = append(users, user)
		}
	}
	return users
}

// hangUp closes the subscriptions. After that the ledger does not change.
func (r *run) hangUp() {
	r.mu.Lock()
	r.closing.Store(true)
	subs := slices.Clone(r.subs)
	r.mu.Unlock()
	for _, open := range subs {
		if open != nil {
			open.Close()
		}
	}
	r.hearing.Wait()
}

// connected records an open subscription, or closes it if the run is closing.
func (r *run) connected(sub int, open *tideline.Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[sub] = open
	if r.closing.Load() {
		open.Close()
	}
}

// reopen opens a subscription again if the server has asked the client to return later, before
// the first event has arrived.
func (r *run) reopen(ctx context.Context, sub int, err error) *tideline.Subscription {
	var closed *tideline.CloseError
	if !errors.As(err, &closed) || closed.Code != tryAgainLater || r.heard[sub].Load() || r.closing.Load() {
		return nil
	}
	if meter.Pause(ctx, lateness) != nil {
		return nil
	}
	open, err := r.client.Open(ctx, r.users[r.ledger.UserOf(sub)].token, r.subscription)
	if err != nil {
		return nil
	}
	r.connected(sub, open)
	return open
}

// listen reads a subscription until it ends.
func (r *run) listen(ctx context.Context, sub int, open *tideline.Subscription) {
	for {
		result, err := open.Next(ctx)
		at := time.Now()
		if err == nil {
			err = r.event(sub, result, at)
		}
		if err != nil {
			again := r.reopen(ctx, sub, err)
			if !r.closing.Load() {
				r.failed(err)
				if again == nil {
					r.broken.Add(1)
				}
			}
			if again == nil {
				return
			}
			open = again
		}
	}
}

// event records a result of a subscription in the ledger. If it returns an error, the subscription ends.
func (r *run) event(sub int, payload []byte, at time.Time) error {
	var result struct {
		Data struct {
			TimelineEvents struct {
				Typename string `json:"__typename"`
				Edge     struct {
					Node struct{ Text string }
				}
			}
		}
		Errors []struct {
			Message    string
			Extensions struct{ Code string }
		}
	}
	if err := json.Unmarshal(payload, &result); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	for _, e := range result.Errors {
		r.failed(&tideline.Error{Code: e.Extensions.Code, Message: e.Message})
	}
	event := result.Data.TimelineEvents
	switch event.Typename {
	case "TimelineInvalidated":
		r.ledger.Invalidated(sub)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.invalidated++
	case "TimelinePostAdded":
		r.heard[sub].Store(true)
		number, ours := strings.CutPrefix(event.Edge.Node.Text, r.text(""))
		n, err := strconv.Atoi(number)
		if !ours || err != nil {
			return nil // a post whose deliveries are not checked
		}
		r.ledger.Delivered(sub, n, at)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events++
		r.eventBytes += len(payload) + frame
	}
	return nil
}

const (
	eventsQuery = `subscription {
	timelineEvents {
		__typename
		... on TimelinePostAdded { unreadCount edge { cursor score node { id text createdAt author { id handle name } } } }
	}
}`
	unreadCount = "unreadCount" // a field of eventsQuery and timelineQuery; --model measures it separately
)

func uncounted(query string) string { return strings.Replace(query, unreadCount, "", 1) }

const createPost = `mutation($input: CreatePostInput!) { createPost(input: $input) { post { id } } }`

func (r *run) text(what string) string { return "Bench " + r.name + ": " + what }

func (r *run) post(what string) map[string]any {
	return map[string]any{"input": map[string]string{"text": r.text(what), "visibility": "FOLLOWERS"}}
}

// load posts and reads for the given time, or until ctx ends. Then it waits for the calls in progress, since
// it is unknown whether the post of a cancelled call exists.
func (r *run) load(ctx context.Context) {
	began := time.Now()
	calls := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, r.options.Duration)
	defer cancel()
	var readers, posts errgroup.Group
	for range r.options.Readers {
		readers.Go(func() error {
			for ctx.Err() == nil {
				r.read(calls)
			}
			return nil
		})
	}
	posts.SetLimit(atOnce)
	tick := time.NewTicker(time.Duration(float64(time.Second) / r.options.PostRate))
	defer tick.Stop()
	for author := 0; ctx.Err() == nil; author++ {
		posts.Go(func() error { r.failed(r.create(calls, author%r.options.Users, time.Now())); return nil })
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	_, _ = posts.Wait(), readers.Wait() // they return no error: failures are counted
	r.loaded = time.Since(began)
}

// create creates a numbered post. Its times count from the moment at which it was due.
func (r *run) create(ctx context.Context, author int, due time.Time) error {
	n := r.ledger.Begin(author, due)
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	_, err := r.client.Call(ctx, r.users[author].token, createPost, r.post(strconv.Itoa(n)), &data)
	r.ledger.End(n, err == nil, time.Now())
	r.keep(author, data.CreatePost.Post.ID, err)
	return err
}

// keep records a post, if the model will read its receipt.
func (r *run) keep(author int, id string, err error) {
	if r.options.Model && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.made = append(r.made, madePost{author, id})
	}
}

func (r *run) postsMade() []madePost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

const timelineQuery = `query { timeline(first: 20) {
	edges { cursor score node { id text createdAt visibility likeCount viewerHasLiked author { id handle name } } }
	pageInfo { hasNextPage endCursor } unreadCount
} }`

// read reads the first page of one user's timeline.
func (r *run) read(ctx context.Context) {
	began := time.Now()
	size, err := r.client.Call(ctx, r.users[rand.IntN(len(r.users))].token, timelineQuery, nil, &struct{}{})
	took := time.Since(began)
	if err != nil {
		r.failed(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, took)
	r.pageBytes += size
}

// failed counts an error. It ignores nil, and the end of the run.
func (r *run) failed(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[client.CodeOf(err)]++
}

// settle waits for the events that must still arrive, then briefly for events that must not,
// and closes the subscriptions.
func (r *run) settle() {
	r.drain(arrival)
	<-time.After(lateness)
	r.hangUp()
}

// drain waits for the events that must still arrive, at most for patience.
func (r *run) drain(patience time.Duration) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); r.ledger.Missing() > 0 && time.Now().Before(end); {
		<-tick.C
	}
}
