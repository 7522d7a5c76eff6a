// Package graph is the public API. It hides GraphQL from the rooms of feed, which
// hold the rules: resolvers are thin, refusals become errors with an
// extensions.code.
//
// gqlgen executes it: gqlgen writes graph/generated, graph/model binds the schema's
// types to those of ent and feed, graph/exec admits operations. A field that
// depends on many objects that were read together is read for all of them at once
// (batch.go), so a page costs a constant number of queries, whatever its length.
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

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/bulk"
	"tideline/feed/counts"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/stream"
	"tideline/feed/visibility"
	"tideline/graph/exec"
	"tideline/graph/generated"
)

// Schema is the public API in the schema definition language.
//
//go:embed schema.graphqls
var Schema string

// Config says how open the API is.
type Config struct {
	// Introspection allows clients to read the schema.
	Introspection bool
	// Suggestions adds "Did you mean" to errors, which discloses names of the
	// schema.
	Suggestions bool
	// Limits bound one request.
	Limits exec.Limits
	// Logger logs internal errors, which clients see without their cause.
	Logger *slog.Logger
}

// Backend has what the resolvers call. Fields without a default are required.
type Backend struct {
	Accounts   *account.Accounts
	Bulk       *bulk.Bulk
	Counts     *counts.Counts
	Directory  *account.Directory
	Feed       *feed.Feed
	Home       *home.Home
	Keys       *apikey.Keys
	Moderation *moderation.Moderation
	Streams    *stream.Streams
	// Avatars are the hosts whose pictures are shown. Defaults to none.
	Avatars account.AvatarHosts
	// MaxText is how many characters a post may have, as feed.Config says it. Defaults to
	// feed.DefaultMaxText.
	MaxText int
}

// New returns the engine that executes the API on the backend.
func New(b Backend, cfg Config) (*exec.Engine, error) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "schema.graphqls", Input: Schema})
	if err != nil {
		return nil, fmt.Errorf("load schema: %w", err)
	}
	return exec.New(exec.Config{
		Schema:  generated.NewExecutableSchema(generated.Config{Schema: exec.WithoutDefer(schema), Resolvers: api{b}}),
		Begin:   withBatches,
		Permit:  permit,
		Compile: api{b}.compilePage,
		Limits:  cfg.Limits,
		Prices:  api{b}.prices(),
		SharedPrices: map[string]int{
			"TimelineConnection.unreadCount": unreadPrice, "TimelinePostAdded.unreadCount": unreadPrice,
			"TimelineHeartbeat.unreadCount": unreadPrice, "User.unreadCount": unreadPrice,
		},
		PagePrice:      pagePrice,
		Introspection:  cfg.Introspection,
		Suggestions:    cfg.Suggestions,
		ErrorPresenter: presenter(cfg.Logger),
		Recover: func(_ context.Context, panicked any) error {
			return fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		},
	})
}

// The prices of what is read beyond what is returned. A unit is a field that is returned: a page of 20 posts with
// their authors has some 200 of them, for three queries and 40 rows, and takes less than a millisecond of a processor.
const (
	// keyPrice is the price of a field that looks an object up: a query of its own.
	keyPrice = 10
	// pagePrice is the price of a connection: two queries.
	pagePrice = 50
	// unreadPrice is the price of an unread count: it reads all posts that are unread, of which an inbox may be full.
	unreadPrice = 100
	// searchPrice is the price of a search for users: it looks at far more users than it finds.
	searchPrice = 500
	// suggestPrice is the price of suggestions: they read up to 5,000 follows, and rank whom these find.
	suggestPrice = 1000
)

// prices are those of the fields whose cost does not follow from what they return. A ranked post
// costs 1. A row that is looked at costs 2, because its post is read, too: 500 took 12 ms of processor on SQLite, and
// 1,000 ranked posts took 8.
func (a api) prices() map[string]func(map[string]any) int {
	flat := func(price int) func(map[string]any) int { return func(map[string]any) int { return price } }
	return map[string]func(map[string]any) int{
		"Query.timeline": func(arguments map[string]any) int {
			if arguments["order"] == string(home.Ranked) {
				return pagePrice + a.Home.MostRanked()
			}
			return pagePrice
		},
		"Query.users": func(arguments map[string]any) int {
			if query, _ := arguments["query"].(string); query != "" {
				return pagePrice + searchPrice
			}
			return pagePrice
		},
		"Query.suggestedUsers": flat(suggestPrice),
		"Query.taggedPosts":    flat(pagePrice + 2*visibility.MostLooked),
		"User.likedPosts":      flat(pagePrice + 2*visibility.MostLooked),

		"Query.viewer": flat(keyPrice), "Query.user": flat(keyPrice), "Query.userByExternalId": flat(keyPrice),
		"Query.post": flat(keyPrice), "Query.node": flat(keyPrice), "Query.nodes": flat(keyPrice), "User.mutedWords": flat(keyPrice),

		"Mutation.markTimelineRead": flat(unreadPrice), // it counts, whether or not the count is asked for
	}
}

