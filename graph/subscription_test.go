package graph_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/live"
)

// subscriber is a subscription of a viewer.
type subscriber struct {
	c      *client
	viewer session.Viewer
	*exec.Subscription
	news chan struct{}
}

func (c *client) subscribe(v session.Viewer, query string, variables map[string]any, prepared ...func(*exec.Operation)) subscriber {
	c.t.Helper()
	op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: query, Variables: variables})
	require.Empty(c.t, errs)
	for _, change := range prepared {
		change(op)
	}
	s := subscriber{c: c, viewer: v, news: make(chan struct{}, 1)}
	s.Subscription, errs = c.engine.Subscribe(graph.WithViewer(c.ctx, v), op, func() {
		select {
		case s.news <- struct{}{}:
		default:
		}
	})
	require.Empty(c.t, errs)
	return s
}

func (s subscriber) next() map[string]any { return nextOf[map[string]any](s) }

// nextOf waits for an event, and returns its field with the alias e.
func nextOf[T any](s subscriber) T {
	s.c.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		response, ok := s.Next(graph.WithViewer(s.c.ctx, s.viewer))
		if ok {
			require.Empty(s.c.t, response.Errors)
			var data struct{ E T }
			require.NoError(s.c.t, json.Unmarshal(response.Data, &data), string(response.Data))
			return data.E
		}
		select {
		case <-s.news:
		case <-timeout:
			require.FailNow(s.c.t, "no event")
		}
	}
}

// An event is executed once for all subscribers with the same selection. Each still gets its own values.
func TestEventForMany(t *testing.T) {
	each(t, func(c *client) {
		const n = 12
		var viewers []session.Viewer
		var ids []int64
		make := func(handle string) session.Viewer {
			u, err := c.s.DB.User.Create().SetID(int64(1 + len(ids))).SetHandle(handle).SetName(handle).SetPasswordHash("-").Save(c.ctx)
			require.NoError(c.t, err)
			ids = append(ids, u.ID)
			return session.Viewer{ID: u.ID}
		}
		author := make("author")
		for i := range n {
			v := make(fmt.Sprint("reader", i))
			require.NoError(c.t, c.s.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(author.ID).Exec(c.ctx))
			viewers = append(viewers, v)
		}
		const (
			common = `subscription($after: Cursor, $text: Boolean!) { e: timelineEvents(after: $after) { __typename
				... on TimelinePostAdded { unread: unreadCount position unreadCount edge { score cursor node { id text @include(if: $text) viewerHasLiked likeCount author { handle } } } }
				... on TimelinePostRemoved { postId position reason } } }`
			own = `subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { text author { defaultVisibility relationship { following } } } } } } }`
		)
		counts := `subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { author { postCount } } } } } }`
		require.NoError(c.t, c.s.DB.User.UpdateOneID(author.ID).SetPostCount(3).SetPublicPostCount(2).Exec(c.ctx))
		counted := []subscriber{c.subscribe(viewers[0], counts, nil), c.subscribe(author, counts, nil)}
		var with, without, alone []subscriber
		for i, v := range viewers {
			with = append(with, c.subscribe(v, common, map[string]any{"text": true}))
			without = append(without, c.subscribe(v, common, map[string]any{"text": false}))
			if i < 2 {
				alone = append(alone, c.subscribe(v, own, nil))
			}
		}
		alone = append(alone, c.subscribe(author, own, nil))

		// A text that looks like a placeholder of the template is not treated as one.
		const text = `x":-2147483648, \":-2147483648`
		const post = int64(1) << 50
		require.NoError(c.t, c.s.DB.Post.Create().SetID(post).SetAuthorID(author.ID).SetText(text).SetVisibility(schema.Public).Exec(c.ctx))
		_, err := c.Feed.LikePost(c.ctx, viewers[3], post)
		require.NoError(c.t, err)
		publish := func(kind live.Kind) {
			reached, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: kind, Post: post, Author: author.ID}, ids)
			require.NoError(c.t, err)
			require.Equal(c.t, n+1, reached)
		}
		publish(live.Added)
		positions := map[any]bool{}
		for i, v := range viewers {
			for _, s := range []subscriber{with[i], without[i]} {
				e := s.next()
				require.Equal(c.t, "TimelinePostAdded", e["__typename"])
				edge := e["edge"].(map[string]any)
				node := edge["node"].(map[string]any)
				require.Equal(c.t, e["position"], edge["cursor"])
				require.Equal(c.t, float64(post), edge["score"])
				require.Equal(c.t, i == 3, node["viewerHasLiked"], "reader %d", i)
				require.Equal(c.t, "author", node["author"].(map[string]any)["handle"])
				require.Equal(c.t, e["unread"], e["unreadCount"])
				if s == with[i] {
					require.Equal(c.t, text, node["text"])
					positions[e["position"]] = true
				} else {
					require.NotContains(c.t, node, "text")
				}
				resumed := c.subscribe(v, common, map[string]any{"text": true, "after": e["position"]})
				_, more := resumed.Next(graph.WithViewer(c.ctx, v))
				require.False(c.t, more, "the position is the reader's")
				unread, err := c.Home.Unread.Count(c.ctx, v)
				require.NoError(c.t, err)
				require.EqualValues(c.t, unread, e["unread"])
			}
		}
		require.Len(c.t, positions, n)
		for i, s := range alone {
			user := s.next()["edge"].(map[string]any)["node"].(map[string]any)["author"].(map[string]any)
			require.Equal(c.t, i == 2, user["defaultVisibility"] != nil)
			if i < 2 {
				require.Equal(c.t, true, user["relationship"].(map[string]any)["following"])
			}
		}
		for i, s := range counted {
			user := s.next()["edge"].(map[string]any)["node"].(map[string]any)["author"].(map[string]any)
			require.EqualValues(c.t, 2+i, user["postCount"])
		}
		require.NoError(c.t, c.s.DB.Post.DeleteOneID(post).Exec(c.ctx))
		writes := c.subscribe(author, common, map[string]any{"text": true})
		publish(live.Removed)
		for i := range viewers {
			removed := with[i].next()
			require.Equal(c.t, "TimelinePostRemoved", removed["__typename"])
			require.Equal(c.t, "NOT_VISIBLE", removed["reason"])
		}
		require.Equal(c.t, "DELETED", writes.next()["reason"])
	})
}

