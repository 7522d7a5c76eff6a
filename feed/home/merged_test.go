package home_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// heldList is a database driver in which the query for the merged authors waits.
type heldList struct {
	dialect.Driver
	asked   chan struct{}
	release chan struct{}
	queries atomic.Int32
}

func (d *heldList) Query(ctx context.Context, query string, args, v any) error {
	if strings.Contains(query, "fan_out_mode") && !strings.Contains(query, "handle") {
		if d.queries.Add(1) == 1 {
			close(d.asked)
		}
		<-d.release
	}
	return d.Driver.Query(ctx, query, args, v)
}

func (d *heldList) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.Driver.(entsql.ExecQuerier).QueryContext(ctx, query, args...)
}

// All readers share one query for the merged authors, and a reader that gives up does not wait
// for it.
func TestMergedAuthorsAreReadOnceForAll(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		held := &heldList{Driver: s.Driver, asked: make(chan struct{}), release: make(chan struct{})}
		w := newWorld(t, s, feedtest.Options{DB: ent.NewClient(ent.Driver(held)), Policy: home.Policy{MergedListFor: 1 << 50}})
		ann := w.User("ann")
		post := w.Post(ann, schema.Public)
		var readers sync.WaitGroup
		first, giveUp := context.WithCancel(w.Ctx)
		defer giveUp()
		readers.Go(func() { _, _ = w.Home.Timeline(first, ann, paging.Page{}, home.Latest) })
		<-held.asked
		gone, cancel := context.WithCancel(w.Ctx)
		cancel()
		_, err := w.Home.Timeline(gone, ann, paging.Page{}, home.Latest)
		require.ErrorIs(t, err, context.Canceled)
		giveUp()
		readers.Wait()

		pages := make(chan []int64, 5)
		for range cap(pages) {
			readers.Go(func() { pages <- w.Timeline(ann, 1) })
		}
		close(held.release)
		readers.Wait()
		for range cap(pages) {
			require.Equal(t, []int64{post}, <-pages)
		}
		require.EqualValues(t, 1, held.queries.Load())
	})
}

// If there are more merged authors than a process lists, readers keep their inboxes. They merge
// only the authors that they follow, including one who returned to push a moment ago.
func TestMoreMergedAuthorsThanAList(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{Policy: home.Policy{MergedListFor: time.Nanosecond}})
		w.Work()
		u := w.Users(5)
		reader, other, pushed, star, returned := u[0], u[1], u[2], u[3], u[4]
		for _, author := range []session.Viewer{pushed, star, returned} {
			w.Follow(reader, author)
		}
		w.Follow(other, pushed)
		all := []int64{w.Post(pushed, schema.Public)}
		w.Drain()
		require.Len(t, w.Timeline(reader, 9), 1)
		require.Len(t, w.Timeline(other, 9), 1)
		w.fillMerged()
		now := w.Now().UnixMilli()
		w.Stores.DB.User.Update().Where(user.ID(star.ID)).SetFanOutMode(user.FanOutModePULL).SetFanOutModeSince(now).ExecX(w.Ctx)
		w.Stores.DB.User.Update().Where(user.ID(returned.ID)).SetFanOutMode(user.FanOutModePULL).SetFanOutModeSince(now).ExecX(w.Ctx)
		all = append(all, w.Post(star, schema.Public), w.Post(returned, schema.Public)) // in no inbox
		w.Drain()
		w.Stores.DB.User.Update().Where(user.ID(returned.ID)).SetFanOutMode(user.FanOutModePUSH).SetFanOutModeSince(now).ExecX(w.Ctx)

		require.Equal(t, feedtest.NewestFirst(all...), w.Timeline(reader, 9))
		for _, author := range []session.Viewer{star, returned} { // Counts reads them from Redis only
			require.NoError(t, w.Home.Reader.BuildOutbox(w.Ctx, author.ID))
		}
		// The page may have requested builds of outboxes. Until they are done there is no count.
		var unread map[int64]int
		require.Eventually(t, func() bool {
			var err error
			unread, err = w.Home.Unread.Counts(w.Ctx, []int64{reader.ID, other.ID})
			return err == nil && len(unread) == 2
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, map[int64]int{reader.ID: 3, other.ID: 1}, unread)
		for viewer, merges := range map[session.Viewer][]int64{reader: {star.ID, returned.ID}, other: nil} {
			merged, listed, err := w.Home.Reader.MergedFollowees(w.Ctx, viewer.ID)
			require.NoError(t, err)
			require.True(t, listed)
			require.ElementsMatch(t, merges, merged)
		}
		_, err := w.Feed.Mute(w.Ctx, reader, star.ID)
		require.NoError(t, err)
		w.Drain()
		require.Equal(t, feedtest.NewestFirst(all[0], all[2]), w.Timeline(reader, 9))
	})
}

// fillMerged creates as many merged authors as a process lists.
func (w *world) fillMerged() {
	w.Helper()
	users := make([]*ent.UserCreate, 2000)
	for i := range users {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		users[i] = w.Stores.DB.User.Create().SetID(id).SetHandle(fmt.Sprint("star", i)).SetPasswordHash("").SetFanOutMode(user.FanOutModePULL)
	}
	for chunk := range slices.Chunk(users, 500) {
		require.NoError(w, w.Stores.DB.User.CreateBulk(chunk...).Exec(w.Ctx))
	}
}