// api has the dependencies of resolvers.
type api struct{ Backend }

// The resolvers of each type.
type (
	query    struct{ api }
	mutation struct {
		api
		moderationMutation
	}
	moderationMutation  struct{ api }
	report              struct{ api }
	createPostPayload   struct{ api }
	relationshipPayload struct{ api }
	user                struct{ api }
	post                struct{ api }
	timelineConnection  struct{ api }
	subscription        struct{ api }
	postAdded           struct{ api }
	postRemoved         struct{}
	heartbeat           struct{ api }
	readPayload         struct{ api }
)

func (a api) Query() generated.QueryResolver                         { return query{a} }
func (a api) Mutation() generated.MutationResolver                   { return mutation{a, moderationMutation{a}} }
func (a api) CreatePostPayload() generated.CreatePostPayloadResolver { return createPostPayload{a} }
func (a api) RelationshipPayload() generated.RelationshipPayloadResolver {
	return relationshipPayload{a}
}
func (a api) MarkTimelineReadPayload() generated.MarkTimelineReadPayloadResolver {
	return readPayload{a}
}
func (a api) Report() generated.ReportResolver                           { return report{a} }
func (a api) User() generated.UserResolver                               { return user{a} }
func (a api) Post() generated.PostResolver                               { return post{a} }
func (a api) TimelineConnection() generated.TimelineConnectionResolver   { return timelineConnection{a} }
func (a api) Subscription() generated.SubscriptionResolver               { return subscription{a} }
func (a api) TimelinePostAdded() generated.TimelinePostAddedResolver     { return postAdded{a} }
func (a api) TimelinePostRemoved() generated.TimelinePostRemovedResolver { return postRemoved{} }
func (a api) TimelineHeartbeat() generated.TimelineHeartbeatResolver     { return heartbeat{a} }

// presenter returns refusals in their own words, a lack of ids as refusal.Unavailable, an
// exceeded deadline as CodeTimeout, and any other error as INTERNAL.
func presenter(log *slog.Logger) func(context.Context, error) *gqlerror.Error {
	return func(ctx context.Context, err error) *gqlerror.Error {
		var refused *refusal.Error
		if errors.As(err, &refused) {
			extensions := refused.Extensions()
			if of := new(gqlerror.Error); refused.Field == "" && errors.As(err, &of) && len(of.Path) > 0 { // a value of the input
				if field, ok := of.Path[len(of.Path)-1].(ast.PathName); ok {
					extensions["field"] = string(field)
				}
			}
			return &gqlerror.Error{Message: refused.Message, Extensions: extensions}
		}
		if errors.Is(err, ids.ErrNoLease) { // it is in the log, and in /readyz
			refused = refusal.New(refusal.NoIDs, "The server can make no ids at the moment. Nothing was done: try again.")
			extensions := refused.Extensions()
			extensions["retryAfter"] = retryNoIDs
			return &gqlerror.Error{Message: refused.Message, Extensions: extensions}
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

// CodeTimeout is the code of a request that was given up because its deadline had
// passed. It does not say whether a mutation was done.
const CodeTimeout = "TIMEOUT"

// retryNoIDs is after how many seconds a client should try again when there was no number
// for ids: another server may take the call, and this one takes a number soon.
const retryNoIDs = 5

type viewerKey struct{}

// WithViewer returns a context whose requests the viewer v makes.
func WithViewer(ctx context.Context, v account.Viewer) context.Context {
	return context.WithValue(ctx, viewerKey{}, v)
}

// Viewer returns the viewer of the requests of ctx; anonymous without WithViewer.
func Viewer(ctx context.Context) account.Viewer {
	exec.Own(ctx)
	v, _ := ctx.Value(viewerKey{}).(account.Viewer)
	return v
}
