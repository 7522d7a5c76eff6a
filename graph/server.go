package graph

import (
	"context"

	"github.com/vektah/gqlparser/v2/ast"

	"tideline/feed/apikey"
	"tideline/feed/bulk"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/graph/model"
)

var (
	manage, importing, moderating = []apikey.Scope{apikey.Manage}, []apikey.Scope{apikey.Import}, []apikey.Scope{apikey.Moderate}
	reading, writing              = []apikey.Scope{apikey.Read}, []apikey.Scope{apikey.Write}
)

// keyScopes lists the scopes that an API key needs for a root field; it needs all of them. For a field
// that is not listed, it needs Write in a mutation, and Read otherwise.
var keyScopes = map[string][]apikey.Scope{
	"apiKeys": manage, "createApiKey": manage, "revokeApiKey": manage,
	"upsertUsers": importing, "upsertFollows": importing, "upsertBlocks": importing,
	"upsertPosts": importing, "upsertLikes": importing, "deleteUsers": importing,
	"reports": moderating, "report": moderating, "suspensions": moderating, "suspension": moderating, "claimReport": moderating, "decideReport": moderating,
	"suspendUser": moderating, "unsuspendUser": moderating, "hidePost": moderating, "unhidePost": moderating,
	"setRole": moderating, "auditLog": moderating,
	"exportAccount": {apikey.Write, apikey.Read},
}

// permit checks each root field of the operation. It returns an error if the viewer's API key lacks a scope
// for the field, or if the viewer has no key and only API keys may use the field. Error: Forbidden.
func permit(ctx context.Context, op *exec.Operation) error {
	v, _ := ctx.Value(viewerKey{}).(session.Viewer)
	usual := reading
	if op.Kind() == ast.Mutation {
		usual = writing
	}
	if v.Key == nil && op.Compiled() { // a page of the timeline, which needs no key
		return nil
	}
	for _, field := range op.RootFields() {
		scopes, unusual := keyScopes[field]
		if !unusual {
			scopes = usual
		}
		for _, scope := range scopes {
			forKeys := scope == apikey.Manage || scope == apikey.Import // only API keys have these scopes
			if v.Key == nil && forKeys || v.Key != nil && !v.Key.Has(scope) {
				return refusal.New(refusal.ScopeMissing, "%s takes an API key with the scope %s.", field, scope)
			}
		}
	}
	return nil
}

func (r query) APIKeys(ctx context.Context, first *int, after *string) (*paging.Connection[apikey.Key], error) {
	return r.Keys.List(ctx, paging.Page{First: first, After: after})
}

func (r mutation) CreateAPIKey(ctx context.Context, in model.CreateAPIKeyInput) (*model.CreateAPIKeyPayload, error) {
	by := Viewer(ctx).Key // not nil: permit has checked it
	if in.Issuer == nil {
		in.Issuer = &by.Issuer
	}
	key, text, err := r.Keys.Create(ctx, by, in.Name, *in.Issuer, in.Scopes)
	return &model.CreateAPIKeyPayload{Key: text, APIKey: key}, err
}

func (r mutation) RevokeAPIKey(ctx context.Context, in model.RevokeAPIKeyInput) (*model.RevokeAPIKeyPayload, error) {
	id, err := apikey.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	key, err := r.Keys.Revoke(ctx, Viewer(ctx).Key, id)
	return &model.RevokeAPIKeyPayload{APIKey: key}, err
}

// issuer returns the issuer of the viewer's API key. permit has checked that there is a key.
func issuer(ctx context.Context) string { return Viewer(ctx).Key.Issuer }

func (r mutation) UpsertUsers(ctx context.Context, list []*bulk.User) ([]*bulk.Result, error) {
	return r.Bulk.Users(ctx, issuer(ctx), values(list))
}

func (r mutation) UpsertFollows(ctx context.Context, list []*bulk.Follow) ([]*bulk.Result, error) {
	return r.Bulk.Follows(ctx, issuer(ctx), values(list))
}

func (r mutation) UpsertBlocks(ctx context.Context, list []*bulk.Block) ([]*bulk.Result, error) {
	return r.Bulk.Blocks(ctx, issuer(ctx), values(list))
}

func (r mutation) UpsertPosts(ctx context.Context, list []*bulk.Post) ([]*bulk.Result, error) {
	return r.Bulk.Posts(ctx, issuer(ctx), values(list))
}

func (r mutation) UpsertLikes(ctx context.Context, list []*bulk.Like) ([]*bulk.Result, error) {
	return r.Bulk.Likes(ctx, issuer(ctx), values(list))
}

// maxDeletes is how many users one call may delete.
const maxDeletes = 100

func (r mutation) DeleteUsers(ctx context.Context, externalIDs []string) ([]*bulk.Result, error) {
	if len(externalIDs) > maxDeletes {
		return nil, refusal.New(refusal.TooMany, "At most %d users at a time, not %d.", maxDeletes, len(externalIDs)).In("externalIds").Beyond("deletions", maxDeletes, len(externalIDs))
	}
	results := make([]*bulk.Result, len(externalIDs))
	for i, externalID := range externalIDs {
		deleted, err := r.Accounts.DeleteExternal(ctx, issuer(ctx), externalID)
		if err != nil {
			return nil, err
		}
		if results[i] = (&bulk.Result{Status: bulk.Unchanged}); deleted {
			results[i].Status = bulk.Deleted
		}
	}
	return results, nil
}

func values[T any](list []*T) []T {
	flat := make([]T, len(list))
	for i, p := range list {
		flat[i] = *p
	}
	return flat
}
