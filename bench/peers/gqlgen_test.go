package peers

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/jackc/pgx/v5"
	"github.com/vektah/gqlparser/v2/ast"

	"tideline/ent"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/stream"
	"tideline/graph/generated"
	"tideline/graph/model"
)

// serveGqlgen runs gqlgen's own server with Tideline's schema and 20 posts in memory.
func serveGqlgen(ctx context.Context, database string) error {
	page, err := staticPage(ctx, database)
	if err != nil {
		return err
	}
	m := &memory{page: page, streams: map[chan stream.Event]struct{}{}}
	srv := handler.New(generated.NewExecutableSchema(generated.Config{Resolvers: m}))
	srv.AddTransport(transport.Websocket{})
	srv.AddTransport(transport.POST{})
	srv.SetQueryCache(lru.New[*ast.QueryDocument](100))
	return serveLive(ctx, srv.ServeHTTP, srv.ServeHTTP, m.subscriptions)
}

func staticPage(ctx context.Context, database string) (*paging.Connection[ent.Post], error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, strings.Replace(floorPosts, "WHERE p.id = ANY($1)", "", 1)+" LIMIT 20")
	if err != nil {
		return nil, err
	}
	page := &paging.Connection[ent.Post]{HasNextPage: true}
	var p ent.Post
	var u ent.User
	_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Text, &p.Visibility, &p.LikeCount, &u.ID, &u.Handle, &u.Name}, func() error {
		post, author := p, u
		post.AuthorID, post.Edges.Author = author.ID, &author
		page.Edges = append(page.Edges, edgeOf(&post))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, conn.Close(ctx)
}

func edgeOf(p *ent.Post) paging.Edge[ent.Post] {
	return paging.Edge[ent.Post]{Cursor: paging.Cursor{ID: p.ID}.Encode(paging.Latest, 0), Node: p}
}

// memory resolves only the fields that the benchmarks request, without any store.
type memory struct {
	generated.ResolverRoot
	page *paging.Connection[ent.Post]

	mu      sync.Mutex
	streams map[chan stream.Event]struct{}
}

func (m *memory) subscriptions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

func (m *memory) Query() generated.QueryResolver               { return memoryQuery{page: m.page} }
func (m *memory) Mutation() generated.MutationResolver         { return memoryMutation{memory: m} }
func (m *memory) Subscription() generated.SubscriptionResolver { return memorySubscription{memory: m} }
func (m *memory) Post() generated.PostResolver                 { return memoryPost{} }

type memoryQuery struct {
	generated.QueryResolver
	page *paging.Connection[ent.Post]
}

func (m memoryQuery) Timeline(
	context.Context, *int, *string, *int, *string, *home.Order, *string,
) (*paging.Connection[ent.Post], error) {
	return m.page, nil
}

type memoryMutation struct {
	generated.MutationResolver
	memory *memory
}

// CreatePost sends a post to all subscriptions without storing it.
func (m memoryMutation) CreatePost(_ context.Context, in model.CreatePostInput) (*model.CreatePostPayload, error) {
	post := &ent.Post{ID: ids.At(time.Now()), Text: in.Text, Edges: ent.PostEdges{Author: &ent.User{ID: 1, Handle: "user1", Name: "User 1"}}}
	added := &stream.PostAdded{PostEvent: stream.PostEvent{Edge: edgeOf(post)}}
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	for events := range m.memory.streams {
		events <- added // a stream has room for all posts of a benchmark
	}
	return &model.CreatePostPayload{Post: post}, nil
}

type memorySubscription struct {
	generated.SubscriptionResolver
	memory *memory
}

// TimelineEvents subscribes until ctx ends.
func (m memorySubscription) TimelineEvents(ctx context.Context, _ *string, _ *int, _ *bool) (<-chan stream.Event, error) {
	events := make(chan stream.Event, *livePosts)
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	m.memory.streams[events] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.memory.mu.Lock()
		defer m.memory.mu.Unlock()
		delete(m.memory.streams, events)
		close(events)
	})
	return events, nil
}

type memoryPost struct{ generated.PostResolver }

func (memoryPost) Author(_ context.Context, p *ent.Post) (*ent.User, error) {
	return p.Edges.Author, nil
}
func (memoryPost) ViewerHasLiked(context.Context, *ent.Post) (bool, error) { return false, nil }
func (memoryPost) CreatedAt(_ context.Context, p *ent.Post) (*time.Time, error) {
	at := ids.TimeOf(p.ID)
	return &at, nil
}
