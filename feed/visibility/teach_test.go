package visibility_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// A relation that is added to the tables of the rule is respected wherever a post is shown, and by
// everything that reads relations: without an entry, it changes nothing.
//
// It changes the rule of the process, so it does not run beside other tests.
func TestANewRelationIsRespectedEverywhere(t *testing.T) { //nolint:paralleltest // see above
	feedtest.EachIdle(t, func(w *feedtest.World) {
		sql := func(query string, args ...any) {
			_, err := w.Stores.SQL.ExecContext(w.Ctx, query, args...)
			require.NoError(w, err)
		}
		sql("CREATE TABLE close_friends (author_id bigint, friend_id bigint)")
		sql("CREATE TABLE avoided (viewer_id bigint, other_id bigint)")
		author, fan, friend, avoiding, stranger := w.User("author"), w.User("fan"), w.User("friend"), w.User("avoiding"), w.User("stranger")
		for _, viewer := range []session.Viewer{fan, friend, avoiding} {
			relate(w, viewer, author, visibility.Following)
		}
		for _, viewer := range []session.Viewer{friend, avoiding, stranger} {
			sql("INSERT INTO close_friends VALUES ($1, $2)", author.ID, viewer.ID)
		}
		sql("INSERT INTO avoided VALUES ($1, $2)", avoiding.ID, author.ID)
		all := map[schema.Visibility]int64{}
		for _, v := range []schema.Visibility{schema.Public, schema.Mutuals, visibility.Close} {
			id, err := w.IDs.Next()
			require.NoError(w, err)
			sql("INSERT INTO posts (id, author_id, text, visibility) VALUES ($1, $2, 'a text', $3)", id, author.ID, string(v))
			require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetLastPostID(id).Exec(w.Ctx))
			all[v] = id
		}
		public, closed := all[schema.Public], all[visibility.Close]
		viewers := []int64{fan.ID, friend.ID, avoiding.ID, stranger.ID}
		check := func(home, direct map[int64][]int64) {
			s := surfaces{w, visibility.New(w.Stores.DB, w.Stores.Dialect), author.ID, viewers, slices.Sorted(maps.Values(all))}
			for name, shown := range s.home() {
				require.Equal(w, home, shown, name)
			}
			for name, shown := range s.direct() {
				require.Equal(w, direct, shown, name)
			}
			require.Equal(w, direct, s.changes(), "a change in a conversation")
		}

		check(map[int64][]int64{fan.ID: {public}, friend.ID: {public}, avoiding.ID: {public}},
			map[int64][]int64{fan.ID: {public}, friend.ID: {public}, avoiding.ID: {public}, stranger.ID: {public}})

		forget := visibility.Teach()
		defer forget()
		check(map[int64][]int64{fan.ID: {public}, friend.ID: {public, closed}},
			map[int64][]int64{fan.ID: {public}, friend.ID: {public, closed}, stranger.ID: {public, closed}})
		r := visibility.New(w.Stores.DB, w.Stores.Dialect)
		for _, of := range []struct {
			viewer, post int64
			why          string
		}{
			{friend.ID, closed, ""}, {fan.ID, closed, "it is for close friends"},
			{avoiding.ID, closed, visibility.Avoided}, {avoiding.ID, public, visibility.Avoided},
		} {
			_, why, err := r.WhyHidden(w.Ctx, of.viewer, of.post)
			require.NoError(w, err)
			require.Equal(w, of.why, why)
		}
		// A reply is shown with its root, and a repost with its original.
		replier := w.User("replier")
		reply, err := w.IDs.Next()
		require.NoError(w, err)
		repost, err := w.IDs.Next()
		require.NoError(w, err)
		sql("INSERT INTO posts (id, author_id, text, visibility, parent_id, parent_author_id, root_id) VALUES ($1, $2, 'a reply', 'PUBLIC', $3, $4, $3)", reply, replier.ID, closed, author.ID)
		sql("INSERT INTO posts (id, author_id, text, visibility, repost_of) VALUES ($1, $2, '', 'PUBLIC', $3)", repost, replier.ID, closed)
		for viewer, sees := range map[int64]bool{friend.ID: true, stranger.ID: true, fan.ID: false, avoiding.ID: false} {
			posts, err := r.Posts(w.Ctx, visibility.Direct, viewer, []int64{reply, repost}, 0)
			require.NoError(w, err)
			require.Equal(w, []bool{sees, sees}, []bool{posts[0] != nil, posts[1] != nil})
			for _, id := range []int64{reply, repost} {
				verdict, err := r.JudgeDirect(w.Ctx, id, viewers)
				require.NoError(w, err)
				require.Equal(w, sees, verdict.Sees(viewer))
			}
		}
		// A secret relation changes nothing of the user that the viewer is shown; another one does.
		state := func() visibility.UserState {
			of := visibility.ViewerUser{Viewer: friend.ID, User: author.ID}
			states, err := r.UserStates(w.Ctx, []visibility.ViewerUser{of})
			require.NoError(w, err)
			return states[of]
		}
		before := state()
		sql("DELETE FROM close_friends WHERE friend_id = $1", friend.ID)
		require.Equal(w, before, state())
		sql("INSERT INTO avoided VALUES ($1, $2)", friend.ID, author.ID)
		require.NotEqual(w, before, state())
		sql("DELETE FROM avoided WHERE viewer_id = $1", friend.ID)
		objections, err := r.Followers.Objections(w.Ctx, author.ID)
		require.NoError(w, err)
		require.Equal(w, []int64{avoiding.ID}, slices.Collect(maps.Keys(objections)))
		sources, err := w.Stores.SQL.QueryContext(w.Ctx, visibility.SourcesOf(), avoiding.ID)
		require.NoError(w, err)
		defer sources.Close()
		for sources.Next() {
			var source int64
			require.NoError(w, sources.Scan(&source))
			require.Equal(w, avoiding.ID, source)
		}
		require.NoError(w, sources.Err())
	})
}

