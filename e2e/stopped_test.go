package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	entuser "tideline/ent/user"
	"tideline/feed/ids"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// A server process is frozen until it counts as dead, and then continues. Its client gets both
// posts of that time. The first one was already sent on the server's Redis connection. The
// second one was not sent to this server at all. When the server continues, the first post is
// older than grace, but the server must not assume from the time alone that the client has it.
func TestStoppedServerGoesOn(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	const grace = 120 * time.Second
	stores := storagetest.Real(t)
	env := shared(stores)
	start(t, env, "worker", "--worker-addr=127.0.0.1:0")
	other, p := start(t, env, "server", "--addr=127.0.0.1:0"), start(t, env, "server", "--addr=127.0.0.1:0")
	ann, ben := signUp(t, other, "ann"), signUp(t, other, "ben")
	ben.follow(t, other, ann)
	f := ben.watch(t, p)
	ann.post(t, other, "one")
	f.added("one")

	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	made := time.Now().Add(15*time.Second - grace) // the post is not late yet when it is delivered
	deliver(t, stores, ann, ben, made, "two")
	require.Eventually(t, func() bool { // the presence of the frozen server has expired
		servers, err := stores.Redis.ZCard(t.Context(), "live:procs").Result()
		return err == nil && servers == 1
	}, time.Minute, 100*time.Millisecond)
	ann.post(t, other, "three")
	ben.arrived(t, other, "three", "one", "two")
	require.Eventually(t, func() bool { return time.Since(made) > grace+time.Second }, time.Minute, 100*time.Millisecond)
	p.signal(syscall.SIGCONT)
	f.added("two")
	f.added("three")
}

// deliver writes a post with the creation time made, adds it to the follower's inbox and
// publishes the event, like a worker for a post that is not late.
func deliver(t *testing.T, stores *storage.Stores, author, follower user, made time.Time, text string) {
	t.Helper()
	id := func(u user) int64 { return stores.DB.User.Query().Where(entuser.Handle(u.handle)).OnlyIDX(t.Context()) }
	from, to := id(author), id(follower)
	post := ids.At(made)
	require.NoError(t, stores.DB.Post.Create().SetID(post).SetAuthorID(from).SetText(text).SetVisibility(schema.Public).Exec(t.Context()))
	tl, err := timeline.New(stores.Redis, timeline.Config{})
	require.NoError(t, err)
	reached, err := tl.Inboxes.Deliver(t.Context(), post, []int64{to})
	require.NoError(t, err)
	require.Equal(t, []int64{to}, reached)
	_, err = live.NewPublisher(stores.Redis, stores.Sharded).Publish(t.Context(), live.Event{Kind: live.Added, Post: post, Author: from}, reached)
	require.NoError(t, err)
}
