package home_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// Thousands of posts that the viewer may not see do not raise the cost of a page.
func TestHiddenPostsAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		shown := feedtest.NewestFirst(w.History(bob, 5)...)
		hidden := w.History(bob, 5000)
		five := 5
		down, up := paging.Page{First: &five}, paging.Page{Last: &five}
		for _, v := range []schema.Visibility{schema.Mutuals, schema.Private} {
			w.restrict(v, hidden...)
			for name, read := range map[string]func() (*paging.Connection[ent.Post], error){
				"profile, anonymous": func() (*paging.Connection[ent.Post], error) {
					return w.Feed.UserPosts(w.Ctx, session.Viewer{}, bob.ID, down)
				},
				"profile": func() (*paging.Connection[ent.Post], error) { return w.Feed.UserPosts(w.Ctx, ann, bob.ID, down) },
				"profile, upwards": func() (*paging.Connection[ent.Post], error) {
					return w.Feed.UserPosts(w.Ctx, ann, bob.ID, up)
				},
				"timeline": func() (*paging.Connection[ent.Post], error) { return w.Home.Timeline(w.Ctx, ann, down, home.Latest) },
				"timeline, upwards": func() (*paging.Connection[ent.Post], error) {
					return w.Home.Timeline(w.Ctx, ann, up, home.Latest)
				},
			} {
				require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
				count := storagetest.CountQueries(w.Stores)
				c, err := read()
				require.NoError(w, err, "%s, %s", name, v)
				require.Equal(w, shown, feedtest.PostIDs(c), "%s, %s", name, v)
				// Inboxes and outboxes are built at the same time, and the page's position names
				// young posts.
				require.LessOrEqual(w, count(), 15, "%s, %s", name, v)
			}
		}
	})
}

// Every post of a profile that the viewer may see comes exactly once, in full pages: with an
// outbox, across its floor, and without an outbox.
func TestProfilePagesAreFullAndExact(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		author, friend, follower, muting, stranger, blocked := w.User("author"), w.User("friend"), w.User("follower"), w.User("muting"), w.User("stranger"), w.User("blocked")
		w.Befriend(author, friend)
		w.Follow(follower, author)
		w.Follow(muting, author)
		_, err := w.Feed.Mute(w.Ctx, muting, author.ID)
		require.NoError(w, err)
		_, err = w.Feed.Block(w.Ctx, author, blocked.ID)
		require.NoError(w, err)

		public := w.History(author, 20)
		followers, mutuals, private := []int64{}, []int64{}, []int64{}
		for i, ids := 0, w.History(author, 2*feedtest.OutboxCap); len(ids) > 0; i++ { // in runs
			n := min(1+i*7%23, len(ids))
			to := []*[]int64{&private, &followers, &public, &mutuals}[i%4]
			*to, ids = append(*to, ids[:n]...), ids[n:]
		}
		w.restrict(schema.Followers, followers...)
		w.restrict(schema.Mutuals, mutuals...)
		w.restrict(schema.Private, private...)
		forFollowers := feedtest.NewestFirst(slices.Concat(public, followers)...)
		sees := map[session.Viewer][]int64{
			author:   feedtest.NewestFirst(slices.Concat(public, followers, mutuals, private)...),
			friend:   feedtest.NewestFirst(slices.Concat(public, followers, mutuals)...),
			follower: forFollowers, muting: forFollowers,
			stranger: feedtest.NewestFirst(public...), {}: feedtest.NewestFirst(public...),
			blocked: {},
		}
		read := func(v session.Viewer, p paging.Page) *paging.Connection[ent.Post] {
			w.Helper()
			c, err := w.Feed.UserPosts(w.Ctx, v, author.ID, p)
			require.NoError(w, err)
			return c
		}
		all := func(when string, before func()) {
			w.Helper()
			for v, want := range sees {
				for _, size := range []int{5, 33} {
					before()
					var down, up []int64
					for p := (paging.Page{First: &size}); ; {
						c := read(v, p)
						down = append(down, feedtest.PostIDs(c)...)
						if !c.HasNextPage {
							break
						}
						require.Len(w, c.Edges, size, "a page is full while there is more")
						p.After = c.PageInfo().EndCursor
					}
					require.Equal(w, want, append([]int64{}, down...), "%s: %d by %d", when, v.ID, size)
					for p := (paging.Page{Last: &size}); ; {
						c := read(v, p)
						up = append(feedtest.PostIDs(c), up...)
						if !c.HasPreviousPage {
							break
						}
						require.Len(w, c.Edges, size, "a page is full while there is more")
						p.Before = c.PageInfo().StartCursor
					}
					require.Equal(w, want, append([]int64{}, up...), "%s, upwards: %d by %d", when, v.ID, size)
				}
			}
		}
		all("while the outbox is built", func() { require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Outbox(author.ID))) })
		require.Eventually(w, func() bool {
			read(author, paging.Page{})
			_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Outbox(author.ID), timeline.Range{})
			return err == nil && covered.State == timeline.Ready
		}, 30*time.Second, 5*time.Millisecond)
		all("from the outbox", func() {})
	})
}

// If the newest post of an author is hidden, the visible posts still come exactly once, in full
// pages, without an inbox.
func TestHiddenHeadsMakeNoHole(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		reader, authors := w.User("reader"), w.Users(24)
		want := []int64{}
		for range 3 {
			for i, author := range authors {
				ids := w.History(author, 3)
				w.restrict([]schema.Visibility{schema.Private, schema.Mutuals}[i%2], ids[1:]...)
				want = append(want, ids[0])
				if i%4 == 1 { // friends: see below
					want = append(want, ids[1:]...)
				}
			}
		}
		for i, author := range authors {
			w.Follow(reader, author)
			if i%4 == 1 {
				w.Follow(author, reader)
			}
		}
		own := w.History(reader, 4)
		w.restrict(schema.Private, own...)
		want = feedtest.NewestFirst(append(want, own...)...)
		without := func() { require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(reader.ID))) }
		for _, size := range []int{2, 7, 20, 100} {
			t := fmt.Sprintf("pages of %d", size)
			without()
			require.Equal(w, want, w.Walk(reader, size, func(int) { without() }), t)
			var up []int64
			for p := (paging.Page{Last: &size}); ; {
				without()
				c, err := w.Home.Timeline(w.Ctx, reader, p, home.Latest)
				require.NoError(w, err)
				up = append(feedtest.PostIDs(c), up...)
				if !c.HasPreviousPage {
					break
				}
				require.Len(w, c.Edges, size, t)
				p.Before = c.PageInfo().StartCursor
			}
			require.Equal(w, want, up, "%s, upwards", t)
		}
	})
}

// restrict sets the visibility of posts in the table, as if they had had it from the beginning.
func (w *world) restrict(v schema.Visibility, ids ...int64) {
	w.Helper()
	for chunk := range slices.Chunk(ids, 1000) {
		require.NoError(w, w.Stores.DB.Post.Update().Where(post.IDIn(chunk...)).SetVisibility(v).Exec(w.Ctx))
	}
}
