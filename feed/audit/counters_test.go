package audit_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/session"
)

// recount returns the wrong counters of all users and posts, in pages of n rows.
func recount(w *feedtest.World, n int, repair bool) (wrong []audit.WrongCounter, compared int) {
	w.Helper()
	recounter := audit.NewRecounter(w.Stores.DB)
	for _, page := range []func(after int64) (audit.Recounted, error){
		func(after int64) (audit.Recounted, error) { return recounter.Users(w.Ctx, after, n, repair) },
		func(after int64) (audit.Recounted, error) { return recounter.Posts(w.Ctx, after, n, repair) },
	} {
		for after := int64(0); ; {
			r, err := page(after)
			require.NoError(w, err)
			if r.Rows == 0 {
				break
			}
			require.LessOrEqual(w, r.Rows, n)
			require.Greater(w, r.Last, after)
			wrong, compared, after = append(wrong, r.Wrong...), compared+r.Rows, r.Last
		}
	}
	return wrong, compared
}

// Every wrong counter is found and corrected, and no other is reported.
func TestCounters(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat := w.User("ann"), w.User("bob"), w.User("cat")
		w.Befriend(ann, bob)
		w.Follow(cat, ann)
		var last int64
		for i, v := range []schema.Visibility{schema.Public, schema.Public, schema.Public, schema.Followers, schema.Followers, schema.Mutuals, schema.Private} {
			last = w.Post(ann, v)
			if i == 0 {
				_, err := w.Feed.HidePost(w.Ctx, last, true, func(*ent.Tx, int64) error { return nil })
				require.NoError(w, err)
			}
		}
		for _, v := range []session.Viewer{ann, bob} {
			_, err := w.Feed.LikePost(w.Ctx, v, w.Post(bob, schema.Public))
			require.NoError(w, err)
		}
		newest, err := w.Stores.DB.User.Get(w.Ctx, bob.ID)
		require.NoError(w, err)
		// The counters of users count neither the replies nor the reposts.
		answered := newest.LastPostID
		var quotes []int64
		for i, v := range []session.Viewer{ann, bob, cat} {
			for range 3 {
				_, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "a reply", ReplyTo: answered})
				require.NoError(w, err)
			}
			if i == 0 {
				continue
			}
			_, err = w.Feed.Repost(w.Ctx, v, answered, nil)
			require.NoError(w, err)
			p, err := w.Feed.CreatePost(w.Ctx, cat, feed.Draft{Text: "a quote", QuoteOf: answered})
			require.NoError(w, err)
			quotes = append(quotes, p.ID)
		}
		_, err = w.Feed.WithdrawQuote(w.Ctx, bob, quotes[0])
		require.NoError(w, err)
		gone, err := w.Feed.CreatePost(w.Ctx, cat, feed.Draft{Text: "its likes are being deleted", ReplyTo: answered, QuoteOf: answered})
		require.NoError(w, err)
		w.Stores.DB.Post.UpdateOneID(gone.ID).SetLikeCount(1_000_000).ExecX(w.Ctx)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, cat, gone.ID))
		require.NoError(w, err)
		total, err := audit.NewRecounter(w.Stores.DB).Count(w.Ctx)
		require.NoError(w, err)
		total-- // the post whose likes are being deleted
		all := func() []audit.WrongCounter {
			w.Helper()
			wrong, compared := recount(w, 2, false)
			require.Equal(w, total, compared)
			return wrong
		}
		require.Empty(w, all())
		last = w.Stores.DB.User.GetX(w.Ctx, ann.ID).LastPostID

		for _, c := range []struct {
			table string
			wrong audit.WrongCounter
		}{
			{"users", audit.WrongCounter{ID: ann.ID, Column: "follower_count", Stored: 1, Correct: 2}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "following_count", Stored: -1, Correct: 1}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "post_count", Stored: 6, Correct: 7}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "public_post_count", Stored: 3, Correct: 2}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "followers_post_count", Stored: 0, Correct: 2}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "mutuals_post_count", Stored: 77, Correct: 1}},
			{"users", audit.WrongCounter{ID: ann.ID, Column: "last_post_id", Stored: last - 1, Correct: last}},
			{"users", audit.WrongCounter{ID: cat.ID, Column: "post_count", Stored: 1, Correct: 2}},
			{"posts", audit.WrongCounter{ID: answered, Column: "like_count", Stored: 5, Correct: 1}},
			{"posts", audit.WrongCounter{ID: answered, Column: "reply_count", Stored: 10, Correct: 9}},
			{"posts", audit.WrongCounter{ID: answered, Column: "repost_count", Stored: 0, Correct: 2}},
			{"posts", audit.WrongCounter{ID: answered, Column: "quote_count", Stored: 2, Correct: 1}},
		} {
			_, err := w.Stores.SQL.ExecContext(w.Ctx, fmt.Sprintf("UPDATE %s SET %s = $1 WHERE id = $2", c.table, c.wrong.Column), c.wrong.Stored, c.wrong.ID)
			require.NoError(w, err)
			require.Equal(w, []audit.WrongCounter{c.wrong}, all())
			repaired, _ := recount(w, 2, true)
			require.Equal(w, []audit.WrongCounter{c.wrong}, repaired)
			require.Empty(w, all(), c.wrong.Column)
		}
		require.NoError(w, w.Stores.DB.User.UpdateOneID(ann.ID).SetLastPostID(last+1).Exec(w.Ctx))
		require.Empty(w, all(), "readers look for what is not there, and that is all")

		// Several counters of one user, and users on several pages, at once.
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "UPDATE users SET follower_count = 9, post_count = 9")
		require.NoError(w, err)
		repaired, _ := recount(w, 1, true)
		require.Len(w, repaired, 6)
		require.Empty(w, all())
	})
}

