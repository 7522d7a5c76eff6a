// Package graph implements the public GraphQL API on the packages of feed, which hold the rules. Resolvers
// are thin. Refusals become errors with an extensions.code.
//
// gqlgen generates graph/generated from the schema. graph/model binds the schema's types to the types of ent
// and feed. graph/exec admits and executes operations. A field that needs a look-up is read for all objects
// that were read together (batch.go), so a page costs a constant number of queries, whatever its length.
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
	"tideline/feed/conversation"
	"tideline/feed/counts"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/feed/userstate"
	"tideline/feed/visibility"
	"tideline/graph/exec"
	"tideline/graph/generated"
)

// Schema is the public API in the schema definition language.
//
//go:embed schema.graphqls
var Schema string

// Config configures the engine of the API.
type Config struct {
	// Introspection allows clients to read the schema.
	Introspection bool
	// Suggestions adds "Did you mean" to errors, which discloses names of the schema.
	Suggestions bool
	// Limits bound one request.
	Limits exec.Limits
	// Logger logs internal errors. Clients do not see their cause.
	Logger *slog.Logger
}

// Backend has the parts that the resolvers call. Fields without a default are required.
type Backend struct {
	Sessions  *session.Store
	Accounts  *account.Accounts
	Login     *login.Login
	Bulk      *bulk.Bulk
	Counts    *counts.Counts
	Users     *userstate.Users
	Directory *account.Directory
	Feed      *feed.Feed
	// Conversations reads replies, reposts, quotes and mentions.
	Conversations *conversation.Conversations
	Home          *home.Home
	Keys          *apikey.Keys
	Moderation    *moderation.Moderation
	Streams       *stream.Streams
	// Avatars are the hosts of allowed avatar pictures. Defaults to none.
	Avatars account.AvatarHosts
	// MaxText is the maximum length of a post in characters, as in feed.Config. Defaults to
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
		Begin:   withGroups,
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

// Prices of fields that read more than they return. The unit is one returned field. A page of 20
// posts with their authors has about 200 fields, for three queries and 40 rows, and takes less
// than a millisecond of processor time.
const (
	// keyPrice is the price of a field that looks up an object with its own query.
	keyPrice = 10
	// pagePrice is the price of a connection, which needs two queries.
	pagePrice = 50
	// unreadPrice is the price of an unread count, which reads all unread posts: up to a full inbox.
	unreadPrice = 100
	// searchPrice is the price of a search for users, which examines far more users than it finds.
	searchPrice = 500
	// suggestPrice is the price of suggestions, which read up to 5,000 follows and rank the users found.
	suggestPrice = 1000
)

// prices returns the prices of fields whose cost does not follow from what they return. A ranked post costs
// 1. An examined row costs 2, because its post is read too: 500 rows took 12 ms of processor time on
// SQLite, and 1,000 ranked posts took 8.
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
		"Query.suggestedUsers":    flat(suggestPrice),
		"Query.taggedPosts":       flat(pagePrice + 2*visibility.MostLooked),
		"Query.publicPosts":       flat(pagePrice + 2*visibility.MostLooked),
		"User.likedPosts":         flat(pagePrice + 2*visibility.MostLooked),
		"User.mutedConversations": flat(pagePrice + 2*visibility.MostLooked),
		"Post.replies":            flat(pagePrice + 2*visibility.MostLooked),
		"Post.conversation":       flat(pagePrice + 2*visibility.MostLooked),
		"Post.reposts":            flat(pagePrice + 2*visibility.MostLooked),
		"Post.quotes":             flat(pagePrice + 2*visibility.MostLooked),
		"Post.ancestors":          flat(keyPrice + 2*conversation.MostAncestors),
		"Report.ancestors":        flat(keyPrice + 2*feed.MostReportedAncestors),
		"Report.replies":          flat(keyPrice + feed.MostReportedReplies),

		"Query.viewer": flat(keyPrice), "Query.user": flat(keyPrice), "Query.userByExternalId": flat(keyPrice),
		"Query.post": flat(keyPrice), "Query.report": flat(keyPrice), "Query.suspension": flat(keyPrice), "Query.node": flat(keyPrice), "Query.nodes": flat(keyPrice), "User.mutedWords": flat(keyPrice),

		"Mutation.markTimelineRead": flat(unreadPrice), // it counts, whether or not the client selects the count
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
	auditEntry          struct{ api }
	report              struct{ api }
	reportedPost        struct{ api }
	createPostPayload   struct{ api }
	relationshipPayload struct{ api }
	user                struct{ api }
	post                struct{ api }
	timelineConnection  struct{ api }
	timelineEdge        struct{ api }
	subscription        struct{ api }
	postAdded           struct{ api }
	postRemoved         struct{}
	repliesPage         struct{}
	replyRemoved        struct{}
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
func (a api) AuditEntry() generated.AuditEntryResolver                   { return auditEntry{a} }
func (a api) Report() generated.ReportResolver                           { return report{a} }
func (a api) ReportedPost() generated.ReportedPostResolver               { return reportedPost{a} }
func (a api) User() generated.UserResolver                               { return user{a} }
func (a api) Post() generated.PostResolver                               { return post{a} }
func (a api) TimelineConnection() generated.TimelineConnectionResolver   { return timelineConnection{a} }
func (a api) TimelineEdge() generated.TimelineEdgeResolver               { return timelineEdge{a} }
func (a api) Subscription() generated.SubscriptionResolver               { return subscription{a} }
func (a api) TimelinePostAdded() generated.TimelinePostAddedResolver     { return postAdded{a} }
func (a api) TimelinePostRemoved() generated.TimelinePostRemovedResolver { return postRemoved{} }
func (a api) PostConnection() generated.PostConnectionResolver           { return repliesPage{} }
func (a api) ConversationPostRemoved() generated.ConversationPostRemovedResolver {
	return replyRemoved{}
}
func (a api) TimelineHeartbeat() generated.TimelineHeartbeatResolver { return heartbeat{a} }

// presenter returns a function that converts errors for clients: refusals keep their message, a lack of ids
// becomes refusal.Unavailable, an exceeded deadline CodeTimeout, and any other error INTERNAL.
func presenter(log *slog.Logger) func(context.Context, error) *gqlerror.Error {
	return func(ctx context.Context, err error) *gqlerror.Error {
		var refused *refusal.Error
		if errors.As(err, &refused) {
			extensions := refused.Extensions()
			if of := new(gqlerror.Error); refused.Field == "" && errors.As(err, &of) && len(of.Path) > 0 { // the error of an input value
				if field, ok := of.Path[len(of.Path)-1].(ast.PathName); ok {
					extensions["field"] = string(field)
				}
			}
			return &gqlerror.Error{Message: refused.Message, Extensions: extensions}
		}
		if errors.Is(err, ids.ErrNoLease) { // already in the log and in /readyz
			refused = refusal.New(refusal.NoIDs, "The server can make no ids at the moment. Nothing was done: try again.").Retry(retryNoIDs)
			return &gqlerror.Error{Message: refused.Message, Extensions: refused.Extensions()}
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

// CodeTimeout is the code of a request that exceeded its deadline. A mutation may or may not have been done.
const CodeTimeout = "TIMEOUT"

// retryNoIDs is the delay in seconds before a client should retry if this server cannot make ids. Another
// server may take the call, and this one should recover soon.
const retryNoIDs = 5

type viewerKey struct{}

// WithViewer returns a copy of ctx in which v is the viewer.
func WithViewer(ctx context.Context, v session.Viewer) context.Context {
	return context.WithValue(ctx, viewerKey{}, v)
}

// Viewer returns the viewer of ctx: the anonymous viewer if WithViewer was not called.
func Viewer(ctx context.Context) session.Viewer {
	exec.Own(ctx)
	v, _ := ctx.Value(viewerKey{}).(session.Viewer)
	return v
}