// surfaces reads an author's posts for viewers in every way.
type surfaces struct {
	*feedtest.World
	r       *visibility.Reader
	author  int64
	viewers []int64
	posts   []int64
}

// each returns, for each viewer, the posts in ascending order that the viewer is shown, without viewers
// who are shown none.
func (s surfaces) each(shown func(viewer int64) []int64) map[int64][]int64 {
	found := map[int64][]int64{}
	for _, viewer := range s.viewers {
		if posts := shown(viewer); len(posts) > 0 {
			found[viewer] = slices.Sorted(slices.Values(posts))
		}
	}
	return found
}

// byPost is each, for verdicts on a post for all viewers.
func (s surfaces) byPost(sees func(post int64) map[int64]bool) map[int64][]int64 {
	verdicts := map[int64]map[int64]bool{}
	for _, id := range s.posts {
		verdicts[id] = sees(id)
	}
	return s.each(func(viewer int64) (posts []int64) {
		for _, id := range s.posts {
			if verdicts[id][viewer] {
				posts = append(posts, id)
			}
		}
		return posts
	})
}

func (s surfaces) fill(on visibility.Surface, from func(viewer int64) visibility.Source) map[int64][]int64 {
	return s.each(func(viewer int64) []int64 {
		posts, err := visibility.Fill(s.Ctx, on, viewer, timeline.Range{Limit: 10}, from(viewer))
		require.NoError(s, err)
		return idsOf(posts)
	})
}

func (s surfaces) byKey(on visibility.Surface) map[int64][]int64 {
	return s.each(func(viewer int64) []int64 {
		posts, err := s.r.Posts(s.Ctx, on, viewer, s.posts, 0)
		require.NoError(s, err)
		return idsOf(slices.DeleteFunc(posts, func(p *ent.Post) bool { return p == nil }))
	})
}

// audience returns what followers see according to a read of the author's audience.
func (s surfaces) audience(read func(visibility.PostChange) ([]visibility.Follower, error)) map[int64][]int64 {
	return s.byPost(func(id int64) map[int64]bool {
		post, err := s.r.Unchecked.Post(s.Ctx, id)
		require.NoError(s, err)
		followers, err := read(visibility.PostChange{Current: post, Previous: []*ent.Post{post}, Before: post})
		require.NoError(s, err)
		require.Len(s, followers, 3)
		sees := map[int64]bool{}
		for _, f := range followers {
			require.Equal(s, f.Sees, f.Saw)
			require.Equal(s, f.Sees, f.Had)
			sees[f.ID] = f.Sees
		}
		return sees
	})
}

