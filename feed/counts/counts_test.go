package counts_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/counts"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// watcher is a watch, with a channel that receives when the watch is woken.
type watcher struct {
	w *feedtest.World
	*counts.Watch
	woken chan struct{}
}

func watch(ctx context.Context, w *feedtest.World, v session.Viewer, posts ...int64) watcher {
	w.Helper()
	woken := make(chan struct{}, 1)
	got, err := w.Counts.Watch(ctx, v, posts, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	require.NoError(w, err)
	return watcher{w, got, woken}
}

// begin starts a watch and takes its first event.
func begin(w *feedtest.World, v session.Viewer, posts ...int64) watcher {
	w.Helper()
	s := watch(w.Ctx, w, v, posts...)
	s.takes(nil)
	return s
}

// takes takes an event, and compares its counts unless want is nil.
func (s watcher) takes(want map[int64]int) {
	s.w.Helper()
	<-s.woken
	event, ok := s.Next(s.w.Ctx)
	require.True(s.w, ok)
	got := map[int64]int{}
	for _, p := range event {
		got[p.ID] = p.LikeCount
	}
	require.Len(s.w, got, len(event))
	if want != nil {
		require.Equal(s.w, want, got)
	}
	require.True(s.w, s.Confirm(s.w.Ctx, event, true))
}

// quiet requires that there is no event to take.
func (s watcher) quiet() {
	s.w.Helper()
	event, ok := s.Next(s.w.Ctx)
	require.False(s.w, ok, "%v", event)
}

func like(w *feedtest.World, post int64, by ...session.Viewer) {
	w.Helper()
	for _, v := range by {
		_, err := w.Feed.LikePost(w.Ctx, v, post)
		require.NoError(w, err)
	}
}

func TestCountsComeTogetherAndOnce(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(6)
		ann, bob := users[0], users[1]
		first, second, third := w.Post(ann, schema.Public), w.Post(ann, schema.Public), w.Post(ann, schema.Public)
		like(w, second, ann)
		_, err := w.Counts.Watch(w.Ctx, session.Viewer{}, []int64{first}, func() {})
		require.ErrorIs(w, err, refusal.ErrSignIn)

		s := watch(w.Ctx, w, bob, first, second, third, first, 99)
		s.takes(map[int64]int{first: 0, second: 1, third: 0})
		s.quiet()
		w.Counts.Look(w.Ctx)
		s.quiet() // the client has these counts

		like(w, first, users[2], users[3])
		like(w, third, users[2])
		s.quiet() // before the next read
		w.Counts.Look(w.Ctx)
		like(w, first, users[4])
		s.takes(map[int64]int{first: 3, third: 1}) // includes the like after Look
		w.Counts.Look(w.Ctx)
		s.quiet()

		// A count that goes up and down between two reads is not sent.
		_, err = w.Feed.UnlikePost(w.Ctx, users[4], first)
		require.NoError(w, err)
		like(w, first, users[5])
		w.Counts.Look(w.Ctx)
		s.quiet()

		// A watch was sent a count between two reads, and the count then goes back. The watch
		// is sent the earlier count again.
		like(w, second, users[2])
		w.Counts.Look(w.Ctx)
		like(w, second, users[3])
		s.takes(map[int64]int{second: 3})
		_, err = w.Feed.UnlikePost(w.Ctx, users[3], second)
		require.NoError(w, err)
		w.Counts.Look(w.Ctx)
		s.takes(map[int64]int{second: 2})
	})
}

// A watch that begins between two reads misses no change, although other watches have the older count.
func TestCountsAfterAnotherWatchBegan(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(4)
		post := w.Post(users[0], schema.Public)
		old := begin(w, users[1], post)
		w.Counts.Look(w.Ctx)
		like(w, post, users[3])
		young := watch(w.Ctx, w, users[2], post)
		young.takes(map[int64]int{post: 1})
		_, err := w.Feed.UnlikePost(w.Ctx, users[3], post)
		require.NoError(w, err)
		w.Counts.Look(w.Ctx)
		young.takes(map[int64]int{post: 0})
		old.quiet()
	})
}

