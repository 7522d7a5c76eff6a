package upgrade

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	tideline "tideline/clients/go"
	"tideline/e2e/worldtest"
)

// goOn bounds the retries of a write.
const goOn = 30 * time.Second

// tally counts the writes of a step. retried counts repeated attempts.
type tally struct{ writes, retried, failed int }

// town contains the users of the test: authors, readers that follow all authors, and a passer
// that follows and unfollows authors.
type town struct {
	servers          []*worldtest.Process
	authors, readers []worldtest.User
	passer           worldtest.User

	mu     sync.Mutex
	posts  []string // ids of acknowledged posts
	now    tally
	broken []error // errors of writes that failed permanently
}

// newTown signs the users up through the first server.
func newTown(ctx context.Context, servers []*worldtest.Process, authors, readers int) (*town, error) {
	w := &town{servers: servers}
	for i := range authors + readers + 1 {
		u, err := signUp(ctx, servers[0], fmt.Sprint("user", i))
		if err != nil {
			return nil, err
		}
		switch {
		case i < authors:
			w.authors = append(w.authors, u)
			continue
		case i == authors+readers:
			w.passer = u
			continue
		}
		w.readers = append(w.readers, u)
		for _, author := range w.authors {
			if err := relate(ctx, servers[0], "follow", u, author); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

func signUp(ctx context.Context, p *worldtest.Process, handle string) (worldtest.User, error) {
	var data struct {
		SignUp struct {
			Token string
			User  struct{ ID string }
		}
	}
	err := p.Call(ctx, "", `mutation($h: String!) { signUp(input: {handle: $h, password: "tide and time"}) { token user { id } } }`,
		map[string]any{"h": handle}, &data)
	if err != nil {
		return worldtest.User{}, err
	}
	text, err := base64.RawURLEncoding.DecodeString(data.SignUp.User.ID)
	if err != nil {
		return worldtest.User{}, err
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(string(text), "User:"), 10, 64)
	return worldtest.User{ID: id, Handle: handle, Token: data.SignUp.Token}, err
}

func relate(ctx context.Context, p *worldtest.Process, how string, of, to worldtest.User) error {
	return p.Call(ctx, of.Token, `mutation($u: ID!) { `+how+`(input: {userId: $u}) { relationship { following } } }`,
		map[string]any{"u": worldtest.GlobalID("User", to.ID)}, nil)
}

// live makes the authors post and like, and the passer follow and unfollow, until stop is
// called.
func (w *town) live(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	until := func(each time.Duration, act func(n int)) {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(each/2 + rand.N(each)):
					act(n)
				}
			}
		})
	}
	for i, author := range w.authors {
		until(200*time.Millisecond, func(n int) { w.post(ctx, author, fmt.Sprintf("%d of author %d", n, i)) })
		until(400*time.Millisecond, func(int) { w.like(ctx, author) })
	}
	until(400*time.Millisecond, func(n int) {
		how, author := []string{"follow", "unfollow"}[n%2], w.authors[n/2%len(w.authors)]
		w.write(func(p *worldtest.Process) error { return relate(ctx, p, how, w.passer, author) })
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// post creates a post. All attempts use the same idempotency key.
func (w *town) post(ctx context.Context, author worldtest.User, text string) {
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	if w.write(func(p *worldtest.Process) error {
		return p.Call(ctx, author.Token, `mutation($t: String!) { createPost(input: {text: $t, idempotencyKey: $t}) { post { id } } }`,
			map[string]any{"t": text}, &data)
	}) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.posts = append(w.posts, data.CreatePost.Post.ID)
	}
}

func (w *town) like(ctx context.Context, by worldtest.User) {
	w.mu.Lock()
	if len(w.posts) == 0 {
		w.mu.Unlock()
		return
	}
	id := w.posts[rand.IntN(len(w.posts))]
	w.mu.Unlock()
	w.write(func(p *worldtest.Process) error {
		return p.Call(ctx, by.Token, `mutation($p: ID!) { likePost(input: {postId: $p}) { post { id } } }`, map[string]any{"p": id}, nil)
	})
}

// write performs a write at a random server. If the attempt fails, write repeats it at the
// next server, as a client must when its server shuts down. It reports whether the write
// succeeded.
func (w *town) write(try func(*worldtest.Process) error) bool {
	first := rand.IntN(len(w.servers))
	var errs []error
	for n, until := 0, time.Now().Add(goOn); ; n++ {
		err := try(w.servers[(first+n)%len(w.servers)])
		w.mu.Lock()
		if err == nil {
			w.now.writes++
			w.now.retried += n
			w.mu.Unlock()
			return true
		}
		if errs = append(errs, err); errors.Is(err, worldtest.ErrRefused) && tideline.CodeOf(err) != "TIMEOUT" || time.Now().After(until) {
			w.now.writes++
			w.now.failed++
			w.broken = append(w.broken, errors.Join(errs[max(0, len(errs)-3):]...))
			w.mu.Unlock()
			return false
		}
		w.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// turn ends a step. It returns the writes of the step and all acknowledged posts so far.
func (w *town) turn() (tally, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.now
	w.now = tally{}
	return was, append([]string(nil), w.posts...)
}
