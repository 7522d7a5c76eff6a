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

// A server process is stopped for so long that it is taken for dead, and goes on: its
// client gets what came meanwhile, first of what the connection to Redis still held,
// then of what nobody sent to it. The first of these posts is older than the arrival
// grace by then: the client is not taken to have it only because time has passed.
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
	made := time.Now().Add(15*time.Second - grace) // so it comes just in time
	deliver(t, stores, ann, ben, made, "two")
	require.Eventually(t, func() bool { // the presence of the one that is stopped has ended
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

// deliver writes a post that was made at that time, brings it to the follower's inbox
// and tells the follower, as a worker does with a post that is not late by its clock.
func deliver(t *testing.T, stores *storage.Stores, author, follower user, made time.Time, text string) {
	t.Helper()
	id := func(u user) int64 { return stores.DB.User.Query().Where(entuser.Handle(u.handle)).OnlyIDX(t.Context()) }
	from, to := id(author), id(follower)
	post := ids.At(made)
	require.NoError(t, stores.DB.Post.Create().SetID(post).SetAuthorID(from).SetText(text).SetVisibility(schema.Public).Exec(t.Context()))
	tl, err := timeline.New(stores.Redis, timeline.Config{})
	require.NoError(t, err)
	reached, err := tl.Deliver(t.Context(), post, []int64{to})
	require.NoError(t, err)
	require.Equal(t, []int64{to}, reached)
	_, err = live.NewPublisher(stores.Redis, stores.Sharded).Publish(t.Context(), live.Event{Kind: live.Added, Post: post, Author: from}, reached)
	require.NoError(t, err)
}