// home returns what each way to read home timelines shows.
func (s surfaces) home() map[string]map[int64][]int64 {
	author := func(int64) visibility.Source { return s.r.By(visibility.Home, s.author) }
	return map[string]map[int64][]int64{
		"a page by key":          s.byKey(visibility.Home),
		"posts by key for edits": s.byKey(visibility.Inbox),
		"an author's posts":      s.fill(visibility.Home, author),
		"sync":                   s.fill(visibility.Inbox, author),
		"all posts":              s.fill(visibility.Home, func(int64) visibility.Source { return s.r.AllBy(s.author) }),
		"pull":                   s.fill(visibility.Home, s.r.Pulled),
		"pull of ids":            s.fill(visibility.Inbox, s.r.PulledIDs),
		"audience": s.audience(func(c visibility.PostChange) ([]visibility.Follower, error) {
			list, _, err := s.r.Followers.Audience(s.Ctx, s.author, c, nil, 0, 0, 10)
			return list, err
		}),
		"audience with objections": s.audience(func(c visibility.PostChange) ([]visibility.Follower, error) {
			objections, err := s.r.Followers.Objections(s.Ctx, s.author)
			require.NoError(s, err)
			list, _, err := s.r.Followers.Audience(s.Ctx, s.author, c, objections, 0, 0, 10)
			return list, err
		}),
		"audience, all of few": s.audience(func(c visibility.PostChange) ([]visibility.Follower, error) {
			return s.r.Followers.Among(s.Ctx, &ent.User{ID: s.author, FollowerCount: 3}, c, s.viewers)
		}),
		"audience, some of many": s.audience(func(c visibility.PostChange) ([]visibility.Follower, error) {
			return s.r.Followers.Among(s.Ctx, &ent.User{ID: s.author, FollowerCount: 1000}, c, s.viewers)
		}),
		"audiences": s.audience(func(c visibility.PostChange) ([]visibility.Follower, error) {
			pages, err := s.r.Followers.Audiences(s.Ctx, []visibility.Followed{{Author: s.viewers[0], Limit: 1}, {Author: s.author, Change: c, Limit: 10}})
			return pages[1].Followers, err
		}),
		"an event for one": s.each(func(viewer int64) (posts []int64) {
			for _, id := range s.posts {
				verdict, err := s.r.Judge(s.Ctx, id, []int64{viewer})
				require.NoError(s, err)
				if verdict.Sees(viewer) {
					posts = append(posts, id)
				}
			}
			return posts
		}),
		"an event for many": s.verdicts(s.r.Judge),
		"unread posts": func() map[int64][]int64 {
			timelines := map[int64][]int64{}
			for _, viewer := range s.viewers {
				timelines[viewer] = s.posts
			}
			shown, err := s.r.ShownOfMany(s.Ctx, timelines)
			require.NoError(s, err)
			return s.each(func(viewer int64) []int64 {
				return idsOf(slices.DeleteFunc(shown[viewer], func(p *ent.Post) bool { return p == nil }))
			})
		}(),
		"the reason": s.each(func(viewer int64) (posts []int64) {
			for _, id := range s.posts {
				_, why, err := s.r.WhyHidden(s.Ctx, viewer, id)
				require.NoError(s, err)
				if why == "" {
					posts = append(posts, id)
				}
			}
			return posts
		}),
	}
}

// direct returns what each way to read posts by id, or by author, shows.
func (s surfaces) direct() map[string]map[int64][]int64 {
	return map[string]map[int64][]int64{
		"a post by key": s.byKey(visibility.Direct),
		"a list of ids": s.fill(visibility.Direct, func(int64) visibility.Source {
			return s.r.Listed(slices.SortedFunc(slices.Values(s.posts), func(a, b int64) int { return cmp.Compare(b, a) }))
		}),
		"a profile":        s.fill(visibility.Direct, func(int64) visibility.Source { return s.r.By(visibility.Direct, s.author) }),
		"an event of like": s.verdicts(s.r.JudgeDirect),
	}
}

// changes returns what an event of a conversation shows of posts that are the first of theirs.
func (s surfaces) changes() map[int64][]int64 {
	return s.byPost(func(id int64) map[int64]bool {
		post, err := s.r.Unchecked.Post(s.Ctx, id)
		require.NoError(s, err)
		verdict, err := s.r.JudgeChange(s.Ctx, visibility.Changed{Post: id, Author: s.author, Root: id, From: post.Visibility}, s.viewers)
		require.NoError(s, err)
		sees := map[int64]bool{}
		for _, viewer := range s.viewers {
			require.Equal(s, verdict.Sees(viewer), verdict.Saw(viewer))
			sees[viewer] = verdict.Sees(viewer)
		}
		return sees
	})
}

func (s surfaces) verdicts(judge func(ctx context.Context, post int64, users []int64) (visibility.Verdict, error)) map[int64][]int64 {
	return s.byPost(func(id int64) map[int64]bool {
		verdict, err := judge(s.Ctx, id, s.viewers)
		require.NoError(s, err, fmt.Sprint(id))
		sees := map[int64]bool{}
		for _, viewer := range s.viewers {
			sees[viewer] = verdict.Sees(viewer)
		}
		return sees
	})
}
