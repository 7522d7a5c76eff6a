package bulk_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/storage/storagetest"
)

const benchUsers = 50_000

// BenchmarkRows measures rows a second on PostgreSQL, without workers. The floor is the rate of
// inserts alone: rows with two users, a thousand a statement, without reads, locks, counters and
// jobs.
func BenchmarkRows(b *testing.B) {
	s := storagetest.Real(b)
	s.DB = ent.NewClient(ent.Driver(s.Driver)) // without the tests' count of statements
	w := feedtest.New(b, s, feedtest.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	const perOp = bulk.MaxRows
	name := func(i int) string { return fmt.Sprint("user-", i) }
	users := func(from, n int) []bulk.User {
		list := make([]bulk.User, n)
		for i := range list {
			list[i] = bulk.User{ExternalID: name(from + i), Handle: text(fmt.Sprint("user", from+i)), Name: text(fmt.Sprintf("The %dth user", from+i))}
		}
		return list
	}
	for from := 0; from < benchUsers; from += perOp {
		_, err := w.Bulk.Users(w.Ctx, app, users(from, perOp))
		require.NoError(b, err)
	}
	_, err := s.SQL.ExecContext(w.Ctx, "VACUUM ANALYZE users")
	require.NoError(b, err)
	run := func(name string, op func(n int) ([]*bulk.Result, error)) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				results, err := op(n)
				require.NoError(b, err)
				require.Len(b, results, perOp)
				require.Equal(b, bulk.Created, results[0].Status)
				n++
			}
			b.ReportMetric(float64(n*perOp)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	next := benchUsers
	run("users", func(int) ([]*bulk.Result, error) {
		next += perOp
		return w.Bulk.Users(w.Ctx, app, users(next, perOp))
	})
	run("follows", func(int) ([]*bulk.Result, error) {
		list := make([]bulk.Follow, perOp)
		for i := range list {
			list[i] = bulk.Follow{Follower: name(random.IntN(benchUsers)), Followee: name(int(benchUsers * math.Pow(random.Float64(), 3)))}
		}
		return w.Bulk.Follows(w.Ctx, app, list)
	})
	posts, old := 0, time.Now().Add(-1000*time.Hour)
	run("posts", func(int) ([]*bulk.Result, error) {
		list := make([]bulk.Post, perOp)
		for i := range list {
			posts++
			at := old.Add(time.Duration(posts) * 20 * time.Millisecond)
			list[i] = bulk.Post{ExternalID: fmt.Sprint("post-", posts), Author: name(random.IntN(benchUsers)), Text: fmt.Sprintf("Post %d of many, which says little", posts), CreatedAt: &at}
		}
		return w.Bulk.Posts(w.Ctx, app, list)
	})
	_, err = s.SQL.ExecContext(w.Ctx, "CREATE TABLE floor_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a bigint REFERENCES users, b bigint REFERENCES users, t text); CREATE UNIQUE INDEX ON floor_rows (a, id); CREATE INDEX ON floor_rows (b, id)")
	require.NoError(b, err)
	ids, err := s.DB.User.Query().Limit(benchUsers).IDs(w.Ctx)
	require.NoError(b, err)
	insert := "INSERT INTO floor_rows (a, b, t) SELECT (r->>0)::bigint, (r->>1)::bigint, r->>2 FROM jsonb_array_elements($1::jsonb) r"
	b.Run("floor", func(b *testing.B) {
		n := 0
		for b.Loop() {
			list := make([][]any, 1000) // rows of one transaction
			for i := range list {
				list[i] = []any{ids[random.IntN(len(ids))], ids[random.IntN(len(ids))], fmt.Sprintf("Post %d of many, which says little", n)}
				n++
			}
			data, err := json.Marshal(list)
			require.NoError(b, err)
			_, err = s.SQL.ExecContext(w.Ctx, insert, string(data))
			require.NoError(b, err)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
	})
}