// A viewer receives no count of a post that they may not see, even if it was hidden after the counts
// were read or after the verdict.
func TestCountsOfWhatIsHidden(t *testing.T) {
	for name, hide := range map[string]func(w *feedtest.World, author, viewer session.Viewer, post int64) error{
		"blocked": func(w *feedtest.World, author, viewer session.Viewer, _ int64) error {
			_, err := w.Feed.Block(w.Ctx, author, viewer.ID)
			return err
		},
		"blocks": func(w *feedtest.World, author, viewer session.Viewer, _ int64) error {
			_, err := w.Feed.Block(w.Ctx, viewer, author.ID)
			return err
		},
		"private": func(w *feedtest.World, author, _ session.Viewer, post int64) error {
			_, err := w.Feed.SetVisibility(w.Ctx, author, post, schema.Private)
			return err
		},
		"deleted": func(w *feedtest.World, author, _ session.Viewer, post int64) error {
			err := w.Feed.DeletePost(w.Ctx, author, post)
			return err
		},
		"of another process": func(w *feedtest.World, author, viewer session.Viewer, _ int64) error {
			return w.Stores.DB.Block.Create().SetBlockerID(author.ID).SetBlockedID(viewer.ID).Exec(w.Ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, stores *storage.Stores) {
				var later atomic.Int64
				w := feedtest.Idle(t, stores, feedtest.Options{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
				users := w.Users(7)
				ann, bob := users[0], users[1]
				post, other := w.Post(ann, schema.Public), w.Post(users[2], schema.Public)
				alone := begin(w, bob, other, post)
				many := []watcher{alone}
				for range 5 { // makes bob use shared verdicts on both posts
					many = append(many, begin(w, users[2], other, post))
				}
				like(w, post, users[3])
				like(w, other, users[3])
				w.Counts.Look(w.Ctx)
				event, ok := alone.Next(w.Ctx)
				require.True(t, ok)
				require.Len(t, event, 2)
				require.NoError(t, hide(w, ann, bob, post))
				later.Add(int64(time.Second))
				require.False(t, alone.Confirm(w.Ctx, event, true), "it was hidden while the response was made")
				alone.takes(map[int64]int{other: 1})
				_, err := w.Stores.SQL.ExecContext(w.Ctx, "UPDATE posts SET like_count = like_count + 1")
				require.NoError(t, err)
				w.Counts.Look(w.Ctx)
				alone.takes(map[int64]int{other: 2})
				young := watch(w.Ctx, w, bob, other, post)
				young.takes(map[int64]int{other: 2})
			})
		})
	}
}

// A watch also sends counts of posts that the viewer may see but does not have in the home timeline,
// because the viewer follows nobody or mutes the author.
func TestCountsOfWhatIsNotAtHome(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(9)
		ann := users[0]
		public, followers, mutuals := w.Post(ann, schema.Public), w.Post(ann, schema.Followers), w.Post(ann, schema.Mutuals)
		private := w.Post(ann, schema.Private)
		w.Follow(users[1], ann)
		w.Befriend(users[2], ann)
		_, err := w.Feed.Mute(w.Ctx, users[2], ann.ID)
		require.NoError(w, err)
		var all []watcher
		for _, v := range users {
			all = append(all, begin(w, v, public, followers, mutuals, private))
		}
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "UPDATE posts SET like_count = 7")
		require.NoError(w, err)
		w.Counts.Look(w.Ctx)
		for i, s := range all {
			want := map[int64]int{public: 7}
			if i < 3 {
				want[followers] = 7
			}
			if i == 0 || i == 2 {
				want[mutuals] = 7
			}
			if i == 0 {
				want[private] = 7
			}
			s.takes(want)
		}
	})
}

