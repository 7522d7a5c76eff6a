package seed

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	entpost "tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/ids"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestDemoNetwork(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		ctx := t.Context()
		before := time.Now()
		var out bytes.Buffer
		require.NoError(t, Run(ctx, s, Options{Users: 150, Posts: 1200, Seed: 1}, &out, io.Discard))
		assert.Contains(t, out.String(), "Log in as demo, or as any of them, with the password tideline-demo\n")

		users := s.DB.User.Query().AllX(ctx)
		assert.Len(t, users, 150)
		assert.Equal(t, 1200, s.DB.Post.Query().CountX(ctx))
		requireCounted(t, s)
		requireLawful(t, s)

		hashes := map[string]bool{}
		for _, u := range users {
			hashes[u.PasswordHash] = true
		}
		assert.Len(t, hashes, 1)

		for _, p := range s.DB.Post.Query().WithAuthor().AllX(ctx) {
			at := ids.TimeOf(p.ID)
			assert.True(t, at.Before(before) && at.After(before.Add(-29*24*time.Hour)), "post at %v", at)
			assert.True(t, at.After(p.Edges.Author.CreatedAt))
		}
		for _, f := range s.DB.Follow.Query().AllX(ctx) {
			assert.False(t, f.CreatedAt.After(before))
		}
		requireSkewed(t, users)

		demo := s.DB.User.Query().Where(user.Handle(DemoHandle)).OnlyX(ctx)
		assert.Positive(t, s.DB.FollowRequest.Query().Where(followrequest.TargetID(demo.ID)).CountX(ctx))
		assert.Positive(t, demo.FollowerCount)
		assert.GreaterOrEqual(t, demo.FollowingCount, 20)
		followees := s.DB.Follow.Query().Where(follow.FollowerID(demo.ID)).AllX(ctx)
		ids := make([]int64, len(followees))
		for i, f := range followees {
			ids[i] = f.FolloweeID
		}
		for _, v := range schema.Public.Values() {
			assert.True(t, s.DB.Post.Query().Where(entpost.VisibilityEQ(schema.Visibility(v)), entpost.AuthorIDIn(ids...)).ExistX(ctx),
				"somebody the demo follows posted %s", v)
			assert.True(t, s.DB.Post.Query().Where(entpost.VisibilityEQ(schema.Visibility(v)), entpost.AuthorID(demo.ID)).ExistX(ctx))
		}

		root := s.DB.Post.Query().Where(entpost.AuthorID(demo.ID), entpost.VisibilityEQ(schema.Public), entpost.ReplyCountGT(0), entpost.RepostCountGT(0), entpost.QuoteCountGT(0)).FirstX(ctx)
		assert.GreaterOrEqual(t, s.DB.Post.Query().Where(entpost.RootID(root.ID), entpost.ParentIDNotNil()).CountX(ctx), 5)

		err := Run(ctx, s, Options{Users: 150, Posts: 1200, Seed: 2}, &out, io.Discard)
		assert.ErrorContains(t, err, "this database has a demo network already")
		assert.Equal(t, 150, s.DB.User.Query().CountX(ctx))
	})
}