// The unread count belongs to the viewer, an object with an id. The payload of markTimelineRead and every
// event that changes the count contain the viewer. Every field of a mutation has its own count.
func TestUnreadCountOfTheViewer(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		c.Work()
		authorID, author := c.signUp("author")
		annID, ann := c.signUp("ann")
		c.get("follow.user.id", `mutation($user: ID!) { follow(input: {userId: $user}) { user { id } } }`, map[string]any{"user": authorID})
		c.AwaitInbox(ann)
		stream := c.subscribe(ann, `subscription { e: timelineEvents(heartbeat: 3600) { __typename
			... on TimelinePostAdded { unreadCount viewer { ...unread } edge { node { author { unreadCount } } } }
			... on TimelineHeartbeat { unreadCount viewer { ...unread } } } } fragment unread on User { id unreadCount }`, nil)
		of := func(n float64) map[string]any { return map[string]any{"id": annID, "unreadCount": n} }
		for n := range 3 {
			c.viewer = author
			c.get("createPost.post.id", createPost, map[string]any{"text": "new", "visibility": "PUBLIC"})
			require.Equal(c.t, map[string]any{"__typename": "TimelinePostAdded", "unreadCount": float64(n + 1), "viewer": of(float64(n + 1)),
				"edge": map[string]any{"node": map[string]any{"author": map[string]any{"unreadCount": nil}}}}, stream.next())
		}
		c.viewer = ann
		const page = `{ viewer { id unreadCount } timeline { unreadCount edges { cursor } } user(handle: "author") { unreadCount } }`
		a := c.do(page, nil)
		require.Empty(c.t, a.Errors)
		require.Equal(c.t, of(3), a.at("viewer"))
		require.Nil(c.t, a.at("user.unreadCount"))
		edges := a.at("timeline.edges").([]any)
		cursor := func(i int) any { return edges[i].(map[string]any)["cursor"] }
		a = c.do(`mutation($a: Cursor!, $b: Cursor!) { a: markTimelineRead(input: {upTo: $a}) { unreadCount viewer { id unreadCount } }
			b: markTimelineRead(input: {upTo: $b}) { unreadCount viewer { id unreadCount } } }`, map[string]any{"a": cursor(2), "b": cursor(0)})
		require.Empty(c.t, a.Errors)
		require.Equal(c.t, of(2), a.at("a.viewer"))
		require.Equal(c.t, of(0), a.at("b.viewer"))

		// The other device is notified of each move of the marker, with the current count.
		for range 2 {
			event := stream.next()
			require.Equal(c.t, "TimelineHeartbeat", event["__typename"])
			require.Equal(c.t, event["unreadCount"], event["viewer"].(map[string]any)["unreadCount"])
			a = answer{Data: event}
		}
		require.Equal(c.t, of(0), a.Data["viewer"])
		c.viewer = session.Viewer{}
		require.Nil(c.t, c.get("user.unreadCount", `{ user(handle: "ann") { unreadCount } }`, nil))
	})
}

