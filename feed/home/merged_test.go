package home_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// heldList is a database in which the query of the merged authors waits.
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

// All readers share one query of the merged authors, and one who gives up waits for
// nobody.
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
