package stream_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/job"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// watcher is one open stream of a conversation.
type watcher struct {
	w        *world
	ctx      context.Context
	stream   *stream.Conversation
	news     chan struct{}
	close    context.CancelFunc
	position *string // of the last event
}

func (w *world) watch(v session.Viewer, post int64, after *string) *watcher {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	news := make(chan struct{}, 1)
	s, err := w.Streams.ListenConversation(ctx, v, post, after, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	require.NoError(w, err)
	w.Cleanup(cancel)
	return &watcher{w, ctx, s, news, cancel, after}
}

// take waits for the next event that may be sent. ok is false when the stream has ended.
func (l *watcher) take() (ev stream.ConversationEvent, ok bool) {
	l.w.Helper()
	timeout := time.After(30 * time.Second)
	for {
		ev, ok := l.stream.Next(l.ctx)
		if ok && !l.stream.Confirm(l.ctx, ev, false) {
			continue
		}
		if ok || l.stream.Ended() {
			return ev, ok
		}
		select {
		case <-l.news:
		case <-timeout:
			require.Fail(l.w, "no event came")
			return nil, false
		}
	}
}

// next returns the next event as text.
func (l *watcher) next() string {
	l.w.Helper()
	ev, ok := l.take()
	require.True(l.w, ok, "the stream has ended: %v", l.stream.Err())
	switch ev := ev.(type) {
	case *stream.ConversationPostAdded:
		l.position = &ev.Position
		return added(ev.Post.ID)
	case *stream.ConversationPostUpdated:
		l.position = &ev.Position
		return updated(ev.Post.ID)
	case *stream.ConversationPostRemoved:
		l.position = &ev.Position
		return removed(ev.PostID)
	case *stream.ConversationInvalidated:
		l.position = &ev.Position
	}
	return invalidated
}

func added(id int64) string   { return fmt.Sprintf("added %d", id) }
func updated(id int64) string { return fmt.Sprintf("updated %d", id) }
func removed(id int64) string { return fmt.Sprintf("removed %d", id) }

const invalidated = "invalidated"

// gets checks the next events.
func (l *watcher) gets(events ...string) {
	l.w.Helper()
	for _, want := range events {
		require.Equal(l.w, want, l.next())
	}
}

// getsNothing checks that the stream has nothing to send now.
func (l *watcher) getsNothing() {
	l.w.Helper()
	ev, ok := l.stream.Next(l.ctx)
	require.False(l.w, ok, "%T", ev)
}

// reply replies to a post with the visibility, and waits until everybody is told.
func (w *world) reply(v session.Viewer, to int64, seenBy schema.Visibility) int64 {
	w.Helper()
	id := w.replyOnly(v, to, seenBy)
	w.Drain()
	return id
}

// replyOnly replies to a post and waits for nothing.
func (w *world) replyOnly(v session.Viewer, to int64, seenBy schema.Visibility) int64 {
	w.Helper()
	p, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "reply", ReplyTo: to, Visibility: &seenBy})
	require.NoError(w, err)
	return p.ID
}

func (w *world) rewrite(v session.Viewer, id int64) {
	w.Helper()
	text := fmt.Sprintf("edited at %d", time.Now().UnixNano())
	_, err := w.Feed.UpdatePost(w.Ctx, v, id, feed.Edit{Text: &text})
	require.NoError(w, err)
	w.Drain()
}

func (w *world) narrow(v session.Viewer, id int64, to schema.Visibility) {
	w.Helper()
	_, err := w.Feed.SetVisibility(w.Ctx, v, id, to)
	require.NoError(w, err)
	w.Drain()
}

func (w *world) remove(v session.Viewer, id int64) {
	w.Helper()
	require.NoError(w, w.Feed.DeletePost(w.Ctx, v, id))
	w.Drain()
}

