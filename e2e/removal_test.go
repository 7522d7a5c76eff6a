package e2e

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// follower is a user's timeline subscription on one connection.
type follower struct {
	t            *testing.T
	subscription *tideline.Subscription
}

func (u user) watch(t *testing.T, p *process) *follower {
	t.Helper()
	subscription, err := u.timelineEvents(t.Context(), p, map[string]any{"heartbeat": 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = subscription.Close() }) // the server may have closed it
	f := &follower{t, subscription}
	for f.next().Typename != "TimelineHeartbeat" { // the server has started the subscription
	}
	return f
}

func (f *follower) next() told {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	event, err := next(ctx, f.t, f.subscription)
	require.NoError(f.t, err)
	return event
}

// until waits for the first wanted event. It returns all events up to that one, except
// heartbeats.
func (f *follower) until(wanted func(told) bool) (events []told) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; {
		ev := f.next()
		require.True(f.t, time.Now().Before(end), "it does not come, only %v", events)
		if ev.Typename != "TimelineHeartbeat" {
			events = append(events, ev)
		}
		if wanted(ev) {
			return events
		}
	}
}

func (f *follower) added(text string) (events []told) {
	f.t.Helper()
	return f.until(func(ev told) bool { return ev.Typename == "TimelinePostAdded" && ev.Edge.Node.Text == text })
}

// removals are the ways in which a post leaves a timeline.
var removals = []struct {
	name, query string
	byAuthor    bool
}{
	{"delete", `mutation($post: ID!) { deletePost(input: {postId: $post}) { deletedPostId } }`, true},
	{"narrowed visibility", `mutation($post: ID!) { setPostVisibility(input: {postId: $post, visibility: MUTUALS}) { post { id } } }`, true},
	{"unfollow", `mutation($user: ID!) { unfollow(input: {userId: $user}) { user { id } } }`, false},
	{"mute", `mutation($user: ID!) { mute(input: {userId: $user}) { user { id } } }`, false},
	{"block", `mutation($user: ID!) { block(input: {userId: $user}) { user { id } } }`, false},
	{"block by the author", `mutation($user: ID!) { block(input: {userId: $user}) { user { id } } }`, true},
}

// For every way in which a post leaves a timeline, an open subscription gets an event.
func testRemovals(t *testing.T, p *process) {
	for i, way := range removals {
		t.Run(way.name, func(t *testing.T) {
			handle := string(rune('a' + i))
			ann, ben := signUp(t, p, "author_"+handle), signUp(t, p, "reader_"+handle)
			ben.follow(t, p, ann)
			f := ben.watch(t, p)
			ann.post(t, p, "one")
			events := f.added("one")
			post := events[len(events)-1].Edge.Node.ID

			who, variables := ben, map[string]any{"user": ann.id}
			if way.byAuthor {
				who, variables = ann, map[string]any{"user": ben.id}
			}
			if strings.Contains(way.query, "$post") {
				variables = map[string]any{"post": post}
			}
			begun := time.Now()
			who.call(t, p, way.query, variables, nil)
			done := time.Now()
			f.until(func(ev told) bool {
				return ev.Typename == "TimelineInvalidated" || ev.Typename == "TimelinePostRemoved" && ev.PostID == post
			})
			t.Logf("told %v after the call began, %v after it returned", time.Since(begun), time.Since(done))
			require.Empty(t, ben.timeline(t, p))
		})
	}
}

func TestRemovals(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		testRemovals(t, start(t, []string{"TIDELINE_RATE_LIMIT=off"}, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0"))
	})
	t.Run("apart", func(t *testing.T) {
		env := settings(storagetest.Config(storagetest.Real(t)))
		p := start(t, env, "server", "--addr=127.0.0.1:0")
		start(t, env, "worker", "--worker-addr=127.0.0.1:0")
		testRemovals(t, p)
	})
}

// After a block, the blocked user gets no event about the blocker's posts, even if the worker
// handles the posts before and after the block late.
func TestNothingAfterABlock(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	env := settings(storagetest.Config(storagetest.Real(t)))
	p := start(t, env, "server", "--addr=127.0.0.1:0")
	worker := start(t, env, "worker", "--worker-addr=127.0.0.1:0")
	ann, ben, carl := signUp(t, p, "ann"), signUp(t, p, "ben"), signUp(t, p, "carl")
	ben.follow(t, p, ann)
	ben.follow(t, p, carl)
	f := ben.watch(t, p)
	ann.post(t, p, "before")
	f.added("before")

	worker.signal(syscall.SIGSTOP)
	ann.post(t, p, "late")
	ann.call(t, p, `mutation($user: ID!) { block(input: {userId: $user}) { user { id } } }`, map[string]any{"user": ben.id}, nil)
	ann.post(t, p, "later")
	require.Empty(t, ben.timeline(t, p))
	time.Sleep(2 * time.Second) // lets events that the server itself has sent arrive
	worker.signal(syscall.SIGCONT)
	carl.post(t, p, "over")
	// An invalidation may replace the event, if the timeline already has the post.
	events := f.until(func(ev told) bool {
		return ev.Edge.Node.Text == "over" || ev.Typename == "TimelineInvalidated" && slices.Contains(ben.timeline(t, p), "over")
	})
	worker.await("the others are done", func() bool {
		_, metrics := p.get("/metrics")
		return strings.Contains(metrics, "\ntideline_queue_jobs{pool=\"small\"} 0\n")
	})
	carl.post(t, p, "really over")
	events = append(events, f.until(func(ev told) bool {
		return ev.Edge.Node.Text == "really over" || ev.Typename == "TimelineInvalidated" && slices.Contains(ben.timeline(t, p), "really over")
	})...)
	for _, ev := range events {
		require.NotContains(t, []string{"before", "late", "later"}, ev.Edge.Node.Text)
	}
	require.Equal(t, []string{"really over", "over"}, ben.timeline(t, p))
}

// settings returns the settings of a process that uses these databases.
func settings(c storage.Config) []string {
	return []string{
		"TIDELINE_DATABASE_URL=" + c.DatabaseURL, "TIDELINE_REDIS_URL=" + c.RedisURL, "TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off",
	}
}
