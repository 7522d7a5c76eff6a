package visibility_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage/storagetest"
)

// A reader that has read replies and reposts before reads their roots and originals in the same statement,
// and shows the same as a reader that has not: also after a root, an original or the author of a parent is gone.
func TestRootsAndOriginalsThatWereReadBefore(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		author, other := w.User("author"), w.User("other")
		viewers := []session.Viewer{author, other, {}}
		follower := func(handle string) session.Viewer {
			v := w.User(handle)
			relate(w, v, author, visibility.Following)
			viewers = append(viewers, v)
			return v
		}
		fan, blocked, muter := follower("fan"), follower("blocked"), follower("muter")
		relate(w, fan, other, visibility.Mutual)
		relate(w, blocked, other, visibility.BlockedBy)
		require.NoError(w, w.Stores.DB.User.UpdateOneID(follower("quiet").ID).SetHomeReplies(schema.NoReplies).Exec(w.Ctx))
		require.NoError(w, w.Stores.DB.MutedWord.Create().SetUserID(follower("wordy").ID).SetWord("root").SetHead("root").SetCreatedAt(time.Now()).Exec(w.Ctx))

		insert := func(by session.Viewer, text string, v schema.Visibility, columns string, values ...any) int64 {
			id, err := w.IDs.Next()
			require.NoError(w, err)
			marks := ""
			for i := range values {
				marks += ", $" + strconv.Itoa(i+5)
			}
			_, err = w.Stores.SQL.ExecContext(w.Ctx, "INSERT INTO posts (id, author_id, text, visibility"+columns+") VALUES ($1, $2, $3, $4"+marks+")",
				append([]any{id, by.ID, text, string(v)}, values...)...)
			require.NoError(w, err)
			return id
		}
		const replyTo, repostOf = ", parent_id, parent_author_id, root_id", ", repost_of, root_id"
		plain := insert(author, "plain", schema.Public, "")
		root := insert(other, "a root", schema.Public, "")
		friends := insert(other, "a root for friends", schema.Mutuals, "")
		reply := insert(author, "reply", schema.Public, replyTo, root, other.ID, root)
		toFriends := insert(author, "reply", schema.Public, replyTo, friends, other.ID, friends)
		ofReply := insert(author, "", schema.Public, repostOf, reply, root)
		ofRoot := insert(author, "", schema.Public, repostOf, root, nil)
		require.NoError(w, w.Stores.DB.MutedConversation.Create().SetUserID(muter.ID).SetRootID(root).Exec(w.Ctx))
		page := []int64{ofRoot, ofReply, toFriends, reply, root, plain}

		require.Eventually(w, func() bool { // background work runs statements, too
			asked, cold := storagetest.CountQueries(w.Stores), visibility.New(w.Stores.DB, w.Stores.Dialect)
			_, _, err := cold.ByIDs(w.Ctx, fan.ID, page, visibility.All)
			require.NoError(w, err)
			first := asked()
			asked = storagetest.CountQueries(w.Stores)
			_, _, err = cold.ByIDs(w.Ctx, fan.ID, page, visibility.All)
			require.NoError(w, err)
			return first == 2 && asked() == 1
		}, time.Minute, time.Millisecond)

		many := slices.Concat(page, make([]int64, 200))
		reads := [][]int64{page, page[:4], {reply}, {ofReply}, {reply, ofReply, reply}, many}
		shown := map[visibility.Surface]int{}
		// same compares readers that have read the page before the change with one that has not.
		same := func(change string) {
			warm := make([]*visibility.Reader, len(viewers))
			for i, viewer := range viewers {
				warm[i] = visibility.New(w.Stores.DB, w.Stores.Dialect)
				_, _, err := warm[i].ByIDs(w.Ctx, viewer.ID, page, 0)
				require.NoError(w, err)
			}
			if change != "" {
				_, err := w.Stores.SQL.ExecContext(w.Ctx, change, reply)
				require.NoError(w, err)
			}
			for i, viewer := range viewers {
				for _, on := range []visibility.Surface{visibility.Direct, visibility.Home} {
					for _, with := range []visibility.Fields{0, visibility.Bare, visibility.All} {
						for _, ids := range reads {
							expected, err := visibility.New(w.Stores.DB, w.Stores.Dialect).Posts(w.Ctx, on, viewer.ID, ids, with)
							require.NoError(w, err)
							posts, err := warm[i].Posts(w.Ctx, on, viewer.ID, ids, with)
							require.NoError(w, err)
							require.Equal(w, expected, posts, "%s: viewer %d, surface %d, fields %b, posts %v", change, i, on, with, ids)
							for _, p := range posts {
								if p != nil {
									shown[on]++
								}
							}
						}
					}
				}
			}
		}
		same("")
		require.Positive(w, shown[visibility.Direct])
		require.Positive(w, shown[visibility.Home])
		same("UPDATE posts SET parent_author_id = NULL WHERE id = $1")
		same("UPDATE posts SET visibility = 'PRIVATE' WHERE root_id IS NULL AND id <> $1")
		same("DELETE FROM posts WHERE id = $1")
	})
}