func (w *world) moderate(id int64, hide bool) {
	w.Helper()
	change := w.Moderation.UnhidePost
	if hide {
		change = w.Moderation.HidePost
	}
	_, err := change(w.Ctx, moderation.Console, id, "")
	require.NoError(w, err)
	w.Drain()
}

// pageOf returns the position of a page of a conversation, and the replies on the page.
func (w *world) pageOf(v session.Viewer, root int64) (after *string, replies []int64) {
	w.Helper()
	position := w.Streams.ConversationPosition(w.Ctx, v, &ent.Post{ID: root})
	page, err := w.Conversations.All(w.Ctx, v, &ent.Post{ID: root}, paging.Page{})
	require.NoError(w, err)
	return &position, feedtest.PostIDs(page)
}

func (w *world) notFound(v session.Viewer, post int64, after *string) {
	w.Helper()
	_, err := w.Streams.ListenConversation(w.Ctx, v, post, after, func() {})
	require.Equal(w, refusal.NoSuchPost, refusal.ReasonOf(err), "%v", err)
}

// Everything that happens to the posts of a conversation is sent to its watchers, whichever of
// its posts they named, and to those who resume.
func TestConversationEvents(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(4)
		ann, bob, cat, dan := u[0], u[1], u[2], u[3] // nobody follows anybody
		root := w.Post(ann, schema.Public)
		first := w.reply(bob, root, schema.Public)
		byRoot, byReply := w.watch(dan, root, nil), w.watch(cat, first, nil)
		after, replies := w.pageOf(dan, root)
		require.Equal(w, []int64{first}, replies)
		all := func(events ...string) {
			w.Helper()
			byRoot.gets(events...)
			byReply.gets(events...)
			back := w.watch(dan, root, after)
			back.gets(events...)
			back.close()
			after, _ = w.pageOf(dan, root)
		}
		nested := w.reply(cat, first, schema.Public)
		all(added(nested))
		deeper := w.reply(ann, nested, schema.Public)
		all(added(deeper))
		w.rewrite(cat, nested)
		all(updated(nested))
		w.rewrite(ann, root)
		all(updated(root))
		w.moderate(nested, true)
		byReply.gets(updated(nested)) // its author still sees it
		byRoot.gets(removed(nested))
		w.moderate(nested, false)
		byReply.gets(updated(nested))
		byRoot.gets(added(nested))
		w.narrow(bob, first, schema.Private)
		require.Equal(w, removed(first), byRoot.next())
		require.Equal(w, removed(first), byReply.next())
		after, replies = w.pageOf(dan, root)
		require.Equal(w, []int64{nested, deeper}, replies)
		w.narrow(bob, first, schema.Public)
		all(added(first))
		w.remove(ann, deeper)
		all(removed(deeper))
		w.remove(cat, nested)
		all(removed(nested))
	})
}

// The comments of WeChat Moments: nobody is told of a comment that only friends of the commenter see,
// whatever happens to it.
func TestConversationEventsAreForThoseWhoSeeThePost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(4)
		a, b, c, d := u[0], u[1], u[2], u[3] // c is a friend of a and d, but not of b
		for _, pair := range [][2]session.Viewer{{a, b}, {a, c}, {a, d}, {b, d}, {c, d}} {
			w.Befriend(pair[0], pair[1])
		}
		root := w.Post(a, schema.Mutuals)
		w.Drain()
		toA, toB, toC, toD := w.watch(a, root, nil), w.watch(b, root, nil), w.watch(c, root, nil), w.watch(d, root, nil)
		after, _ := w.pageOf(b, root)

		get := func(ofA, ofC, ofD string) {
			w.Helper()
			toA.gets(ofA)
			toC.gets(ofC)
			toD.gets(ofD)
			toB.getsNothing()
		}
		ofC := w.reply(c, root, schema.Mutuals)
		get(added(ofC), added(ofC), added(ofC))
		w.rewrite(c, ofC)
		get(updated(ofC), updated(ofC), updated(ofC))
		w.moderate(ofC, true)
		get(removed(ofC), updated(ofC), removed(ofC))
		w.moderate(ofC, false)
		get(added(ofC), updated(ofC), added(ofC))
		w.narrow(c, ofC, schema.Private) // the author of the root still sees it
		get(updated(ofC), updated(ofC), removed(ofC))
		w.narrow(c, ofC, schema.Mutuals)
		get(updated(ofC), updated(ofC), added(ofC))
		w.remove(c, ofC)
		get(removed(ofC), removed(ofC), removed(ofC))
		ofA := w.reply(a, root, schema.Mutuals)
		for _, l := range []*watcher{toA, toB, toC, toD} {
			l.gets(added(ofA))
		}
		w.watch(b, root, after).gets(added(ofA))
	})
}

