package stream_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/stream"
)

// reader is a client that shows a conversation. It leaves and comes back, and does what docs/live.md
// says.
type reader struct {
	*world
	viewer   session.Viewer
	root     int64
	position string
	shows    map[int64]string // the texts of the replies
	stream   *watcher         // nil while the client is away
}

// read reads the conversation again.
func (r *reader) read() {
	r.Helper()
	r.position = r.Streams.ConversationPosition(r.Ctx, r.viewer, &ent.Post{ID: r.root})
	r.shows = r.page()
}

// page returns the texts of the replies, or nil if the viewer may not see the root.
func (r *reader) page() map[int64]string {
	r.Helper()
	if _, err := r.Feed.Post(r.Ctx, r.viewer, r.root); err != nil {
		require.Equal(r, refusal.NotFound, refusal.CodeOf(err), "%v", err)
		return nil
	}
	all := 100
	list, err := r.Conversations.All(r.Ctx, r.viewer, &ent.Post{ID: r.root}, paging.Page{First: &all})
	require.NoError(r, err)
	require.False(r, list.HasNextPage)
	texts := map[int64]string{}
	for _, p := range list.Nodes() {
		texts[p.ID] = p.Text
	}
	return texts
}

// arrive subscribes after the position, unless the viewer may not see the root.
func (r *reader) arrive() {
	r.Helper()
	if _, err := r.Feed.Post(r.Ctx, r.viewer, r.root); err == nil && r.stream == nil {
		r.stream = r.watch(r.viewer, r.root, &r.position)
	}
}

func (r *reader) leave() {
	if r.stream != nil {
		r.stream.close()
		r.stream = nil
	}
}

// look handles at most most of the events that wait.
func (r *reader) look(most int) {
	r.Helper()
	for ; r.stream != nil && most > 0; most-- {
		ev, ok := r.stream.stream.Next(r.stream.ctx)
		if !ok {
			require.NoError(r, r.stream.stream.Err())
			return
		}
		if !r.stream.stream.Confirm(r.stream.ctx, ev, false) {
			continue
		}
		switch ev := ev.(type) {
		case *stream.ConversationPostAdded:
			r.put(ev.Post)
			r.position = ev.Position
		case *stream.ConversationPostUpdated:
			r.put(ev.Post)
			r.position = ev.Position
		case *stream.ConversationPostRemoved:
			delete(r.shows, ev.PostID)
			r.position = ev.Position
		case *stream.ConversationInvalidated:
			r.read()
		}
	}
}

func (r *reader) put(p *ent.Post) {
	if p.ID != r.root && r.shows != nil {
		r.shows[p.ID] = p.Text
	}
}

// Whatever happens in a conversation and to those who take part, and whenever clients leave and come
// back, they end up with what a page shows.
func TestConversationClientsAgreeWithPages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) { play(w, rand.New(rand.NewPCG(seed, 1)), 60) })
		})
	}
}

func play(w *world, random *rand.Rand, steps int) {
	w.Helper()
	u := w.Users(5)
	author, others := u[0], u[3:] // the others do not watch, and may be suspended
	root := w.Post(author, schema.Public)
	posts := map[int64]session.Viewer{root: author}
	order := []int64{root}
	var readers []*reader
	for _, v := range u[:3] {
		r := &reader{world: w, viewer: v, root: root}
		r.read()
		r.arrive()
		readers = append(readers, r)
	}
	visibilities := []schema.Visibility{schema.Public, schema.Public, schema.Followers, schema.Mutuals, schema.Private}
	anyVisibility := func() *schema.Visibility { return &visibilities[random.IntN(len(visibilities))] }
	anyPost := func() (int64, session.Viewer) {
		id := order[random.IntN(len(order))]
		return id, posts[id]
	}
	allowed := func(err error) { // the viewer may be hidden, blocked or gone, and the post, too
		w.Helper()
		if err != nil {
			require.NotEmpty(w, refusal.CodeOf(err), "%v", err)
		}
	}
	for step := range steps {
		a, b := u[random.IntN(len(u))], u[random.IntN(len(u))]
		id, by := anyPost()
		var err error
		switch random.IntN(16) {
		case 0, 1, 2, 3:
			var p *ent.Post
			if p, err = w.Feed.CreatePost(w.Ctx, a, feed.Draft{Text: "reply", ReplyTo: id, Visibility: anyVisibility()}); err == nil {
				posts[p.ID], order = a, append(order, p.ID)
			}
		case 4, 5:
			text := fmt.Sprint("step ", step)
			_, err = w.Feed.UpdatePost(w.Ctx, by, id, feed.Edit{Text: &text})
		case 6, 7:
			_, err = w.Feed.SetVisibility(w.Ctx, by, id, *anyVisibility())
		case 8:
			if id != root {
				err = w.Feed.DeletePost(w.Ctx, by, id)
			}
		case 9:
			_, err = w.Moderation.HidePost(w.Ctx, moderation.Console, id, "")
		case 10:
			_, err = w.Moderation.UnhidePost(w.Ctx, moderation.Console, id, "")
		case 11:
			_, err = w.Feed.Follow(w.Ctx, a, b.ID)
		case 12:
			_, err = w.Feed.Unfollow(w.Ctx, a, b.ID)
		case 13:
			_, err = w.Feed.Block(w.Ctx, a, b.ID)
		case 14:
			_, err = w.Feed.Unblock(w.Ctx, a, b.ID)
		case 15:
			if end, of := random.IntN(2) == 0, others[random.IntN(len(others))].ID; end {
				_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, of, "")
			} else {
				_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, of, "", account.Suspension{})
			}
		}
		allowed(err)
		r := readers[random.IntN(len(readers))]
		switch random.IntN(6) {
		case 0:
			r.leave()
		case 1, 2:
			r.arrive()
		case 3:
			w.Drain()
			r.look(2)
		default:
			r.look(1)
		}
	}
	_, err := w.Moderation.UnhidePost(w.Ctx, moderation.Console, root, "")
	require.NoError(w, err)
	_, err = w.Feed.SetVisibility(w.Ctx, author, root, schema.Public)
	require.NoError(w, err)
	w.Drain()
	for _, r := range readers {
		r.arrive()
		require.Eventually(w, func() bool {
			r.look(1000)
			page := r.page()
			return page == nil || maps.Equal(page, r.shows)
		}, 30*time.Second, 10*time.Millisecond, "viewer %d of %v: posts %v", r.viewer.ID, u, order)
	}
}
