package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

const benchSchema = `
scalar Time
enum Visibility { PUBLIC FOLLOWERS }
type User { id: ID! handle: String! name: String! bio: String! }
type Post { id: ID! author: User! text: String! visibility: Visibility! createdAt: Time! likeCount: Int! viewerHasLiked: Boolean! }
type Edge { cursor: String! score: Float! node: Post! }
type PageInfo { hasNextPage: Boolean! endCursor: String }
type Connection { edges: [Edge!]! pageInfo: PageInfo! unreadCount: Int! }
type Query { timeline(first: Int, after: String): Connection! }
`

const benchQuery = `query Timeline($first: Int!, $after: String) {
  timeline(first: $first, after: $after) {
    edges { cursor score node { ...Post } }
    pageInfo { hasNextPage endCursor }
    unreadCount
  }
}
fragment Post on Post { id text visibility createdAt likeCount viewerHasLiked author { id handle name bio } }`

// The structs carry the tags of the same response, for the floor that encoding/json sets.
type (
	benchUser struct {
		ID     string `json:"id"`
		Handle string `json:"handle"`
		Name   string `json:"name"`
		Bio    string `json:"bio"`
	}
	benchPost struct {
		ID         string     `json:"id"`
		Text       string     `json:"text"`
		Visibility visibility `json:"visibility"`
		CreatedAt  time.Time  `json:"createdAt"`
		LikeCount  int        `json:"likeCount"`
		Liked      bool       `json:"viewerHasLiked"`
		Author     *benchUser `json:"author"`
	}
	benchEdge struct {
		Cursor string     `json:"cursor"`
		Score  float64    `json:"score"`
		Node   *benchPost `json:"node"`
	}
	benchPage struct {
		Edges []*benchEdge `json:"edges"`
		Info  struct {
			Next bool   `json:"hasNextPage"`
			End  string `json:"endCursor"`
		} `json:"pageInfo"`
		Unread int `json:"unreadCount"`
	}
)

func benchData() *benchPage {
	page := &benchPage{Unread: 7}
	page.Info.Next, page.Info.End = true, "v1:1234567890"
	var users []*benchUser
	for i := range 7 {
		users = append(users, &benchUser{fmt.Sprint("User:", 900000+i), fmt.Sprint("handle_", i), "Some Body",
			"Writes about trains, bread and the sea. Mostly bread."})
	}
	for i := range 20 {
		page.Edges = append(page.Edges, &benchEdge{fmt.Sprint("v1:", 7_000_000_000_000+i), float64(7_000_000_000_000 + i), &benchPost{
			ID: fmt.Sprint("Post:", 7_000_000_000_000+i), Visibility: "PUBLIC", LikeCount: i * 3, Liked: i%2 == 0, Author: users[i%7],
			CreatedAt: time.UnixMilli(1_700_000_000_000 + int64(i)*61_234).UTC(),
			Text:      "A post of ordinary length, with \"quotes\" and an é or two: it says little, but says it in full.\nSecond line.",
		}})
	}
	return page
}

func benchEngine(b *testing.B, page *benchPage) *Engine {
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: benchSchema})
	require.NoError(b, err)
	e, err := New(Config{Schema: schema, Fields: map[string]map[string]Field{
		"Query": {"timeline": One(func(context.Context, Root, Args) (*benchPage, error) { return page, nil })},
		"Connection": {
			"edges":       Value(func(p *benchPage) []*benchEdge { return p.Edges }),
			"pageInfo":    Value(func(p *benchPage) *benchPage { return p }),
			"unreadCount": Value(func(p *benchPage) int { return p.Unread }),
		},
		"PageInfo": {
			"hasNextPage": Value(func(p *benchPage) bool { return p.Info.Next }),
			"endCursor":   Value(func(p *benchPage) *string { return &p.Info.End }),
		},
		"Edge": {
			"cursor": Value(func(e *benchEdge) string { return e.Cursor }),
			"score":  Value(func(e *benchEdge) float64 { return e.Score }),
			"node":   Value(func(e *benchEdge) *benchPost { return e.Node }),
		},
		"Post": {
			"id":             Value(func(p *benchPost) string { return p.ID }),
			"text":           Value(func(p *benchPost) string { return p.Text }),
			"visibility":     Value(func(p *benchPost) visibility { return p.Visibility }),
			"createdAt":      Value(func(p *benchPost) time.Time { return p.CreatedAt }),
			"likeCount":      Value(func(p *benchPost) int { return p.LikeCount }),
			"viewerHasLiked": Value(func(p *benchPost) bool { return p.Liked }),
			"author": Many(func(_ context.Context, ps []*benchPost, _ Args) ([]*benchUser, error) {
				users := make([]*benchUser, len(ps))
				for i, p := range ps {
					users[i] = p.Author
				}
				return users, nil
			}),
		},
		"User": {
			"id":     Value(func(u *benchUser) string { return u.ID }),
			"handle": Value(func(u *benchUser) string { return u.Handle }),
			"name":   Value(func(u *benchUser) string { return u.Name }),
			"bio":    Value(func(u *benchUser) string { return u.Bio }),
		},
	}})
	require.NoError(b, err)
	return e
}

// BenchmarkPage is a page of 20 posts with authors from memory, beside encoding/json on equal structs.
func BenchmarkPage(b *testing.B) {
	page := benchData()
	e := benchEngine(b, page)
	r := Request{Query: benchQuery, Variables: map[string]any{"first": 20.0, "after": "v1:1"}}
	op, errs := e.Prepare(b.Context(), r)
	require.Nil(b, errs)
	got := e.Execute(b.Context(), op)
	require.Empty(b, got.Errors)
	want, err := json.Marshal(map[string]any{"timeline": page})
	require.NoError(b, err)
	var g, w any
	require.NoError(b, json.Unmarshal(got.Data, &g))
	require.NoError(b, json.Unmarshal(want, &w))
	require.Equal(b, len(w.(map[string]any)["timeline"].(map[string]any)["edges"].([]any)), 20)

	b.Run("request", func(b *testing.B) { // what a server does: prepare a known text, execute, frame
		b.ReportAllocs()
		for b.Loop() {
			op, _ := e.Prepare(b.Context(), r)
			if _, err := e.Execute(b.Context(), op).AppendJSON(nil); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(len(got.Data)))
	})
	b.Run("prepare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = e.Prepare(b.Context(), r)
		}
	})
	b.Run("prepare-unknown-text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.cache = newDocumentCache(1 << 20)
			_, _ = e.Prepare(b.Context(), r)
		}
	})
	b.Run("execute", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Execute(b.Context(), op)
		}
	})
	b.Run("floor-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(page); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(len(want)))
	})
}
