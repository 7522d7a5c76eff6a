package visibility_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// A muted conversation is hidden wherever a home timeline is read, and nowhere else. Inboxes have it,
// so nothing is rebuilt when it is muted.
func TestAMutedConversationIsHiddenOnEverySurfaceOfHomeTimelines(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		author, muter, other := w.User("author"), w.User("muter"), w.User("other")
		viewers := []session.Viewer{muter, other, w.User("third")}
		for _, viewer := range viewers {
			relate(w, viewer, author, visibility.Following)
		}
		insert := func(columns string, values ...any) int64 {
			id, err := w.IDs.Next()
			require.NoError(w, err)
			_, err = w.Stores.SQL.ExecContext(w.Ctx, "INSERT INTO posts (id, author_id, text, visibility, "+columns, append([]any{id, author.ID, "a text", string(schema.Public)}, values...)...)
			require.NoError(w, err)
			return id
		}
		root := insert("quote_count) VALUES ($1, $2, $3, $4, 0)")
		reply := insert("parent_id, parent_author_id, root_id) VALUES ($1, $2, $3, $4, $5, $2, $5)", root)
		ofReply := insert("repost_of, root_id) VALUES ($1, $2, $3, $4, $5, $6)", reply, root)
		ofRoot := insert("repost_of) VALUES ($1, $2, $3, $4, $5)", root)
		w.Posted(author)
		all, without := []int64{root, reply, ofReply, ofRoot}, []int64{root, ofRoot}
		require.NoError(w, w.Stores.DB.MutedConversation.Create().SetUserID(muter.ID).SetRootID(root).Exec(w.Ctx))
		require.NoError(w, w.Stores.DB.MutedConversation.Create().SetUserID(other.ID).SetRootID(reply).Exec(w.Ctx), "which is not a root")

		s := surfaces{w, visibility.New(w.Stores.DB, w.Stores.Dialect), author.ID, []int64{viewers[0].ID, viewers[1].ID, viewers[2].ID}, all}
		has := func(muters []int64) map[int64][]int64 {
			return map[int64][]int64{viewers[0].ID: muters, viewers[1].ID: all, viewers[2].ID: all}
		}
		inboxes := []string{"posts by key for edits", "sync", "pull of ids", "audience", "audience with objections", "audience, all of few", "audience, some of many", "audiences"}
		home := s.home()
		for name, shown := range home {
			expected := without
			if slices.Contains(inboxes, name) {
				expected = all
			}
			require.Equal(w, has(expected), shown, name)
		}
		for _, name := range inboxes {
			require.Contains(w, home, name)
		}
		for name, shown := range s.direct() {
			require.Equal(w, has(all), shown, name)
		}
		require.Equal(w, has(without), s.byKey(visibility.Tagged))
		require.Equal(w, has(all), s.byKey(visibility.OfAuthor))
		_, why, err := s.r.WhyHidden(w.Ctx, muter.ID, ofReply)
		require.NoError(w, err)
		require.Equal(w, "it belongs to a conversation that the viewer mutes", why)
		own, err := s.r.Posts(w.Ctx, visibility.Home, author.ID, all, 0)
		require.NoError(w, err)
		require.NoError(w, w.Stores.DB.MutedConversation.Create().SetUserID(author.ID).SetRootID(root).Exec(w.Ctx))
		again, err := s.r.Posts(w.Ctx, visibility.Home, author.ID, all, 0)
		require.NoError(w, err)
		require.Equal(w, idsOf(own), idsOf(again), "the author keeps the own posts")
	})
}