// A root that is narrowed, hidden or deleted takes its conversation with it. Its watchers are told
// to read again, find nothing, and are told again when it returns.
func TestConversationLivesWithItsRoot(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		w.Follow(cat, ann)
		root := w.Post(ann, schema.Public)
		reply := w.reply(bob, root, schema.Public)
		toBob, toCat := w.watch(bob, root, nil), w.watch(cat, root, nil)
		after, _ := w.pageOf(bob, root)

		w.narrow(ann, root, schema.Followers)
		toBob.gets(invalidated)
		toCat.gets(invalidated)
		w.notFound(bob, root, nil)
		w.notFound(bob, root, after)
		w.notFound(bob, reply, toBob.position) // bob still sees the reply
		w.watch(cat, reply, nil)
		hidden := w.reply(cat, root, schema.Public)
		toCat.gets(added(hidden))
		toBob.getsNothing()
		w.narrow(ann, root, schema.Private)
		toCat.gets(invalidated)
		toBob.getsNothing()
		w.narrow(ann, root, schema.Public)
		for ev := toBob.next(); ev != invalidated; ev = toBob.next() {
			require.Equal(w, added(hidden), ev, "unless its event came before")
		}
		toCat.gets(invalidated)
		w.watch(bob, root, after).gets(invalidated)
		later := w.reply(cat, reply, schema.Public)
		toBob.gets(added(later))
		toCat.gets(added(later))

		w.moderate(root, true)
		toBob.gets(invalidated)
		toCat.gets(invalidated)
		w.moderate(root, false)
		toBob.gets(invalidated)
		toCat.gets(invalidated)
		w.remove(ann, root)
		toBob.gets(invalidated)
		toCat.gets(invalidated)
		w.notFound(cat, root, toCat.position)
		w.notFound(cat, hidden, toCat.position)
	})
}

// Each change of the root is told to the followers who are shown it, also by a stream that has caught up, which judges
// what it is told of without reading the conversation.
func TestConversationForFollowersLivesWithItsRoot(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		w.Follow(cat, ann)
		root := w.Post(ann, schema.Public)
		toBob, toCat := w.watch(bob, root, nil), w.watch(cat, root, nil)
		first := w.reply(bob, root, schema.Public)
		toBob.gets(added(first))
		toCat.gets(added(first))
		w.narrow(ann, root, schema.Followers)
		toBob.gets(invalidated)
		toCat.gets(invalidated)
		w.narrow(ann, root, schema.Private)
		toCat.gets(invalidated)
		w.narrow(ann, root, schema.Followers)
		toCat.gets(invalidated)
		w.moderate(root, true)
		toCat.gets(invalidated)
		w.moderate(root, false)
		toCat.gets(invalidated)
		w.remove(ann, root)
		toCat.gets(invalidated)
		toBob.getsNothing()
	})
}

