package graph_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/live"
	"tideline/queue"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// BenchmarkPage measures a page of 20 posts out of a full inbox, on PostgreSQL
// and redis-server: what any such page costs at least (a bare range of the
// sorted set, and 20 posts by key), the page that package feed composes, and
// the same as GraphQL.
func BenchmarkPage(b *testing.B) {
	ctx := b.Context()
	s := storagetest.Real(b)
	ids, err := feed.OpenIDs(ctx, s.DB)
	require.NoError(b, err)
	tl, err := timeline.New(s.Redis, timeline.Config{})
	require.NoError(b, err)
	q, err := queue.New(s.DB, s.Redis, queue.Config{})
	require.NoError(b, err)
	f, err := feed.New(ctx, feed.Config{
		DB: s.DB, Dialect: s.Dialect, Timelines: tl, Queue: q, Publisher: live.NewPublisher(s.Redis, false), IDs: ids,
	})
	require.NoError(b, err)
	engine, err := graph.New(f, graph.Config{})
	require.NoError(b, err)
	user := func(handle string) feed.Viewer {
		id, err := ids.Next()
		require.NoError(b, err)
		require.NoError(b, s.DB.User.Create().SetID(id).SetHandle(handle).SetPasswordHash("-").Exec(ctx))
		return feed.Viewer{ID: id}
	}
	reader := user("reader")
	for i := range 30 {
		author := user(fmt.Sprintf("author%d", i))
		_, err := f.Follow(ctx, reader, author.ID)
		require.NoError(b, err)
		for range 20 {
			id, err := ids.Next()
			require.NoError(b, err)
			require.NoError(b, s.DB.Post.Create().SetID(id).SetAuthorID(author.ID).
				SetText("Twenty of these make a page, and thirty authors an inbox.").SetVisibility(schema.Public).Exec(ctx))
		}
	}
	go func() { _ = f.Run(ctx) }()
	require.Eventually(b, func() bool {
		_, err := f.Timeline(ctx, reader, feed.Page{}, feed.Latest)
		require.NoError(b, err)
		in, err := f.Inspect(ctx, reader.ID)
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
			page, err := f.Timeline(ctx, reader, feed.Page{}, feed.Latest)
			require.NoError(b, err)
			require.Len(b, page.Edges, 20)
		}
	})
	b.Run("graphql", func(b *testing.B) {
		ctx := graph.WithViewer(ctx, reader)
		request := exec.Request{Query: `{ timeline { pageInfo { hasNextPage endCursor }
			edges { cursor node { id text visibility createdAt likeCount viewerHasLiked author { id handle name } } } } }`}
		for range b.N {
			execute(b, ctx, engine, request)
		}
	})
}

func execute(b *testing.B, ctx context.Context, engine *exec.Engine, request exec.Request) {
	op, errs := engine.Prepare(ctx, request)
	require.Empty(b, errs)
	response := engine.Execute(ctx, op)
	require.Empty(b, response.Errors)
	_, err := response.AppendJSON(nil)
	require.NoError(b, err)
}