// requireLawful checks that the rows could be results of requests.
func requireLawful(t *testing.T, s *storage.Stores) {
	t.Helper()
	const blocked = `EXISTS (SELECT 1 FROM blocks WHERE (blocker_id = %a AND blocked_id = %b) OR (blocker_id = %b AND blocked_id = %a))`
	between := func(a, b string) string { return strings.NewReplacer("%a", a, "%b", b).Replace(blocked) }
	for what, condition := range map[string]string{
		"follows oneself":                    `follows WHERE follower_id = followee_id`,
		"asks oneself":                       `follow_requests WHERE requester_id = target_id`,
		"blocks oneself":                     `blocks WHERE blocker_id = blocked_id`,
		"mutes oneself":                      `mutes WHERE muter_id = muted_id`,
		"follows despite a block":            `follows WHERE ` + between("follower_id", "followee_id"),
		"asks despite a block":               `follow_requests WHERE ` + between("requester_id", "target_id"),
		"asks and follows":                   `follow_requests r JOIN follows f ON r.requester_id = f.follower_id AND r.target_id = f.followee_id`,
		"asks where nobody approves":         `follow_requests r JOIN users u ON u.id = r.target_id WHERE NOT u.approves_followers`,
		"answers what is not public":         `posts p JOIN posts q ON q.id IN (p.root_id, p.parent_id, p.repost_of, p.quote_of) WHERE q.visibility <> 'PUBLIC'`,
		"answers a later post":               `posts p JOIN posts q ON q.id IN (p.root_id, p.parent_id, p.repost_of, p.quote_of) WHERE q.id >= p.id`,
		"answers a repost":                   `posts p JOIN posts q ON q.id IN (p.root_id, p.parent_id, p.repost_of, p.quote_of) WHERE q.repost_of IS NOT NULL`,
		"answers despite a block":            `posts p JOIN posts q ON q.id IN (p.root_id, p.parent_id, p.repost_of, p.quote_of) WHERE ` + between("p.author_id", "q.author_id"),
		"has another root than its parent":   `posts p JOIN posts q ON q.id = p.parent_id WHERE p.root_id <> coalesce(q.root_id, q.id) OR p.parent_author_id <> q.author_id`,
		"has another root than its original": `posts p JOIN posts q ON q.id = p.repost_of WHERE coalesce(p.root_id, 0) <> coalesce(q.root_id, 0)`,
		"mentions despite a block":           `post_mentions n JOIN posts p ON p.id = n.post_id WHERE ` + between("p.author_id", "n.user_id"),
		"likes a repost":                     `likes l JOIN posts p ON p.id = l.post_id WHERE p.repost_of IS NOT NULL`,
		"likes what is private":              `likes l JOIN posts p ON p.id = l.post_id WHERE p.visibility = 'PRIVATE'`,
		"likes without following": `likes l JOIN posts p ON p.id = l.post_id WHERE p.visibility <> 'PUBLIC' AND NOT EXISTS (
			SELECT 1 FROM follows WHERE follower_id = l.user_id AND followee_id = p.author_id)`,
		"likes without being friends": `likes l JOIN posts p ON p.id = l.post_id WHERE p.visibility = 'MUTUALS' AND NOT EXISTS (
			SELECT 1 FROM follows WHERE follower_id = p.author_id AND followee_id = l.user_id)`,
	} {
		var n int
		require.NoError(t, s.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM "+condition).Scan(&n))
		require.Zero(t, n, what)
	}
	for _, table := range []string{"follows", "follow_requests", "blocks", "mutes", "likes", "post_mentions"} {
		var n int
		require.NoError(t, s.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		require.Positive(t, n, "rows in %s", table)
	}
	if s.Dialect == "sqlite3" {
		rows, err := s.SQL.QueryContext(t.Context(), "PRAGMA foreign_key_check")
		require.NoError(t, err)
		defer rows.Close()
		require.False(t, rows.Next(), "a foreign key points nowhere")
		require.NoError(t, rows.Err())
	}
}

// requireSkewed checks that few people have many followers and many people have few.
func requireSkewed(t *testing.T, users []*ent.User) {
	t.Helper()
	followers := make([]int, len(users))
	sum := 0
	for i, u := range users {
		followers[i] = u.FollowerCount
		sum += u.FollowerCount
	}
	slices.Sort(followers)
	top, median, mean := followers[len(followers)-1], followers[len(followers)/2], sum/len(followers)
	assert.Greater(t, top, 4*mean)
	assert.Less(t, median, mean)
}

func TestDemoMakesWayForPeople(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	m := newMaker(5, time.Now())
	m.makePeople(30)
	theirs := m.people[7].handle
	s.DB.User.Create().SetID(1).SetHandle(theirs).SetPasswordHash("").ExecX(t.Context())

	require.NoError(t, Run(t.Context(), s, Options{Users: 30, Posts: 100, Seed: 5}, io.Discard, io.Discard))
	assert.Equal(t, 31, s.DB.User.Query().CountX(t.Context()))
	assert.Equal(t, 1, s.DB.User.Query().Where(user.HandleHasPrefix(theirs), user.IDNEQ(1)).CountX(t.Context()))
}

func TestSameSeedSameNetwork(t *testing.T) {
	t.Parallel()
	texts := func(seed uint64, now time.Time) (all []string) {
		m := newMaker(seed, now)
		m.makePeople(40)
		m.makeRelations()
		m.makePosts(200)
		m.talk()
		m.makeLikes()
		for _, p := range m.people {
			all = append(all, p.handle, p.name, p.bio)
		}
		for _, p := range m.posts {
			all = append(all, p.text)
		}
		return all
	}
	now := time.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC)
	assert.Equal(t, texts(1, now), texts(1, now.Add(100*time.Hour)))
	assert.NotEqual(t, texts(1, now), texts(2, now))
}

func TestEverythingMadeUpMayBeSaid(t *testing.T) {
	t.Parallel()
	m := newMaker(3, time.Now())
	m.makePeople(3000)
	m.makeRelations()
	m.makePosts(4000)
	handles, ids := map[string]bool{}, map[int64]bool{}
	valid := func(s string, least, most int) {
		n := len([]rune(s))
		assert.True(t, n >= least && n <= most && !strings.ContainsAny(s, "{}"), "%d characters: %q", n, s)
	}
	for _, p := range m.people {
		clean, err := account.Handle(p.handle)
		assert.NoError(t, err)
		assert.Equal(t, p.handle, clean)
		handles[p.handle], ids[p.id] = true, true
		valid(p.name, 1, account.MaxName)
		valid(p.bio, 0, account.MaxBio)
	}
	longest, han, emoji := 0, false, false
	for _, p := range m.posts {
		valid(p.text, 1, 5000)
		assert.Equal(t, strings.TrimSpace(p.text), p.text)
		ids[p.id] = true
		assert.Less(t, p.id, int64(1)<<53)
		longest = max(longest, len([]rune(p.text)))
		han, emoji = han || strings.ContainsAny(p.text, "好今"), emoji || strings.Contains(p.text, "🌊")
	}
	assert.Len(t, handles, 3000)
	assert.Len(t, ids, 7000)
	assert.Greater(t, longest, 800)
	assert.True(t, han && emoji)
}

func TestTheSmallestAndTheEmptiestDemo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := newMaker(seed, time.Now())
		m.makePeople(10)
		m.makeRelations()
		m.makePosts(0)
		m.talk()
		m.makeLikes()
		assert.NotEmpty(t, m.follows)
		assert.NotEmpty(t, m.blocks)
		assert.NotEmpty(t, m.requests)
	}
	s := storagetest.Embedded(t)
	require.NoError(t, Run(t.Context(), s, Options{Users: 10, Seed: 9}, io.Discard, io.Discard))
	requireCounted(t, s)
}

func TestOptionsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"--users is 9: it must be 10 to 10000":      {Users: 9},
		"--posts is 100001: it must be 0 to 100000": {Users: 10, Posts: 100_001},
		"belong to an import":                       {Users: 10, Strict: true},
	} {
		assert.ErrorContains(t, Run(t.Context(), nil, o, nil, nil), want)
	}
}