func TestCountsEndWithTheSession(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		auth, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "Ann")
		require.NoError(w, err)
		ann, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
		require.NoError(w, err)
		bob := w.User("bob")
		post := w.Post(bob, schema.Public)
		s, other := begin(w, ann, post), begin(w, bob, post)
		fresh := watch(w.Ctx, w, ann, post) // its first event is not taken
		require.NoError(w, w.Sessions.LogOut(w.Ctx, ann))
		w.Run(func(ctx context.Context) error { return w.Sessions.Run(ctx, w.Hub) })
		require.Eventually(w, func() bool { return s.Ended() && fresh.Ended() }, time.Minute, time.Millisecond)
		like(w, post, bob)
		w.Counts.Look(w.Ctx)
		for _, s := range []watcher{s, fresh} {
			<-s.woken
			s.quiet()
			require.True(w, s.Ended())
			require.NoError(w, s.Err())
		}
		other.takes(map[int64]int{post: 1})
	})
}

func TestCountsEndWithTheContext(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(2)
		one, two := w.Post(users[0], schema.Public), w.Post(users[0], schema.Public)
		ctx, cancel := context.WithCancel(w.Ctx)
		s := watch(ctx, w, users[1], one, two)
		s.takes(nil)
		other := begin(w, users[1], two)
		watches, posts := w.Counts.Watched()
		require.Equal(w, []int{2, 2}, []int{watches, posts})
		cancel()
		<-s.woken
		require.True(w, s.Ended())
		watches, posts = w.Counts.Watched()
		require.Equal(w, []int{1, 1}, []int{watches, posts})
		like(w, two, users[0])
		w.Counts.Look(w.Ctx)
		other.takes(map[int64]int{two: 1})
	})
}

// statements is a database driver that counts queries and fails on demand.
type statements struct {
	dialect.Driver
	asked, judged atomic.Int32
	fails         atomic.Bool
}

func (d *statements) Query(ctx context.Context, query string, args, v any) error {
	d.asked.Add(1)
	return d.Driver.Query(ctx, query, args, v)
}

func (d *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	d.asked.Add(1)
	if strings.Contains(query, " u WHERE p.id = $1") || strings.Contains(query, " u(value) WHERE p.id = $1") {
		d.judged.Add(1)
	}
	if d.fails.Load() {
		return nil, errors.New("the database is away")
	}
	return d.Driver.(entsql.ExecQuerier).QueryContext(ctx, query, args...)
}

// All watches of a post share one verdict. Without watches, Look executes no statement.
func TestCountsAreReadOnceForAll(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		db := &statements{Driver: s.Driver}
		now := time.Now() // the clock stands still, so no verdict expires
		w := feedtest.New(t, s, feedtest.Options{DB: ent.NewClient(ent.Driver(db)), Now: func() time.Time { return now }})
		w.Run(w.IDs.Run)
		w.Counts.Look(w.Ctx)
		require.Zero(t, db.asked.Load())

		users := w.Users(30)
		post := w.Post(users[0], schema.Public)
		var all []watcher
		for _, v := range users {
			all = append(all, begin(w, v, post))
		}
		w.Counts.Look(w.Ctx)
		like(w, post, users[1])
		before := db.asked.Load()
		w.Counts.Look(w.Ctx)
		for _, s := range all {
			s.takes(map[int64]int{post: 1})
		}
		require.EqualValues(t, 1, db.judged.Load())
		require.EqualValues(t, 3, db.asked.Load()-before, "one for the counts, two for the verdict")

		// After an error, a later read sends the count.
		like(w, post, users[2])
		db.fails.Store(true)
		w.Counts.Look(w.Ctx)
		all[0].quiet()
		db.fails.Store(false)
		w.Counts.Look(w.Ctx)
		db.fails.Store(true)
		<-all[0].woken
		all[0].quiet()
		db.fails.Store(false)
		w.Counts.Look(w.Ctx)
		all[0].takes(map[int64]int{post: 2})
	})
}

// Run reads the counts repeatedly until it is stopped.
func TestRunLooks(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		stop := w.Run(w.Counts.Run)
		users := w.Users(2)
		post := w.Post(users[0], schema.Public)
		s := begin(w, users[1], post)
		like(w, post, users[0])
		s.takes(map[int64]int{post: 1})
		stop()
	})
}
