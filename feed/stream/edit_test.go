package stream_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func (l listener) updated() (id int64, text string) {
	l.w.Helper()
	ev := l.next()
	require.IsType(l.w, &stream.PostUpdated{}, ev)
	node := ev.(*stream.PostUpdated).Edge.Node
	return node.ID, node.Text
}

func (w *world) edit(v session.Viewer, id int64, text string) {
	w.Helper()
	_, err := w.Feed.UpdatePost(w.Ctx, v, id, feed.Edit{Text: &text})
	require.NoError(w, err)
	w.Drain()
}

// A client that has a post and asked for edits receives the new text. If the viewer mutes a word of
// the new text, the client receives a removal, and gets the post back when an edit removes the word.
func TestEditIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		eve := w.User("eve")
		w.Follow(eve, bob)
		w.Drain()
		w.AwaitInbox(eve)
		_, _, err := w.Feed.MuteWord(w.Ctx, eve, "cat")
		require.NoError(w, err)
		w.Drain()
		ask := func(v session.Viewer) listener { return w.listenFor(v, stream.Options{Updates: true}) }
		toAnn, own, toEve, old, oldOfEve := ask(ann), ask(bob), ask(eve), w.listen(ann, nil), w.listen(eve, nil)
		post := w.Post(bob, schema.Public)
		w.Drain()
		for _, l := range []listener{toAnn, own, toEve, old, oldOfEve} {
			require.Equal(w, post, l.added())
		}
		w.edit(bob, post, "my dog")
		for _, l := range []listener{toAnn, own, toEve} {
			id, text := l.updated()
			require.Equal(w, []any{post, "my dog"}, []any{id, text})
		}
		w.edit(bob, post, "my cat")
		for _, l := range []listener{toAnn, own} {
			_, text := l.updated()
			require.Equal(w, "my cat", text)
		}
		require.Equal(w, post, toEve.removed())
		second := w.Post(bob, schema.Public)
		w.Drain()
		for _, l := range []listener{toAnn, own, toEve, old, oldOfEve} { // take the events of the edits before the next one
			require.Equal(w, second, l.added(), "who does not ask is told nothing of edits")
		}
		w.edit(bob, post, "my bird")
		for _, l := range []listener{toAnn, own} {
			_, text := l.updated()
			require.Equal(w, "my bird", text)
		}
		require.Equal(w, post, toEve.added(), "its client has it no more")
		_, err = w.Feed.SetVisibility(w.Ctx, bob, post, schema.Private)
		require.NoError(w, err)
		w.Drain()
		require.Equal(w, post, toAnn.removed())
		w.edit(bob, post, "for myself")
		next := w.Post(bob, schema.Public)
		require.Equal(w, next, toAnn.added(), "nothing of what may not be seen")
		for _, l := range []listener{old, oldOfEve} {
			require.Equal(w, post, l.removed())
			require.Equal(w, next, l.added())
		}
	})
}

// An author who deletes a post right after an edit is told that it is deleted, even if the event of
// the edit arrives after the deletion.
func TestEditOfADeletedPost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		post := w.Post(bob, schema.Public)
		w.Drain()
		toAnn, own := w.listenFor(ann, stream.Options{Updates: true}), w.listenFor(bob, stream.Options{Updates: true})
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, post))
		for _, v := range []session.Viewer{ann, bob} {
			_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: post, Author: bob.ID, Reason: live.Edited}, []int64{v.ID})
			require.NoError(w, err)
		}
		w.Drain()
		for _, l := range []listener{toAnn, own} {
			ev := l.next()
			require.IsType(w, &stream.PostRemoved{}, ev)
			removed := ev.(*stream.PostRemoved)
			require.Equal(w, []any{post, l.viewer == bob}, []any{removed.PostID, removed.Deleted})
		}
	})
}

// A resuming client receives the posts that were edited while it was away. If these are too many, it
// is told to read again.
func TestEditsWhileAway(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		_, _, err := w.Feed.MuteWord(w.Ctx, ann, "cat")
		require.NoError(w, err)
		w.Drain()
		long := w.PostAged(bob, 3600_000_000_000)
		muted := w.PostAged(bob, 1800_000_000_000)
		private := w.Post(bob, schema.Private)
		other := w.PostAged(w.User("stranger"), 1800_000_000_000)
		w.Drain()
		l := w.listenFor(ann, stream.Options{Updates: true})
		post := w.Post(bob, schema.Public)
		w.Drain()
		after := l.position()
		l.close()
		w.edit(bob, long, "old, and new")
		w.edit(bob, muted, "my cat")
		w.edit(bob, post, "new")
		w.edit(bob, private, "for myself") // a viewer who may not see it receives no removal either
		require.NoError(w, w.Stores.DB.Post.UpdateOneID(other).SetEditedAt(1<<50).SetChangedAt(1<<50).Exec(w.Ctx))
		told, gone := map[int64]string{}, int64(0)
		l = w.listenFor(ann, stream.Options{After: after, Updates: true})
		for range 3 {
			switch ev := l.next().(type) {
			case *stream.PostUpdated:
				told[ev.Edge.Node.ID] = ev.Edge.Node.Text
			case *stream.PostRemoved:
				gone = ev.PostID
			default:
				require.Fail(w, "an event of another kind", "%T", ev)
			}
		}
		require.Equal(w, map[int64]string{long: "old, and new", post: "new"}, told)
		require.Equal(w, muted, gone)
		l.expectNothingBefore(bob)

		for i, id := range w.History(bob, 101) {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetText(fmt.Sprint(i)).SetEditedAt(1<<50).SetChangedAt(1<<50).Exec(w.Ctx))
		}
		require.IsType(w, &stream.Invalidated{}, w.listenFor(ann, stream.Options{After: after, Updates: true}).next())
	})
}