// Users and posts that are being deleted have no counters.
func TestCountersOfWhatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Befriend(ann, bob)
		liked, deleted := w.Post(ann, schema.Public), w.Post(bob, schema.Public)
		for _, sql := range []string{
			fmt.Sprintf("UPDATE users SET post_count = 7, hidden = true WHERE id = %d", ann.ID),
			fmt.Sprintf("UPDATE posts SET like_count = 7 WHERE id = %d", liked),
			fmt.Sprintf("UPDATE posts SET like_count = 7, visibility = 'DELETED' WHERE id = %d", deleted),
			fmt.Sprintf("UPDATE users SET post_count = 0, public_post_count = 0 WHERE id = %d", bob.ID),
		} {
			_, err := w.Stores.SQL.ExecContext(w.Ctx, sql)
			require.NoError(w, err)
		}
		states := w.Stores.DB.HiddenUser
		require.NoError(w, states.Create().SetID(ann.ID).SetState(hiddenuser.StateSUSPENDED).SetDueAt(time.Now()).Exec(w.Ctx))
		wrong, _ := recount(w, 10, false)
		require.Equal(w, []audit.WrongCounter{{ID: ann.ID, Column: "post_count", Stored: 7, Correct: 1}, {ID: liked, Column: "like_count", Stored: 7}}, wrong,
			"who may come back is counted")
		require.NoError(w, states.UpdateOneID(ann.ID).SetState(hiddenuser.StateDELETING).Exec(w.Ctx))
		wrong, compared := recount(w, 10, true)
		require.Empty(w, wrong)
		require.Equal(w, 1, compared)
	})
}

// While others write, no correct counter is reported as wrong, and a repair loses none of their
// changes.
func TestCountersUnderLoad(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(6)
		popular := w.Post(users[0], schema.Public)
		const rounds = 12
		var writers sync.WaitGroup
		for i, v := range users[1:] {
			writers.Go(func() {
				do := func(err error) bool {
					if err != nil {
						w.Errorf("write: %v", err)
					}
					return err == nil
				}
				for round := range rounds {
					_, err := w.Feed.Follow(w.Ctx, v, users[0].ID)
					if !do(err) {
						return
					}
					if _, err = w.Feed.LikePost(w.Ctx, v, popular); !do(err) {
						return
					}
					visibility := schema.Visibility(schema.Public.Values()[(i+round)%4])
					p, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "hello", Visibility: &visibility})
					if !do(err) {
						return
					}
					if round%2 == 1 && !do(w.Feed.DeletePost(w.Ctx, v, p.ID)) {
						return
					}
					if round == rounds-1 {
						return
					}
					if _, err = w.Feed.UnlikePost(w.Ctx, v, popular); !do(err) {
						return
					}
					if _, err = w.Feed.Unfollow(w.Ctx, v, users[0].ID); !do(err) {
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { writers.Wait(); close(done) }()
		defer func() { <-done }() // also if the test fails
		for first := true; ; first = false {
			wrong, _ := recount(w, 3, false)
			require.Empty(w, wrong)
			for _, u := range users { // one by one: writers lock rows in the order of ids
				_, err := w.Stores.SQL.ExecContext(w.Ctx, "UPDATE users SET follower_count = follower_count + 3, post_count = post_count - 1, last_post_id = 0 WHERE id = $1", u.ID)
				require.NoError(w, err)
			}
			_, err := w.Stores.SQL.ExecContext(w.Ctx, "UPDATE posts SET like_count = like_count + 2 WHERE id = $1", popular)
			require.NoError(w, err)
			repaired, _ := recount(w, 3, true)
			if first {
				require.NotEmpty(w, repaired)
			}
			select {
			case <-done:
				wrong, _ := recount(w, 100, false)
				require.Empty(w, wrong)
				found, err := w.Directory.Users(w.Ctx, []int64{users[0].ID})
				require.NoError(w, err)
				require.Equal(w, len(users)-1, found[0].FollowerCount)
				return
			default:
			}
		}
	})
}
