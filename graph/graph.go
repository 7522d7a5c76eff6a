// Package graph is the public API: the schema, the table of thin resolvers
// behind it, and how refusals become errors with an extensions.code. It hides
// GraphQL from package feed, which holds the rules.
//
// Resolvers below a list are batched (exec.Many), so a page costs a constant
// number of queries however long it is. A test compares the tables with the
// schema: neither has a field the other lacks.
package graph

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

// Schema is the public API in the schema definition language.
//
//go:embed schema.graphqls
var Schema string

// Config says how open the API is.
type Config struct {
	// Introspection allows clients to read the schema.
	Introspection bool
	// Suggestions adds "Did you mean" to errors, which tells names of the schema.
	Suggestions bool
	// Limits bound one request.
	Limits exec.Limits
	// Logger is told of internal errors, which clients see without their cause.
	Logger *slog.Logger
}

// api is what resolvers work with.
type api struct{ feed *feed.Feed }

// New returns the engine that executes the API on f.
func New(f *feed.Feed, cfg Config) (*exec.Engine, error) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "schema.graphqls", Input: Schema})
	if err != nil {
		return nil, fmt.Errorf("load schema: %w", err)
	}
	a := api{f}
	return exec.New(exec.Config{
		Schema: schema,
		Fields: map[string]map[string]exec.Field{
			"Query": a.query(), "Mutation": a.mutation(), "Subscription": a.subscription(),
			"User": a.user(), "Post": a.post(), "PostDelivery": postDelivery(), "Relationship": relationship(), "PageInfo": pageInfo(),
			"PostConnection": connection[ent.Post](), "PostEdge": edge[ent.Post](),
			"UserConnection": connection[ent.User](), "UserEdge": edge[ent.User](),
			"TimelineConnection": a.timelineConnection(), "TimelineEdge": timelineEdge(),
			"AuthPayload": authPayload(), "UpdateProfilePayload": userPayload(),
			"CreatePostPayload": a.createPostPayload(), "SetPostVisibilityPayload": postPayload(),
			"DeletePostPayload": deletePostPayload(), "LikePostPayload": postPayload(),
			"RelationshipPayload": a.relationshipPayload(), "MarkTimelineReadPayload": markPayload(),
			"TimelinePostAdded": a.postAdded(), "TimelinePostRemoved": postRemoved(), "TimelineInvalidated": invalidated(),
			"TimelineHeartbeat": a.heartbeat(),
		},
		TypeOf:         typeOf,
		Limits:         cfg.Limits,
		Introspection:  cfg.Introspection,
		Suggestions:    cfg.Suggestions,
		ErrorPresenter: presenter(cfg.Logger),
		Recover: func(_ context.Context, panicked any) error {
			return fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		},
	})
}

func typeOf(value any) string {
	switch value.(type) {
	case *ent.User:
		return "User"
	case *ent.Post:
		return "Post"
	case *feed.PostAdded:
		return "TimelinePostAdded"
	case *feed.PostRemoved:
		return "TimelinePostRemoved"
	case *feed.Invalidated:
		return "TimelineInvalidated"
	case *feed.Heartbeat:
		return "TimelineHeartbeat"
	}
	return ""
}

// presenter shows refusals in their own words, what ran out of time as such, and
// everything else as INTERNAL.
func presenter(log *slog.Logger) func(context.Context, error) *gqlerror.Error {
	return func(ctx context.Context, err error) *gqlerror.Error {
		var refusal *feed.Error
		if errors.As(err, &refusal) {
			return &gqlerror.Error{Message: refusal.Message, Extensions: map[string]any{"code": string(refusal.Code)}}
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &gqlerror.Error{Message: "The request took too long and was given up.", Extensions: map[string]any{"code": CodeTimeout}}
		}
		if log != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "request failed", "error", err)
		}
		return &gqlerror.Error{Message: "Something went wrong on our side.", Extensions: map[string]any{"code": "INTERNAL"}}
	}
}

// CodeTimeout is the code of what was given up because the deadline of its
// request had passed. It says nothing about whether a mutation was done.
const CodeTimeout = "TIMEOUT"

type viewerKey struct{}

// WithViewer returns a context whose requests are made by v.
func WithViewer(ctx context.Context, v feed.Viewer) context.Context {
	return context.WithValue(ctx, viewerKey{}, v)
}

// Viewer is who makes the requests of ctx; anonymous unless WithViewer said so.
func Viewer(ctx context.Context) feed.Viewer {
	v, _ := ctx.Value(viewerKey{}).(feed.Viewer)
	return v
}