// A client that read an empty page, and left after the first of the posts that it had missed, is told
// the edits of that post when it comes back.
func TestEditsAfterAnEmptyPage(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		w.AwaitInbox(ann)
		page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
		require.Empty(w, page.Edges)
		first, second := w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		w.Drain()
		l := w.listenFor(ann, stream.Options{After: &page.Position, Updates: true})
		after := l.position()
		l.close()
		w.edit(bob, first, "new")
		l = w.listenFor(ann, stream.Options{After: after, Updates: true})
		added, updated := int64(0), map[int64]string{}
		for range 2 {
			switch ev := l.next().(type) {
			case *stream.PostAdded:
				added = ev.Edge.Node.ID
			case *stream.PostUpdated:
				updated[ev.Edge.Node.ID] = ev.Edge.Node.Text
			default:
				require.Fail(w, "an event of another kind", "%T", ev)
			}
		}
		require.Equal(w, second, added)
		require.Equal(w, map[int64]string{first: "new"}, updated)
	})
}

// A client resumes while an edited post is hidden. The post is shown again before the stream receives
// the event of the removal. The client then receives the new text.
func TestEditOfAPostHiddenForAWhile(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listenFor(ann, stream.Options{Updates: true})
		post := w.Post(bob, schema.Public)
		w.Drain()
		after := l.position()
		l.close()
		edited := time.Now().UnixMilli() + 1
		require.NoError(w, w.Stores.DB.Post.UpdateOneID(post).SetText("new").SetEditedAt(edited).SetChangedAt(edited).SetVisibility(schema.Private).Exec(w.Ctx))
		l = w.listenFor(ann, stream.Options{After: after, Updates: true})
		l.expectNothingBefore(bob)
		require.NoError(w, w.Stores.DB.Post.UpdateOneID(post).SetVisibility(schema.Public).Exec(w.Ctx))
		_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Removed, Post: post, Author: bob.ID}, []int64{ann.ID})
		require.NoError(w, err)
		id, says := l.updated()
		require.Equal(w, []any{post, "new"}, []any{id, says})
	})
}

// An edit moves no post, so the post's receipt still describes its fan-out.
func TestEditLeavesTheReceipt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		_, bob := w.pair()
		post := w.Post(bob, schema.Public)
		w.Drain()
		require.NoError(w, w.Stores.DB.Delivery.UpdateOneID(post).SetFirstLag(12_345_678).Exec(w.Ctx))
		_, err := w.Feed.SetVisibility(w.Ctx, bob, post, schema.Private)
		require.NoError(w, err)
		w.Drain()
		w.edit(bob, post, "for myself")
		receipt, err := w.Stores.DB.Delivery.Get(w.Ctx, post)
		require.NoError(w, err)
		require.EqualValues(w, 12_345_678, receipt.FirstLag)
	})
}

// pausing is a database driver that calls pause once, after the query for changed posts.
type pausing struct {
	dialect.Driver
	pause atomic.Pointer[func()]
}

func (d *pausing) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	found, err := d.Driver.(entsql.ExecQuerier).QueryContext(ctx, query, args...)
	if strings.Contains(query, "changed_at") {
		if pause := d.pause.Swap(nil); pause != nil {
			(*pause)()
		}
	}
	return found, err
}

// A process stops for five minutes after it has looked for changed posts. Meanwhile a post is edited, and the
// event is lost. A cursor from after that does not say that the client has the edit.
func TestEditDuringAPauseIsSentLater(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		db := &pausing{Driver: s.Driver}
		w := newWorld(t, s, feedtest.Options{
			DB: ent.NewClient(ent.Driver(db)), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		ann, bob := w.pair()
		post := w.History(bob, 1)[0]
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, post, []int64{ann.ID})
		require.NoError(t, err)
		page, text := w.Top(ann), "edited meanwhile"
		pause := func() {
			_, err := w.Feed.UpdatePost(w.Ctx, bob, post, feed.Edit{Text: &text})
			require.NoError(t, err)
			s.DB.Job.Delete().ExecX(w.Ctx)
			ahead.Store(int64(5 * time.Minute))
		}
		db.pause.Store(&pause)
		l := w.listenFor(ann, stream.Options{After: page, Updates: true, Heartbeat: time.Second})
		position := l.next().(*stream.Heartbeat).Position
		require.Nil(t, db.pause.Load(), "the stream has looked for changes")
		l.close()
		id, got := w.listenFor(ann, stream.Options{After: &position, Updates: true}).updated()
		require.Equal(t, []any{post, text}, []any{id, got})
	})
}