// A changed relation to somebody who takes part makes clients read again, also if they were away. A
// relation to anybody else does not.
func TestConversationAfterAChangedRelation(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(4)
		ann, bob, cat, eve := u[0], u[1], u[2], u[3]
		root := w.Post(ann, schema.Public)
		w.reply(bob, root, schema.Public)
		toBob, toCat := w.watch(bob, root, nil), w.watch(cat, root, nil)
		after, _ := w.pageOf(cat, root)

		_, err := w.Feed.Block(w.Ctx, eve, cat.ID)
		require.NoError(w, err)
		w.Follow(cat, w.User("another"))
		w.Drain()
		_, err = w.Feed.Block(w.Ctx, bob, cat.ID)
		require.NoError(w, err)
		w.Drain()
		toBob.getsNothing() // cat wrote nothing here
		toCat.gets(invalidated)
		w.watch(cat, root, after).gets(invalidated)
		after, replies := w.pageOf(cat, root)
		require.Empty(w, replies)
		w.reply(bob, root, schema.Public)
		ofAnn := w.reply(ann, root, schema.Public)
		toCat.gets(added(ofAnn))
		w.watch(cat, root, after).gets(added(ofAnn))

		_, err = w.Feed.Block(w.Ctx, ann, cat.ID)
		require.NoError(w, err)
		w.Drain()
		toCat.gets(invalidated)
		w.notFound(cat, root, after)
		_, err = w.Feed.Unblock(w.Ctx, ann, cat.ID)
		require.NoError(w, err)
		w.Drain()
		toCat.gets(invalidated)
		w.watch(cat, root, after).gets(invalidated)
	})
}

// A reply is deleted and the viewer unfollows its author before the stream looks at either. By the new
// relation the viewer never saw the reply, and by now its author takes no part.
func TestConversationAfterARemovalAndAChangedRelation(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		root := w.Post(ann, schema.Public)
		w.Follow(cat, bob)
		reply := w.reply(bob, root, schema.Followers)
		open := w.watch(cat, root, nil)
		after, replies := w.pageOf(cat, root)
		require.Equal(w, []int64{reply}, replies)
		w.remove(bob, reply)
		_, err := w.Feed.Unfollow(w.Ctx, cat, bob.ID)
		require.NoError(w, err)
		w.Drain()
		open.gets(invalidated)
		w.watch(cat, root, after).gets(invalidated)
	})
}

// A suspended user's replies are removed, and a conversation that the user began is gone, also without
// any reply. Both return. The same holds for a deleted user.
func TestConversationOfASuspendedUser(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		root, empty := w.Post(ann, schema.Public), w.Post(bob, schema.Public)
		w.Drain()
		toRoot, toEmpty := w.watch(cat, root, nil), w.watch(cat, empty, nil)
		one := w.reply(bob, root, schema.Public)
		two := w.reply(bob, one, schema.Public)
		secret := w.reply(bob, root, schema.Private)
		toRoot.gets(added(one), added(two))
		after, _ := w.pageOf(cat, root)
		afterEmpty, _ := w.pageOf(cat, empty)
		for range 2 {
			_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "", account.Suspension{})
			require.NoError(w, err)
			w.Drain()
			toRoot.gets(removed(one), removed(two))
			toEmpty.gets(invalidated)
			w.watch(cat, root, after).gets(removed(one), removed(two))
			w.notFound(cat, empty, afterEmpty)
			w.notFound(cat, one, nil)
			_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, bob.ID, "")
			require.NoError(w, err)
			w.Drain()
			toRoot.gets(added(one), added(two))
			toEmpty.gets(invalidated)
			w.watch(cat, empty, afterEmpty).gets(invalidated)
			after, _ = w.pageOf(cat, root)
			afterEmpty, _ = w.pageOf(cat, empty)
		}
		_, _, err := w.Accounts.Delete(w.Ctx, bob.ID, 0)
		require.NoError(w, err)
		w.Drain()
		toRoot.gets(removed(one), removed(two))
		toEmpty.gets(invalidated)
		own := w.reply(ann, root, schema.Public)
		toRoot.gets(added(own))
		w.watch(cat, root, after).gets(removed(one), removed(two), added(own))
		require.NotZero(w, secret)
	})
}

