package graph_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/workers"
)

// Nobody except the muter can tell whether a reader mutes an author: not from anything that the author
// queries, does or subscribes to, and not from anything that others query about the two.
func TestNobodyCanTellWhoMutesThem(t *testing.T) {
	t.Parallel()
	for name, stores := range map[string]func(testing.TB) *storage.Stores{
		"sqlite+embedded": storagetest.Embedded, "postgres+redis": storagetest.Real,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := tellOfMutes(newClient(t, stores(t)), true), tellOfMutes(newClient(t, stores(t)), false)
			require.True(t, slices.ContainsFunc(with, func(told string) bool {
				return strings.Contains(told, `"delivery":{"done":true,"pulled":0,"pushed":2,"skipped":1}`)
			}), "the one who is away is skipped")
			require.Len(t, with, len(without))
			for i := range with {
				require.Equal(t, without[i], with[i])
			}
		})
	}
}

// tellOfMutes plays one history of an author, readers and a stranger. It returns all answers to everyone
// except the muter, without the values that differ between any two runs: ids, times and cursors.
func tellOfMutes(c *client, mute bool) (told []string) {
	ws, err := workers.New(c.WorkersConfig())
	require.NoError(c.t, err)
	// Workers run only while nobody queries, since their progress during a query would differ between runs.
	drain := func() {
		stop := c.Run(ws.Run)
		c.Drain()
		stop()
	}
	people := map[string]session.Viewer{}
	for _, name := range []string{"author", "muter", "away", "fan", "stranger"} {
		_, people[name] = c.signUp(name)
	}
	for _, pair := range [][2]string{{"muter", "author"}, {"author", "muter"}, {"away", "author"}, {"fan", "author"}, {"author", "fan"}, {"muter", "fan"}} {
		c.Follow(people[pair[0]], people[pair[1]])
	}
	drain()
	for _, active := range []string{"author", "muter", "fan"} {
		c.AwaitInbox(people[active])
	}
	tell := func(of string, value any) {
		text, err := json.Marshal(value)
		require.NoError(c.t, err)
		told = append(told, of+" "+string(text))
	}
	ask := func() {
		const query = `{
			viewer { ...person followRequests { nodes { handle } } }
			muter: user(handle: "muter") { ...person } author: user(handle: "author") { ...person }
			users(query: "") { nodes { ...person } pageInfo { hasNextPage hasPreviousPage } }
			timeline { unreadCount nodes { ...post } pageInfo { hasNextPage hasPreviousPage } }
			ranked: timeline(order: RANKED) { nodes { text } }
		}
		fragment person on User { handle name approvesFollowers defaultVisibility followerCount followingCount postCount
			relationship { following followedBy mutual blocking muting requested }
			followers { nodes { handle } } following { nodes { handle } } posts { nodes { ...post } } }
		fragment post on Post { author { handle } text visibility likeCount viewerHasLiked delivery { pushed pulled skipped done } }`
		for _, viewer := range []string{"author", "fan", "stranger"} {
			c.viewer = people[viewer]
			tell(viewer, c.do(query, nil).Data)
		}
	}
	act := func(as, mutation string, id int64, of string) {
		c.viewer = people[as]
		a := c.do(`mutation($id: ID!) { `+mutation+` }`, map[string]any{"id": globalID(fmt.Sprint(of, ":", id))})
		tell(as+" "+mutation, []any{a.Data, a.Errors})
	}
	events := c.subscribe(people["author"], `subscription { e: timelineEvents { __typename ... on TimelinePostAdded { unreadCount edge { node { text } } } } }`, nil)

	if mute {
		_, err := c.Feed.Mute(c.ctx, people["muter"], people["author"].ID)
		require.NoError(c.t, err)
		drain()
	}
	for _, v := range []string{"PUBLIC", "FOLLOWERS", "MUTUALS", "PRIVATE"} {
		c.viewer = people["author"]
		c.get("createPost.post.id", createPost, map[string]any{"text": v, "visibility": v})
		drain()
		tell("event", events.next())
	}
	posts := c.Timeline(people["author"], 4) // newest first
	ask()
	const post = `{ post { likeCount viewerHasLiked visibility delivery { pushed pulled skipped done } } }`
	act("muter", `likePost(input: {postId: $id}) `+post, posts[3], "Post")
	act("author", `setPostVisibility(input: {postId: $id, visibility: PUBLIC}) `+post, posts[0], "Post")
	act("author", `setPostVisibility(input: {postId: $id, visibility: PRIVATE}) `+post, posts[2], "Post")
	drain()
	ask()
	const relation = `{ user { handle followerCount followingCount postCount } relationship { following followedBy mutual blocking muting requested } }`
	for _, mutation := range []string{"unfollow", "follow", "mute", "unmute", "block", "unblock"} {
		act("author", mutation+`(input: {userId: $id}) `+relation, people["muter"].ID, "User")
		drain()
	}
	ask()
	return told
}
