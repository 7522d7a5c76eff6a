package graph_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/session"
	"tideline/live"
	"tideline/storage/storagetest"
)

// plain selects all fields of a type that have neither arguments nor subfields.
func (c *client) plain(name string) string {
	var names []string
	const query = `query($name: String!) { __type(name: $name) { fields { name args { name } type { ...t } } } }
		fragment t on __Type { kind ofType { kind ofType { kind ofType { kind } } } }`
	for _, f := range c.get("__type.fields", query, map[string]any{"name": name}).([]any) {
		f := f.(map[string]any)
		of := f["type"].(map[string]any)
		for of["ofType"] != nil {
			of = of["ofType"].(map[string]any)
		}
		if kind := of["kind"]; len(f["args"].([]any)) == 0 && (kind == "SCALAR" || kind == "ENUM") {
			names = append(names, f["name"].(string))
		}
	}
	return strings.Join(names, " ")
}

// An event shows the same as a query of its post: no field is left unread.
func TestEventShowsWhatAQueryShows(t *testing.T) {
	each(t, func(c *client) {
		author, first, second := c.User("author"), c.User("first"), c.User("second")
		require.NoError(t, c.s.DB.User.UpdateOneID(author.ID).SetBio("bio").SetLinks("https://a.example\nhttps://b.example").
			SetAvatarURL("https://img.example.org/a.png").SetDefaultVisibility(schema.Mutuals).SetRole(user.RoleMODERATOR).SetApprovesFollowers(true).
			SetPostCount(15).SetPublicPostCount(1).SetFollowersPostCount(2).SetMutualsPostCount(4).SetFollowingCount(5).SetFollowerCount(6).Exec(c.ctx))
		require.NoError(t, c.s.DB.UserData.Create().SetUserID(author.ID).SetData(`{"of":"author"}`).Exec(c.ctx))
		for _, v := range []session.Viewer{first, second} {
			require.NoError(t, c.s.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(author.ID).Exec(c.ctx))
		}
		fields := c.plain("Post") + " author { " + c.plain("User") + " }"
		require.Contains(t, fields, "viewerHasLiked")
		require.Contains(t, fields, "postCount")
		for _, to := range [][]session.Viewer{{first}, {author}, {author, first, second}} {
			var subscribers []subscriber
			var ids []int64
			for _, v := range to {
				c.AwaitInbox(v)
				subscribers, ids = append(subscribers, c.subscribe(v, "subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { "+fields+" } } } } }", nil)), append(ids, v.ID)
			}
			id := c.History(author, 1)[0]
			require.NoError(t, c.s.DB.PostData.Create().SetPostID(id).SetData(`{"of":"post"}`).Exec(c.ctx))
			_, err := c.Feed.LikePost(c.ctx, to[0], id)
			require.NoError(t, err)
			_, err = live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: id, Author: author.ID}, ids)
			require.NoError(t, err)
			for i, s := range subscribers {
				node := s.next()["edge"].(map[string]any)["node"].(map[string]any)
				c.viewer = to[i]
				require.Equal(t, c.get("post", "query($id: ID!) { post(id: $id) { "+fields+" } }", map[string]any{"id": node["id"]}), node)
				require.Equal(t, map[string]any{"of": "post"}, node["data"])
				require.Equal(t, i == 0, node["viewerHasLiked"])
			}
		}
	})
}

// If one subscriber receives an event, the fields that an app shows of its post are read together with the
// verdict, in one statement, so no second verdict is needed.
func TestEventForOneCostsOneQuery(t *testing.T) {
	each(t, func(c *client) {
		author, reader := c.User("author"), c.User("reader")
		require.NoError(t, c.s.DB.Follow.Create().SetFollowerID(reader.ID).SetFolloweeID(author.ID).Exec(c.ctx))
		c.AwaitInbox(reader)
		s := c.subscribe(reader, `subscription { e: timelineEvents { ... on TimelinePostAdded { position
			edge { cursor score node { id text data likeCount viewerHasLiked author { handle name bio avatarUrl followerCount } } } } } }`, nil)
		least := math.MaxInt
		for range 10 { // periodic queries do not count
			id := c.History(author, 1)[0]
			count := storagetest.CountQueries(c.s)
			_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: id, Author: author.ID}, []int64{reader.ID})
			require.NoError(t, err)
			s.next()
			least = min(least, count())
		}
		require.Equal(t, 1, least)
	})
}
