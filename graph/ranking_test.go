package graph_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/graph/exec"
)

// A client pages by a named ranking, in a compiled query and in one that gqlgen executes. Likes
// between two pages change the remaining order. Each post still occurs once, in both directions, and
// each page is sorted by its scores.
func TestPagesOfANamedRanking(t *testing.T) {
	const (
		down  = `query($by: String, $at: Cursor) { timeline(order: RANKED, ranking: $by, first: 2, after: $at) `
		up    = `query($by: String, $at: Cursor) { timeline(order: RANKED, ranking: $by, last: 2, before: $at) `
		slow  = `@include(if: true) `
		shown = `{ edges { cursor score node { id likeCount } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }`
	)
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		var posts []string
		for range 7 {
			posts = append(posts, ent.NodeID("Post", c.Post(ann, schema.Public)))
		}
		likers := c.Users(2)
		like := func(by int, post string) {
			c.viewer = likers[by]
			c.get("likePost", `mutation($id: ID!) { likePost(input: {postId: $id}) { post { id } } }`, map[string]any{"id": post})
			c.viewer = ann
		}
		for _, author := range likers {
			c.Follow(author, ann)
		}
		page := func(query, by string, at any) (ids []string, info map[string]any) {
			c.t.Helper()
			a := c.do(query, map[string]any{"by": by, "at": at})
			require.Empty(c.t, a.Errors)
			var scores []float64
			for _, e := range a.at("timeline.edges").([]any) {
				edge := e.(map[string]any)
				node := edge["node"].(map[string]any)
				ids, scores = append(ids, node["id"].(string)), append(scores, edge["score"].(float64))
				if by == "unliked" {
					require.Equal(c.t, -node["likeCount"].(float64), edge["score"])
				}
			}
			require.True(c.t, slices.IsSortedFunc(scores, func(a, b float64) int { return cmp.Compare(b, a) }), "%v", scores)
			return ids, a.at("timeline.pageInfo").(map[string]any)
		}
		c.viewer = ann
		require.Equal(c.t, []any{"hot", "unliked"}, c.get("limits.rankings", `{ limits { rankings } }`, nil))
		like(0, posts[6])
		first, _ := page(down+shown, "hot", nil)
		require.Equal(c.t, []string{posts[6], posts[5]}, first)
		first, _ = page(down+shown, "unliked", nil)
		require.Equal(c.t, []string{posts[5], posts[4]}, first, "the liked one is the last")
		for _, w := range []struct {
			query, more, cursor string
			compiled            bool
		}{
			{down + shown, "hasNextPage", "endCursor", true}, {up + shown, "hasPreviousPage", "startCursor", true},
			{down + slow + shown, "hasNextPage", "endCursor", false}, {up + slow + shown, "hasPreviousPage", "startCursor", false},
		} {
			op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: w.query})
			require.Empty(c.t, errs)
			require.Equal(c.t, w.compiled, op.Compiled())
			var all []string
			var at any
			for turn := 0; turn == 0 || at != nil; turn++ {
				ids, info := page(w.query, "unliked", at)
				all, at = append(all, ids...), nil
				if info[w.more] == true {
					require.Len(c.t, ids, 2, "a page is full while there is more")
					at = info[w.cursor]
				}
				for by, id := range posts[turn : turn+2] {
					like(by, id)
				}
			}
			slices.Sort(all)
			require.Equal(c.t, slices.Sorted(slices.Values(posts)), all, "each once")
		}
	})
}