// The workers stand still after the commit. Whether a client read before or after it, and resumes before
// or after the job, it gets the reply.
func TestConversationWhileWorkersStandStill(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		before, _ := w.pageOf(bob, root)
		reply := w.replyOnly(ann, root, schema.Public)
		behind, replies := w.pageOf(bob, root)
		require.Equal(w, []int64{reply}, replies)
		open, resumed := w.watch(bob, root, nil), w.watch(bob, root, before)
		for _, l := range []*watcher{open, resumed} {
			_, ok := l.stream.Next(l.ctx)
			require.False(w, ok)
		}
		gone := w.replyOnly(ann, root, schema.Public)
		with, _ := w.pageOf(bob, root)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, gone))
		w.Work()
		w.Drain()
		last := w.reply(ann, root, schema.Public)
		for _, l := range []*watcher{open, resumed, w.watch(bob, root, before), w.watch(bob, root, behind), w.watch(bob, root, with)} {
			// A client that was never sent the deleted reply is told of its removal: it could have read it.
			require.ElementsMatch(w, []string{added(reply), removed(gone), added(last)}, []string{l.next(), l.next(), l.next()})
		}
	})
}

// A transaction chose its id and its time long before it commits. Clients read between the two.
func TestConversationWithALateCommit(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		late, err := w.IDs.Next()
		require.NoError(w, err)
		newer := w.reply(ann, root, schema.Public)
		open := w.watch(bob, root, nil)
		tx, err := w.Stores.DB.Tx(w.Ctx)
		require.NoError(w, err)
		p, err := tx.Post.Create().SetID(late).SetAuthorID(ann.ID).SetText("late").SetVisibility(schema.Public).
			SetParentID(root).SetParentAuthorID(ann.ID).SetRootID(root).Save(w.Ctx)
		require.NoError(w, err)
		require.NoError(w, w.Queue.Enqueue(w.Ctx, tx, queue.Small, job.PostCreated, job.Post{Post: late, Author: ann.ID}.ToldToConversation(p)))
		after, replies := w.pageOf(bob, root)
		require.Equal(w, []int64{newer}, replies)
		require.NoError(w, tx.Commit())
		w.Drain()
		open.gets(added(late))
		w.watch(bob, root, after).gets(added(late))
	})
}

// A worker that dies after it has recorded a change tells nobody. The next event shows the gap.
func TestConversationChangeThatWasRecordedOnly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		reply := w.reply(ann, root, schema.Public)
		l := w.watch(bob, root, nil)
		change := job.Post{Post: reply, Author: ann.ID, Root: root, ParentAuthor: ann.ID}
		c, _ := change.InConversation()
		_, err := w.Timelines.Topics.Record(w.Ctx, timeline.TopicChange{Topic: timeline.Conversation(root), Text: c.String()})
		require.NoError(w, err)
		next := w.reply(ann, root, schema.Public)
		l.gets(added(reply), added(next))
	})
}

