package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	feedjob "tideline/feed/job"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// BenchmarkTellDependents measures a step of the job that follows when a root of 100,000 replies is narrowed:
// a page of 100. own-µs/post is the processor time of this process.
func BenchmarkTellDependents(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *storage.Stores{"postgres": storagetest.Real, "sqlite": storagetest.Embedded} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			s.DB = ent.NewClient(ent.Driver(s.Driver)) // the client of tests counts statements
			w := newWorld(b, s, feedtest.Options{})
			u := w.Users(2)
			root := w.Post(u[0], schema.Public)
			w.replies(u[1], u[0], root, 100_000)
			_, err := s.SQL.ExecContext(w.Ctx, "ANALYZE")
			require.NoError(b, err)
			after, spent := int64(0), storagetest.ProcessorTime(b)
			for b.Loop() {
				after, err = w.Feed.TellDependents(w.Ctx, root, after, feedjob.Post{}, 100)
				require.NoError(b, err)
			}
			posts := float64(b.N * 100)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/posts, "µs/post")
			b.ReportMetric(float64((storagetest.ProcessorTime(b)-spent).Microseconds())/posts, "own-µs/post")
		})
	}
}

// BenchmarkPublicPosts measures a page of 20 of the newest public posts, of 100,000, for a member, who gets a new list
// of ids, and for visitors, who share one. own-µs/page is the processor time of this process.
func BenchmarkPublicPosts(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *storage.Stores{"postgres": storagetest.Real, "sqlite": storagetest.Embedded} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			s.DB = ent.NewClient(ent.Driver(s.Driver)) // the client of tests counts statements
			w := newWorld(b, s, feedtest.Options{})
			u := w.Users(2)
			w.History(u[0], 100_000)
			_, err := s.SQL.ExecContext(w.Ctx, "ANALYZE")
			require.NoError(b, err)
			for name, v := range map[string]session.Viewer{"member": u[1], "visitor": {}} {
				b.Run(name, func(b *testing.B) {
					spent := storagetest.ProcessorTime(b)
					for b.Loop() {
						page, err := w.Feed.PublicPosts(w.Ctx, v, paging.Page{})
						require.NoError(b, err)
						require.Len(b, page.Edges, 20)
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/page")
					b.ReportMetric(float64((storagetest.ProcessorTime(b)-spent).Microseconds())/float64(b.N), "own-µs/page")
				})
			}
		})
	}
}
