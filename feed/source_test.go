package feed_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// Thousands of posts that the viewer may not see cost no more than none.
func TestHiddenPostsAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		shown := newestFirst(w.history(bob, 5)...)
		hidden := w.history(bob, 5000)
		five := 5
		down, up := feed.Page{First: &five}, feed.Page{Last: &five}
		for _, v := range []schema.Visibility{schema.Mutuals, schema.Private} {
			w.restrict(v, hidden...)
			for name, read := range map[string]func() (*feed.Connection[ent.Post], error){
				"profile, anonymous": func() (*feed.Connection[ent.Post], error) {
					return w.feed.UserPosts(w.ctx, feed.Viewer{}, bob.ID, down)
				},
				"profile": func() (*feed.Connection[ent.Post], error) { return w.feed.UserPosts(w.ctx, ann, bob.ID, down) },
				"profile, upwards": func() (*feed.Connection[ent.Post], error) {
					return w.feed.UserPosts(w.ctx, ann, bob.ID, up)
				},
				"timeline": func() (*feed.Connection[ent.Post], error) { return w.feed.Timeline(w.ctx, ann, down, feed.Latest) },
				"timeline, upwards": func() (*feed.Connection[ent.Post], error) {
					return w.feed.Timeline(w.ctx, ann, up, feed.Latest)
				},
			} {
				require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(ann.ID)))
				count := storagetest.CountQueries(w.s)
				c, err := read()
				require.NoError(w.t, err, "%s, %s", name, v)
				require.Equal(w.t, shown, postIDs(c), "%s, %s", name, v)
				// Inboxes and outboxes are built at the same time.
				require.LessOrEqual(w.t, count(), 10, "%s, %s", name, v)
			}
		}
	})
}

// Whatever the viewer may see of a profile comes exactly once, in full pages, with
// an outbox, across its floor and without one.
func TestProfilePagesAreFullAndExact(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		author, friend, follower, muting, stranger, blocked := w.user("author"), w.user("friend"), w.user("follower"), w.user("muting"), w.user("stranger"), w.user("blocked")
		w.befriend(author, friend)
		w.follow(follower, author)
		w.follow(muting, author)
		_, err := w.feed.Mute(w.ctx, muting, author.ID)
		require.NoError(w.t, err)
		_, err = w.feed.Block(w.ctx, author, blocked.ID)
		require.NoError(w.t, err)

		public := w.history(author, 20)
		followers, mutuals, private := []int64{}, []int64{}, []int64{}
		for i, ids := 0, w.history(author, 2*outboxCap); len(ids) > 0; i++ { // in runs
			n := min(1+i*7%23, len(ids))
			to := []*[]int64{&private, &followers, &public, &mutuals}[i%4]
			*to, ids = append(*to, ids[:n]...), ids[n:]
		}
		w.restrict(schema.Followers, followers...)
		w.restrict(schema.Mutuals, mutuals...)
		w.restrict(schema.Private, private...)
		forFollowers := newestFirst(slices.Concat(public, followers)...)
		sees := map[feed.Viewer][]int64{
			author:   newestFirst(slices.Concat(public, followers, mutuals, private)...),
			friend:   newestFirst(slices.Concat(public, followers, mutuals)...),
			follower: forFollowers, muting: forFollowers,
			stranger: newestFirst(public...), {}: newestFirst(public...),
			blocked: {},
		}
		read := func(v feed.Viewer, p feed.Page) *feed.Connection[ent.Post] {
			w.t.Helper()
			c, err := w.feed.UserPosts(w.ctx, v, author.ID, p)
			require.NoError(w.t, err)
			return c
		}
		all := func(when string, before func()) {
			w.t.Helper()
			for v, want := range sees {
				for _, size := range []int{5, 33} {
					before()
					var down, up []int64
					for p := (feed.Page{First: &size}); ; {
						c := read(v, p)
						down = append(down, postIDs(c)...)
						if !c.HasNextPage {
							break
						}
						require.Len(w.t, c.Edges, size, "a page is full while there is more")
						p.After = c.PageInfo().EndCursor
					}
					require.Equal(w.t, want, append([]int64{}, down...), "%s: %d by %d", when, v.ID, size)
					for p := (feed.Page{Last: &size}); ; {
						c := read(v, p)
						up = append(postIDs(c), up...)
						if !c.HasPreviousPage {
							break
						}
						require.Len(w.t, c.Edges, size, "a page is full while there is more")
						p.Before = c.PageInfo().StartCursor
					}
					require.Equal(w.t, want, append([]int64{}, up...), "%s, upwards: %d by %d", when, v.ID, size)
				}
			}
		}
		all("while the outbox is built", func() { require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Outbox(author.ID))) })
		require.Eventually(w.t, func() bool {
			read(author, feed.Page{})
			_, covered, err := w.tl.Page(w.ctx, timeline.Outbox(author.ID), timeline.Range{})
			return err == nil && covered.State == timeline.Ready
		}, 30*time.Second, 5*time.Millisecond)
		all("from the outbox", func() {})
	})
}

// The newest post of everybody may be hidden: what is shown comes exactly once,
// in full pages, without an inbox.
func TestHiddenHeadsMakeNoHole(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		reader, authors := w.user("reader"), w.users(24)
		want := []int64{}
		for range 3 {
			for i, author := range authors {
				ids := w.history(author, 3)
				w.restrict([]schema.Visibility{schema.Private, schema.Mutuals}[i%2], ids[1:]...)
				want = append(want, ids[0])
				if i%4 == 1 { // friends, see below
					want = append(want, ids[1:]...)
				}
			}
		}
		for i, author := range authors {
			w.follow(reader, author)
			if i%4 == 1 {
				w.follow(author, reader)
			}
		}
		own := w.history(reader, 4)
		w.restrict(schema.Private, own...)
		want = newestFirst(append(want, own...)...)
		without := func() { require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(reader.ID))) }
		for _, size := range []int{2, 7, 20, 100} {
			t := fmt.Sprintf("pages of %d", size)
			without()
			require.Equal(w.t, want, w.walk(reader, size, func(int) { without() }), t)
			var up []int64
			for p := (feed.Page{Last: &size}); ; {
				without()
				c, err := w.feed.Timeline(w.ctx, reader, p, feed.Latest)
				require.NoError(w.t, err)
				up = append(postIDs(c), up...)
				if !c.HasPreviousPage {
					break
				}
				require.Len(w.t, c.Edges, size, t)
				p.Before = c.PageInfo().StartCursor
			}
			require.Equal(w.t, want, up, "%s, upwards", t)
		}
	})
}

// restrict gives posts in the table a visibility, as if they always had it.
func (w *world) restrict(v schema.Visibility, ids ...int64) {
	w.t.Helper()
	for chunk := range slices.Chunk(ids, 1000) {
		require.NoError(w.t, w.s.DB.Post.Update().Where(post.IDIn(chunk...)).SetVisibility(v).Exec(w.ctx))
	}
}