// More changes than the record holds, a job that was given up, and replies that were imported with old
// times: clients read again.
func TestConversationInvalidated(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		reply := w.reply(ann, root, schema.Public)
		c, _ := job.Post{Post: reply, Author: ann.ID, Root: root, ParentAuthor: ann.ID}.InConversation()
		after, _ := w.pageOf(bob, root)
		var changes []timeline.TopicChange
		for range timeline.TopicCap {
			changes = append(changes, timeline.TopicChange{Topic: timeline.Conversation(root), Text: c.String()})
		}
		record := func(changes []timeline.TopicChange) {
			_, err := w.Timelines.Topics.Record(w.Ctx, changes...)
			require.NoError(w, err)
		}
		record(changes)
		w.watch(bob, root, after).gets(added(reply))
		record(changes[:1])
		l := w.watch(bob, root, after)
		l.gets(invalidated)
		back := w.watch(bob, root, l.position)
		for _, j := range []struct {
			kind    string
			payload any
		}{
			{job.PostGivenUp, job.Post{Post: reply, Author: ann.ID, Root: root}},
			{job.PostsBackdated, job.Authors{Authors: []int64{ann.ID}, Newest: []int64{reply}, Roots: []int64{root}}},
			{job.InboxesStale, job.Users{Users: []int64{bob.ID}}},
			{job.RelationGivenUp, job.Relation{Users: [2]int64{ann.ID, bob.ID}}},
			{job.FeedsStale, struct{}{}},
		} {
			after, _ := w.pageOf(bob, root)
			tx, err := w.Stores.DB.Tx(w.Ctx)
			require.NoError(w, err)
			require.NoError(w, w.Queue.Enqueue(w.Ctx, tx, queue.Large, j.kind, j.payload))
			require.NoError(w, tx.Commit())
			w.Drain()
			l.gets(invalidated)
			back.gets(invalidated)
			w.watch(bob, root, after).gets(invalidated)
		}
		next := w.reply(ann, root, schema.Public)
		l.gets(added(next))
		back.gets(added(next))
	})
}

// Redis loses everything: an open stream and one that resumes say so. The open one learns of it with the
// next heartbeat of the hub, after at most five seconds.
func TestConversationAfterRedisLostIt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		open := w.watch(bob, root, nil)
		after, _ := w.pageOf(bob, root)
		require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
		w.reply(ann, root, schema.Public)
		w.watch(bob, root, after).gets(invalidated)
		open.gets(invalidated)
		next := w.reply(ann, root, schema.Public)
		open.gets(added(next))
	})
}

// Redis does not answer when a stream must catch up: the stream ends with an error, and the client resumes
// from its position without loss. A stream that need not read goes on.
func TestConversationWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.Stores.Redis.AddHook(outage{})
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		after, _ := w.pageOf(bob, root)
		open, away := w.watch(bob, root, nil), w.watch(bob, root, after)
		away.ctx = context.WithValue(away.ctx, outage{}, true)
		_, ok := away.take()
		require.False(w, ok)
		require.ErrorContains(w, away.stream.Err(), "redis is away")
		reply := w.reply(ann, root, schema.Public)
		w.watch(bob, root, after).gets(added(reply))
		open.gets(added(reply))
	})
}

// Redis returns to an older state, in which the position of a client is also a position: clients read
// again.
func TestConversationWhenRedisComesBackOlder(t *testing.T) {
	t.Parallel()
	s := storagetest.Real(t)
	r := storagetest.Redis(t, s)
	w := &world{feedtest.Idle(t, s, feedtest.Options{})}
	w.Work()
	u := w.Users(2)
	ann, bob := u[0], u[1]
	root := w.Post(ann, schema.Public)
	w.Drain()
	after, _ := w.pageOf(bob, root)
	r.Snapshot(t)
	w.reply(ann, root, schema.Public)
	r.Restart(t)
	require.Eventually(w, func() bool { return w.Stores.Redis.Ping(w.Ctx).Err() == nil }, time.Minute, time.Millisecond)
	w.watch(bob, root, after).gets(invalidated)
}

// The stream that lags behind the hub's buffer catches up from the record.
func TestConversationThatLagsBehind(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		l := w.watch(bob, root, nil)
		var want []string
		for range 40 {
			want = append(want, added(w.replyOnly(ann, root, schema.Public)))
		}
		w.Drain()
		var got []string
		for range want {
			got = append(got, l.next())
		}
		require.ElementsMatch(w, want, got)
	})
}

