package visibility_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// A statement for several entries gives the same answers as a statement for each, also if an author
// or a post is gone or hidden, an entry occurs twice, or a page is full.
func TestManyAreAnsweredAsOne(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(6)
		random := rand.New(rand.NewPCG(1, 2))
		for _, viewer := range users {
			for _, author := range users {
				if viewer != author {
					relate(w, viewer, author, visibility.Following*flag(random.IntN(4) > 0)|visibility.Muting*flag(random.IntN(3) == 0))
				}
			}
		}
		hidden := users[5]
		require.NoError(w, w.Stores.DB.User.UpdateOneID(hidden.ID).SetHidden(true).Exec(w.Ctx))
		gone := w.Post(users[0], schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, users[0], gone))
		written := []visibility.Written{{Author: users[0].ID, Post: gone}, {Author: 7, Post: gone}, {Author: users[0].ID, Post: 9}}
		var followed []visibility.Followed
		for _, author := range slices.Concat(users, []session.Viewer{users[0], {ID: 7}}) {
			for i, v := range []schema.Visibility{schema.Public, schema.Mutuals, schema.Private} {
				post := &ent.Post{ID: 1, AuthorID: author.ID, Visibility: v}
				followed = append(followed,
					visibility.Followed{Author: author.ID, Change: visibility.PostChange{Current: post}, Limit: 1 + 2*i},
					visibility.Followed{Author: author.ID, Change: visibility.PostChange{Before: post, Previous: []*ent.Post{post}}, Limit: 3})
			}
			if author.ID != 7 && author != hidden {
				written = append(written, visibility.Written{Author: author.ID, Post: w.Post(author, schema.Followers)})
			}
		}
		written = append(written, visibility.Written{Author: hidden.ID, Post: written[3].Post}, written[3])

		stored, err := w.Visibility.Unchecked.WithAuthors(w.Ctx, written)
		require.NoError(w, err)
		for i, of := range written {
			author, post, err := w.Visibility.Unchecked.WithAuthor(w.Ctx, of.Author, of.Post)
			require.NoError(w, err)
			require.Equal(w, visibility.Stored{Author: author, Post: post}, stored[i], of)
		}
		pages, err := w.Visibility.Followers.Audiences(w.Ctx, followed)
		require.NoError(w, err)
		byID := func(a, b visibility.Follower) int { return int(a.ID - b.ID) }
		full := 0
		for i, of := range followed {
			followers, next, err := w.Visibility.Followers.Audience(w.Ctx, of.Author, of.Change, nil, 0, 0, of.Limit)
			require.NoError(w, err)
			slices.SortFunc(followers, byID)
			slices.SortFunc(pages[i].Followers, byID)
			require.Equal(w, followers, pages[i].Followers, of)
			require.Equal(w, next, pages[i].Next)
			if next != 0 {
				full++
			}
		}
		require.Positive(w, full)
	})
}

// A verdict for several users equals the verdicts for each user alone, for a few of the author's
// followers and for most of them.
func TestVerdictForManyIsThatForEach(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(14)
		author, others := users[0], users[1:]
		for i, viewer := range others {
			relate(w, viewer, author, visibility.Following*flag(i != 3)|visibility.FollowedBy*flag(i%2 == 0)|
				visibility.Muting*flag(i == 1)|visibility.Blocking*flag(i == 3))
		}
		ids := []int64{author.ID}
		for _, viewer := range others {
			ids = append(ids, viewer.ID)
		}
		for _, v := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private} {
			post := w.Post(author, v)
			alone, seeing := map[int64]bool{}, 0
			for _, id := range ids {
				verdict, err := w.Visibility.Judge(w.Ctx, post, []int64{id})
				require.NoError(w, err)
				if alone[id] = verdict.Sees(id); alone[id] {
					seeing++
				}
			}
			require.Equal(w, map[schema.Visibility]int{schema.Public: 12, schema.Followers: 12, schema.Mutuals: 8, schema.Private: 1}[v], seeing, v)
			for some := range slices.Chunk(ids, 2) {
				requireVerdict(w, post, some, alone)
			}
			requireVerdict(w, post, ids, alone)
			// The stored count is too low: the author has more followers than are read at once.
			count := w.Stores.DB.User.GetX(w.Ctx, author.ID).FollowerCount
			require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetFollowerCount(0).Exec(w.Ctx))
			for some := range slices.Chunk(ids, 2) {
				requireVerdict(w, post, some, alone)
			}
			require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetFollowerCount(count).Exec(w.Ctx))
		}
	})
}

// flag returns 1 for true.
func flag(set bool) visibility.Relation {
	if set {
		return 1
	}
	return 0
}

func requireVerdict(w *feedtest.World, post int64, users []int64, sees map[int64]bool) {
	w.Helper()
	verdict, err := w.Visibility.Judge(w.Ctx, post, users)
	require.NoError(w, err)
	for _, user := range users {
		require.Equal(w, sees[user], verdict.Sees(user), "%d of %d", user, len(users))
	}
}

// PostgreSQL keeps the plan of the statement that reads one post, and does not plan it each time.
func TestOnePostIsReadByAPlanThatIsKept(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		if w.Stores.Dialect != dialect.Postgres {
			return
		}
		users := w.Users(2)
		relate(w, users[0], users[1], visibility.Following)
		post := w.Post(users[1], schema.Public)
		w.Stores.SQL.SetMaxOpenConns(1) // a connection keeps its own plans
		for range 20 {
			posts, err := w.Visibility.Posts(w.Ctx, visibility.Home, users[0].ID, []int64{post}, visibility.All)
			require.NoError(w, err)
			require.NotNil(w, posts[0])
		}
		var kept int
		require.NoError(w, w.Stores.SQL.QueryRowContext(w.Ctx, "SELECT max(generic_plans) FROM pg_prepared_statements WHERE statement LIKE '%FROM posts p JOIN%'").Scan(&kept))
		require.Greater(w, kept, 10)
	})
}
