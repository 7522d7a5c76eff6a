package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/server/limit"
	"tideline/server/transport"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// BenchmarkPage measures a page of 20 posts from a full inbox, on PostgreSQL and redis-server, one request at
// a time: the minimum cost of such a page (a bare range of the sorted set and 20 posts by key), the page that
// package feed composes, and the same as GraphQL. Then it measures the page over HTTP with enough concurrent
// requests to keep the processors busy. bench/peers compares it with other software.
func BenchmarkPage(b *testing.B) {
	ctx := b.Context()
	s := storagetest.Real(b)
	s.DB = ent.NewClient(ent.Driver(entsql.OpenDB(s.Dialect, s.SQL))) // without the driver that counts statements in tests
	w := feedtest.New(b, s, feedtest.Options{})
	engine, err := graph.New(graph.Backend{Sessions: w.Sessions, Accounts: w.Accounts, Login: w.Login, Directory: w.Directory, Feed: w.Feed, Conversations: w.Conversations, Home: w.Home, Streams: w.Streams}, graph.Config{})
	require.NoError(b, err)
	user := func(handle string) session.Viewer {
		id, err := w.IDs.Next()
		require.NoError(b, err)
		require.NoError(b, s.DB.User.Create().SetID(id).SetHandle(handle).SetPasswordHash("-").Exec(ctx))
		return session.Viewer{ID: id}
	}
	reader := user("reader")
	for i := range 30 {
		author := user(fmt.Sprintf("author%d", i))
		_, err := w.Feed.Follow(ctx, reader, author.ID)
		require.NoError(b, err)
		for n := range 20 { // all authors together have one post a minute
			id := ids.At(time.Now().Add(-time.Duration(1+30*(19-n)+i) * time.Minute))
			require.NoError(b, s.DB.Post.Create().SetID(id).SetAuthorID(author.ID).
				SetText("Twenty of these make a page, and thirty authors an inbox.").SetVisibility(schema.Public).Exec(ctx))
			require.NoError(b, s.DB.User.UpdateOneID(author.ID).SetLastPostID(id).Exec(ctx))
		}
	}
	_, err = s.SQL.ExecContext(ctx, "VACUUM ANALYZE")
	require.NoError(b, err)
	go func() { _ = w.Home.Run(ctx) }()
	require.Eventually(b, func() bool {
		_, err := w.Home.Timeline(ctx, reader, paging.Page{}, home.Latest)
		require.NoError(b, err)
		in, err := w.Audit.Inspect(ctx, reader.ID)
		require.NoError(b, err)
		return in.State == timeline.Ready
	}, 10*time.Second, 10*time.Millisecond)

	b.Run("floor", func(b *testing.B) {
		for range b.N {
			members, err := s.Redis.ZRangeByScore(ctx, timeline.Inbox(reader.ID).String()+":z",
				&redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: 20}).Result()
			require.NoError(b, err)
			keys := make([]int64, len(members))
			for i, m := range members {
				_, err := fmt.Sscan(m, &keys[i])
				require.NoError(b, err)
			}
			posts, err := s.DB.Post.Query().Where(post.IDIn(keys...)).All(ctx)
			require.NoError(b, err)
			require.Len(b, posts, 20)
		}
	})
	b.Run("feed", func(b *testing.B) {
		for range b.N {
			page, err := w.Home.Timeline(ctx, reader, paging.Page{}, home.Latest)
			require.NoError(b, err)
			require.Len(b, page.Edges, 20)
		}
	})
	viewed := graph.WithViewer(ctx, reader)
	request := exec.Request{Query: pageQuery}
	b.Run("graphql", func(b *testing.B) {
		for range b.N {
			op, errs := engine.Prepare(viewed, request)
			require.Empty(b, errs)
			response := engine.Execute(viewed, op)
			require.Empty(b, response.Errors)
			_, err := response.AppendJSON(nil)
			require.NoError(b, err)
		}
	})
	b.Run("http", func(b *testing.B) {
		h, err := transport.New(ctx, transport.Config{
			Engine: engine, Limits: new(limit.Limits), Watch: w.Sessions.Watch,
			Authenticate:   func(context.Context, string) (session.Viewer, time.Time, error) { return reader, time.Time{}, nil },
			RequestTimeout: time.Minute, MaxBody: 1 << 20, MaxSockets: 1,
		})
		require.NoError(b, err)
		requests(b, h)
	})
}

const pageQuery = `{ timeline { pageInfo { hasNextPage endCursor }
	edges { cursor node { id text visibility createdAt likeCount viewerHasLiked author { id handle name } } } } }`

// requests requests the page from a handler over loopback repeatedly.
func requests(b *testing.B, h http.Handler) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	body, err := json.Marshal(map[string]string{"query": pageQuery})
	require.NoError(b, err)
	b.SetParallelism(8) // otherwise a processor is idle while all requests wait for the stores
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL, bytes.NewReader(body))
			require.NoError(b, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer any")
			response, err := srv.Client().Do(r)
			require.NoError(b, err)
			answer, err := io.ReadAll(response.Body)
			require.NoError(b, err)
			response.Body.Close()
			require.Equal(b, 20, bytes.Count(answer, []byte(`"viewerHasLiked"`)), string(answer))
		}
	})
}