// A client that shows follow requests reads them again when the user is notified of a change: requested,
// withdrawn, requested, accepted, requested, rejected.
func TestAHeartbeatTellsOfFollowRequests(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		c.Work()
		bobID, bob := c.signUp("bob")
		annID, ann := c.signUp("ann")
		c.viewer = ann
		c.get("updateProfile.user.id", `mutation { updateProfile(input: {approvesFollowers: true}) { user { id } } }`, nil)
		c.AwaitInbox(ann)
		stream := c.subscribe(ann, `subscription { e: timelineEvents(heartbeat: 3600) { __typename } }`, nil)
		c.get("createPost.post.id", createPost, map[string]any{"text": "the stream has begun", "visibility": "PUBLIC"})
		require.Equal(c.t, "TimelinePostAdded", stream.next()["__typename"])
		for _, step := range []struct {
			viewer         session.Viewer
			mutation, user string
			asking         int
		}{
			{bob, "follow", annID, 1}, {bob, "unfollow", annID, 0},
			{bob, "follow", annID, 1}, {ann, "rejectFollower", bobID, 0},
			{bob, "follow", annID, 1}, {bob, "block", annID, 0}, {bob, "unblock", annID, -1},
			{bob, "follow", annID, 1}, {ann, "acceptFollower", bobID, 0},
		} {
			c.viewer = step.viewer
			c.get(step.mutation+".user.id", `mutation($user: ID!) { `+step.mutation+`(input: {userId: $user}) { user { id } } }`, map[string]any{"user": step.user})
			if step.asking < 0 {
				continue
			}
			for stream.next()["__typename"] != "TimelineHeartbeat" { // the follow itself changes the timeline
			}
			c.viewer = ann
			require.Len(c.t, c.get("viewer.followRequests.nodes", `{ viewer { followRequests { nodes { id } } } }`, nil), step.asking)
		}
	})
}

const watchCounts = `subscription($ids: [ID!]!) { e: postCounts(ids: $ids) { id likeCount viewerHasLiked author { handle } } }`

// counts takes an event of watchCounts and returns the likes of each post.
func (s subscriber) counts() map[any]any {
	s.c.t.Helper()
	likes := map[any]any{}
	for _, post := range nextOf[[]map[string]any](s) {
		likes[post["id"]] = post["likeCount"]
		require.Equal(s.c.t, "author", post["author"].(map[string]any)["handle"])
	}
	return likes
}

func TestPostCounts(t *testing.T) {
	each(t, func(c *client) {
		c.Run(c.Counts.Run)
		author, reader := c.User("author"), c.User("reader")
		var ids []any
		for range 2 {
			ids = append(ids, ent.NodeID("Post", c.Post(author, schema.Public)))
		}
		_, hidden, _ := ent.ParseNodeID(ids[1].(string))
		private := ent.NodeID("Post", c.Post(author, schema.Private))
		all := append([]any{private, "no id", ent.NodeID("User", author.ID)}, ids...)
		s := c.subscribe(reader, watchCounts, map[string]any{"ids": all})
		var authors atomic.Int32
		c.s.DB.User.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
				authors.Add(1)
				return next.Query(ctx, q)
			})
		}))
		require.Equal(c.t, map[any]any{ids[0]: 0.0, ids[1]: 0.0}, s.counts())
		require.EqualValues(c.t, 1, authors.Load(), "the authors of all posts are read at once")
		_, err := c.Feed.LikePost(c.ctx, author, hidden)
		require.NoError(c.t, err)
		require.Equal(c.t, map[any]any{ids[1]: 1.0}, s.counts())

		// An event has the price of all ids.
		cost := func(n int) int {
			op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: watchCounts, Variables: map[string]any{"ids": slices.Repeat(ids[:1], n)}})
			require.Empty(c.t, errs)
			return op.Cost()
		}
		require.Equal(c.t, 1+1*5, cost(1))
		require.Equal(c.t, 1+50*5, cost(50))

		for reason, try := range map[string]struct {
			viewer session.Viewer
			n      int
		}{"TOO_MANY": {reader, 101}, "SIGN_IN": {session.Viewer{}, 1}} {
			op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: watchCounts, Variables: map[string]any{"ids": slices.Repeat(ids[:1], try.n)}})
			require.Empty(c.t, errs)
			_, errs = c.engine.Subscribe(graph.WithViewer(c.ctx, try.viewer), op, func() {})
			require.Len(c.t, errs, 1)
			require.Equal(c.t, reason, errs[0].Extensions["reason"])
			if reason == "TOO_MANY" {
				require.Equal(c.t, "ids", errs[0].Extensions["field"])
				require.Equal(c.t, "pageSize", errs[0].Extensions["limit"])
			}
		}
	})
}