// Nobody but a viewer with a session watches, and a position is good for one viewer and conversation.
func TestWhoMayWatchAConversation(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.SignUp("ann", "correct horse battery"), w.User("bob")
		root, other := w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		_, err := w.Streams.ListenConversation(w.Ctx, session.Viewer{}, root, nil, func() {})
		w.RequireCode(refusal.Unauthenticated, err)
		require.Empty(w, w.Streams.ConversationPosition(w.Ctx, session.Viewer{}, &ent.Post{ID: root}))
		ofBob, _ := w.pageOf(bob, root)
		ofOther, _ := w.pageOf(ann, other)
		for _, after := range []*string{ofBob, ofOther, new(string), w.timelinePosition(ann)} {
			_, err = w.Streams.ListenConversation(w.Ctx, ann, root, after, func() {})
			w.RequireCode(refusal.BadInput, err)
		}
		l := w.watch(ann, root, nil)
		w.Run(func(ctx context.Context) error { return w.Sessions.Run(ctx, w.Hub) })
		require.NoError(w, w.Sessions.LogOut(w.Ctx, ann))
		_, ok := l.take()
		require.False(w, ok)
		require.NoError(w, l.stream.Err())
	})
}

// timelinePosition returns the position of the viewer's timeline.
func (w *world) timelinePosition(v session.Viewer) *string {
	w.Helper()
	page, err := w.Home.Timeline(w.Ctx, v, paging.Page{}, "LATEST")
	require.NoError(w, err)
	return &page.Position
}

// A reply is hidden after its event was made and before it is sent.
func TestConversationEventThatIsHiddenWhileItIsMadeIsNotSent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.Drain()
		l := w.watch(bob, root, nil)
		reply := w.reply(ann, root, schema.Public)
		ev, ok := l.stream.Next(l.ctx)
		for !ok {
			<-l.news
			ev, ok = l.stream.Next(l.ctx)
		}
		require.IsType(w, &stream.ConversationPostAdded{}, ev)
		w.narrow(ann, reply, schema.Private)
		require.False(w, l.stream.Confirm(l.ctx, ev, false))
		l.gets(removed(reply))
	})
}

// A position does not show how much has happened that the viewer may not see.
func TestConversationPositionHidesNumbers(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(2)
		root := w.Post(u[0], schema.Public)
		one, _ := w.pageOf(u[1], root)
		two, _ := w.pageOf(u[1], root)
		a, err := paging.Decode(*one, paging.ConversationEvents, u[1].ID)
		require.NoError(w, err)
		b, err := paging.Decode(*two, paging.ConversationEvents, u[1].ID)
		require.NoError(w, err)
		require.Len(w, b.Tail, len(a.Tail))
		for from := 0; from+8 <= len(a.Tail); from += 8 {
			require.NotEqual(w, a.Tail[from:from+8], b.Tail[from:from+8], "although nothing happened")
		}
	})
}

// However many watch a conversation in a process, a change is looked up once.
func TestConversationChangeIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now()
		w := newWorld(t, s, feedtest.Options{Now: func() time.Time { return now }})
		u := w.Users(12)
		root := w.Post(u[0], schema.Public)
		reply := w.replyOnly(u[1], root, schema.Public)
		var watchers []*watcher
		for _, v := range u {
			l := w.watch(v, root, nil)
			_, ok := l.stream.Next(l.ctx)
			require.False(t, ok)
			watchers = append(watchers, l)
		}
		c, _ := job.Post{Post: reply, Author: u[1].ID, Root: root, ParentAuthor: u[0].ID}.InConversation()
		least := math.MaxInt
		for range 5 { // so that queries that run every few seconds do not count
			recorded, err := w.Timelines.Topics.Record(w.Ctx, timeline.TopicChange{Topic: timeline.Conversation(root), Text: c.String()})
			require.NoError(t, err)
			count := storagetest.CountQueries(w.Stores)
			_, err = w.Publisher.Publish(w.Ctx, live.Event{Kind: live.ConversationChanged, Post: reply, Author: u[1].ID, Reason: recorded[0].At.With(c.String())},
				[]int64{live.Conversation(root)})
			require.NoError(t, err)
			for _, l := range watchers {
				l.gets(added(reply))
			}
			least = min(least, count())
		}
		require.Equal(t, 2, least) // of the reply with its root, and of the relations
	})
}
