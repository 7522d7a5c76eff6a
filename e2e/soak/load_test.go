package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/feed/account"
	"tideline/storage"
)

const (
	// kept is the number of posts that each user has when the load pauses.
	kept = 10
	// think is the average pause between two actions of a user.
	think = 400 * time.Millisecond
)

// town is the fixture of the test: users, each of which follows half of the others, and a
// visitor who logs in and out.
type town struct {
	server  *worldtest.Process
	users   []*citizen
	visitor worldtest.User
	actions atomic.Int64
}

// citizen is a user and the ids of the user's posts, oldest first.
type citizen struct {
	worldtest.User
	posts []string
}

const password = "wait for no one"

func newTown(t *testing.T, s *storage.Stores, server *worldtest.Process, people int) *town {
	t.Helper()
	w := &town{server: server}
	for i := range people {
		u, err := worldtest.NewUser(t.Context(), s, int64(i+1), fmt.Sprint("user", i))
		require.NoError(t, err)
		w.users = append(w.users, &citizen{User: u})
	}
	// The indexing worker would write the same rows at some time within a minute, and they would look
	// like a leak.
	_, err := account.IndexNames(t.Context(), s.DB, people)
	require.NoError(t, err)
	for i, u := range w.users {
		for j, other := range w.users {
			if i != j && w.follows(i, j) {
				require.NoError(t, worldtest.Follow(t.Context(), s, u.User, other.User))
			}
		}
	}
	var data struct{ SignUp struct{ Token string } }
	require.NoError(t, server.Call(t.Context(), "", `mutation($p: String!) { signUp(input: {handle: "visitor", password: $p}) { token } }`,
		map[string]any{"p": password}, &data))
	w.visitor = worldtest.User{Handle: "visitor", Token: data.SignUp.Token}
	return w
}

// follows reports whether user i follows user j when the load pauses.
func (w *town) follows(i, j int) bool { return (i+j)%2 == 1 }

// live makes the users act for the given time, and then restores their posts and follows.
// Meanwhile clients follow their timelines.
func (w *town) live(t *testing.T, length time.Duration) error {
	ctx := t.Context()
	end := time.Now().Add(length)
	all := make([]worldtest.User, len(w.users))
	for i, u := range w.users {
		all[i] = u.User
	}
	crowd := worldtest.NewCrowd(t, all, len(all)/3, w.server)
	var acting sync.WaitGroup
	errs := make([]error, len(w.users)+2)
	for i := range w.users {
		acting.Go(func() { errs[i] = w.act(ctx, i, end) })
	}
	acting.Go(func() { errs[len(w.users)] = w.visit(ctx, end) })
	acting.Wait()
	errs[len(w.users)+1] = crowd.Close()
	return errors.Join(errs...)
}

func (w *town) act(ctx context.Context, i int, end time.Time) error {
	u, rng := w.users[i], rand.New(rand.NewPCG(uint64(i), uint64(end.UnixNano())))
	call := func(query string, variables map[string]any, data any) error {
		w.actions.Add(1)
		return w.server.Call(ctx, u.Token, query, variables, data)
	}
	for time.Now().Before(end) {
		time.Sleep(time.Duration((0.5 + rng.Float64()) * float64(think)))
		if err := u.step(rng, call, w.users[rng.IntN(len(w.users))]); err != nil {
			return fmt.Errorf("%s: %w", u.Handle, err)
		}
	}
	for len(u.posts) < kept {
		if err := u.post(call); err != nil {
			return err
		}
	}
	if err := u.deleteTo(kept, call); err != nil {
		return err
	}
	for j, other := range w.users {
		verb := "unfollow"
		if w.follows(i, j) {
			verb = "follow"
		}
		if i != j {
			if err := relate(call, verb, other); err != nil {
				return err
			}
		}
	}
	return nil
}

type call func(query string, variables map[string]any, data any) error

// step performs one random action.
func (u *citizen) step(rng *rand.Rand, call call, other *citizen) error {
	switch n := rng.IntN(10); {
	case n < 4:
		if err := u.post(call); err != nil {
			return err
		}
		return u.deleteTo(2*kept, call)
	case n < 7:
		var data struct{ Timeline worldtest.List }
		if err := call(`{ timeline(first: 20) { nodes { id text author { handle } } } }`, nil, &data); err != nil || len(data.Timeline.Nodes) == 0 {
			return err
		}
		post := map[string]any{"p": data.Timeline.Nodes[0].ID}
		// The calls are refused if the post has been deleted meanwhile.
		err := errors.Join(
			call(`mutation($p: ID!) { likePost(input: {postId: $p}) { post { likeCount } } }`, post, nil),
			call(`mutation($p: ID!) { unlikePost(input: {postId: $p}) { post { likeCount } } }`, post, nil))
		if errors.Is(err, worldtest.ErrRefused) {
			return nil
		}
		return err
	case n < 8 && len(u.posts) > 0:
		return call(`mutation($p: ID!, $v: Visibility!) { setPostVisibility(input: {postId: $p, visibility: $v}) { post { id } } }`,
			map[string]any{"p": u.posts[rng.IntN(len(u.posts))], "v": []string{"PUBLIC", "FOLLOWERS", "PRIVATE"}[rng.IntN(3)]}, nil)
	case n < 9 && other != u:
		return relate(call, []string{"follow", "unfollow"}[rng.IntN(2)], other)
	}
	return nil
}

func relate(call call, verb string, other *citizen) error {
	return call(fmt.Sprintf(`mutation($u: ID!) { %s(input: {userId: $u}) { relationship { following } } }`, verb),
		map[string]any{"u": worldtest.GlobalID("User", other.ID)}, nil)
}

func (u *citizen) post(call call) error {
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	err := call(`mutation { createPost(input: {text: "hello, everybody", visibility: PUBLIC}) { post { id } } }`, nil, &data)
	if err == nil {
		u.posts = append(u.posts, data.CreatePost.Post.ID)
	}
	return err
}

// deleteTo deletes the oldest posts until n are left.
func (u *citizen) deleteTo(n int, call call) error {
	for len(u.posts) > n {
		if err := call(`mutation($p: ID!) { deletePost(input: {postId: $p}) { deletedPostId } }`, map[string]any{"p": u.posts[0]}, nil); err != nil {
			return err
		}
		u.posts = u.posts[1:]
	}
	return nil
}

// visit logs the visitor in and out once per second.
func (w *town) visit(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) {
		var data struct{ LogIn struct{ Token string } }
		w.actions.Add(2)
		err := w.server.Call(ctx, "", `mutation($p: String!) { logIn(input: {handle: "visitor", password: $p}) { token } }`, map[string]any{"p": password}, &data)
		if err == nil {
			err = w.server.Call(ctx, data.LogIn.Token, `mutation { logOut }`, nil, nil)
		}
		if err != nil {
			return fmt.Errorf("visitor: %w", err)
		}
		time.Sleep(time.Second)
	}
	return nil
}
