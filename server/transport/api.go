package transport

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"

	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/server/limit"
)

const (
	// costInFlight bounds the cost of all operations that execute at once: some hundred
	// megabytes in the worst case.
	costInFlight = 500_000
	// beginAtOnce is how many subscriptions begin at once, well below the number of connections to Redis and
	// SQLite. Subscriptions arrive in large numbers, for example after a restart, and each queries Redis and
	// SQL several times. They wait in a queue of their own and delay nobody else.
	beginAtOnce = 4
)

// api implements the steps that all transports share once they have read a request.
type api struct {
	config    Config
	documents *documents
	bodies    *semaphore.Weighted // the bytes of all large bodies and messages
	inFlight  *semaphore.Weighted // the cost of the operations that execute
	beginning *semaphore.Weighted // the subscriptions that are beginning
	// answerWithin is how long an event stream waits for its turn to begin. Nothing of the answer is sent
	// before, and proxies give up a server that sends nothing.
	answerWithin time.Duration
}

// accountFields are the mutations that hash a password.
var accountFields = []string{"signUp", "logIn", "changePassword", "deleteAccount", "exportAccount"}

// errUnauthenticated refuses a malformed credential.
var errUnauthenticated = refusal.New(refusal.SessionEnded, "The session has ended. Log in again.")

// isUnauthenticated reports whether a credential is malformed, unknown, expired or revoked.
func isUnauthenticated(err error) bool { return refusal.CodeOf(err) == refusal.Unauthenticated }

// identify returns the viewer of a credential. The credential "" is the anonymous viewer. Errors: an error
// for which isUnauthenticated is true; a *limit.Refusal of an address that has shown too many wrong credentials; or
// the reason why the look-up failed.
func (a *api) identify(ctx context.Context, credential, address string) (v session.Viewer, expires time.Time, err error) {
	if credential == "" {
		return v, expires, nil
	}
	if v, expires, ok := a.config.Recall(credential); ok {
		return v, expires, nil
	}
	done, refused := a.config.Limits.Attempt(ctx, address)
	if refused != nil {
		return v, expires, refused
	}
	ctx, cancel := context.WithTimeout(ctx, a.config.RequestTimeout)
	defer cancel()
	defer func() { done(refusal.IsWrongCredential(err)) }()
	return a.config.Authenticate(ctx, credential)
}

// unidentified returns the errors to answer with when identify failed with err. what
// names the failed step in the log.
func (a *api) unidentified(ctx context.Context, what string, err error) gqlerror.List {
	if errs := told(err); len(errs) > 0 {
		return errs
	}
	return a.internal(ctx, what, err)
}

// clientOf returns the client that the limits charge for what a viewer does.
func clientOf(v session.Viewer, address string) limit.Client {
	if v.Key != nil {
		return limit.Client{Key: v.Key.ID, User: v.ID, Address: address}
	}
	return limit.Client{User: v.ID, Address: address, Since: v.Since()}
}

// prepare checks a request of the viewer until it is ready to execute. Its errors are request
// errors: nothing was executed.
func (a *api) prepare(ctx context.Context, v session.Viewer, address string, r exec.Request) (*exec.Operation, gqlerror.List) {
	r, register, errs := a.documents.resolve(r)
	operation, errs := a.admit(ctx, v, address, r, errs)
	if operation != nil {
		a.documents.register(register)
	}
	return operation, errs
}

// admit is prepare for a request whose document was found. errs are the errors of the search for it.
func (a *api) admit(ctx context.Context, v session.Viewer, address string, r exec.Request, errs gqlerror.List) (*exec.Operation, gqlerror.List) {
	limits, client := a.config.Limits, clientOf(v, address)
	var operation *exec.Operation
	if len(errs) == 0 {
		operation, errs = a.config.Engine.Prepare(ctx, r)
	}
	if len(errs) == 0 && operation.Kind() == ast.Subscription {
		errs = tooLarge(r)
	}
	if len(errs) > 0 {
		if refusal := limits.Allow(ctx, client, limit.Demand{Cost: limit.LeastCost}); refusal != nil {
			errs = refused(refusal)
		}
		a.config.ObserveRequest("invalid", codeOf(errs), 0)
		return nil, errs
	}
	refusal := limits.Allow(ctx, client, demandOf(operation))
	if refusal == nil {
		refusal = limits.AttributeTo(ctx, v.ID)
	}
	if refusal != nil {
		a.config.ObserveRequest(string(operation.Kind()), codeRateLimited, 0)
		return nil, refused(refusal)
	}
	return operation, nil
}

// demandOf counts each root field of a mutation, so that a document with many
// log-ins does not evade the rate.
func demandOf(o *exec.Operation) limit.Demand {
	d := limit.Demand{Cost: max(o.Cost(), limit.LeastCost)}
	if o.Kind() != ast.Mutation {
		return d
	}
	for _, name := range o.RootFields() {
		if slices.Contains(accountFields, name) {
			d.Accounts++
		} else {
			d.Mutations++
		}
	}
	return d
}

// timeout returns how long an operation may take.
func (a *api) timeout(operation *exec.Operation) time.Duration {
	long := func(field string) bool {
		return slices.Contains(accountFields, field) || strings.HasPrefix(field, "upsert") || field == "deleteUsers"
	}
	if operation.Kind() == ast.Mutation && slices.ContainsFunc(operation.RootFields(), long) {
		return a.config.LongestRequest()
	}
	return a.config.RequestTimeout
}

// execute runs a query or mutation as the viewer. The deadline counts from begun, when the request was read.
func (a *api) execute(ctx context.Context, begun time.Time, v session.Viewer, address string, operation *exec.Operation) exec.Response {
	start := time.Now()
	ctx, cancel := context.WithDeadline(graph.WithViewer(ctx, v), begun.Add(a.timeout(operation)))
	defer cancel()
	ctx, span := a.config.Tracer.Operation(ctx, begun, string(operation.Kind()), operation.Name(), operation.RootFields)
	defer span.End(nil)
	a.takeTurns(operation, clientOf(v, address))
	var response exec.Response
	executed := false
	a.config.Limits.InTurn(ctx, clientOf(v, address), operation.Cost(), func() {
		executed = limit.InTurn(ctx, a.inFlight, int64(operation.Cost()), func() { response = a.config.Engine.Execute(ctx, operation) })
	})
	if !executed {
		a.config.ObserveRequest(string(operation.Kind()), codeRateLimited, time.Since(start))
		span.Fail(codeRateLimited)
		return exec.Response{Errors: refused(limit.Busy)}
	}
	stamp(ctx, response.Errors)
	took, code := time.Since(start), codeOf(response.Errors)
	if len(response.Errors) > 0 {
		span.Fail(code)
	}
	a.config.ObserveRequest(string(operation.Kind()), code, took)
	a.config.Logger.DebugContext(ctx, "executed", "kind", operation.Kind(), "name", operation.Name(), "viewer", v.ID, "code", code, "took", took)
	return response
}

// takeTurns bounds what the client reads at a time, in all its operations.
func (a *api) takeTurns(operation *exec.Operation, c limit.Client) {
	operation.TakeTurns(func(ctx context.Context, price int, read func()) bool {
		return a.config.Limits.ReadInTurn(ctx, c, price, read)
	})
}

// subscribe begins a subscription of the viewer, which lasts until ctx ends. It waits for
// its turn until waiting ends.
func (a *api) subscribe(ctx, waiting context.Context, v session.Viewer, address string, operation *exec.Operation, wake func()) (*exec.Subscription, gqlerror.List) {
	if refusal := a.config.Limits.Subscribe(ctx, clientOf(v, address)); refusal != nil {
		a.config.ObserveRequest(string(ast.Subscription), codeRateLimited, 0)
		return nil, refused(refusal)
	}
	a.takeTurns(operation, clientOf(v, address))
	var subscription *exec.Subscription
	var errs gqlerror.List
	if !limit.InTurn(waiting, a.beginning, 1, func() { subscription, errs = a.config.Engine.Subscribe(ctx, operation, wake) }) {
		a.config.ObserveRequest(string(ast.Subscription), codeRateLimited, 0)
		return nil, requestError(codeInternal, "The server is busy.") // clients retry on this code
	}
	stamp(ctx, errs)
	a.config.ObserveRequest(string(ast.Subscription), codeOf(errs), 0)
	if len(errs) == 0 {
		limits := a.config.Limits
		subscription.SetCharge(func(cost int) gqlerror.List {
			if refusal := limits.Spend(ctx, clientOf(v, address), cost); refusal != nil {
				a.config.ObserveRequest(string(ast.Subscription), codeRateLimited, 0)
				return refused(refusal)
			}
			return nil
		})
		a.config.ObserveSubscriptions(1)
		context.AfterFunc(ctx, func() { a.config.ObserveSubscriptions(-1) })
	}
	return subscription, errs
}

// internal logs the cause of an internal error and returns the error for the client.
func (a *api) internal(ctx context.Context, what string, err error) gqlerror.List {
	if !errors.Is(ctx.Err(), context.Canceled) { // unless the client has left
		a.config.Logger.ErrorContext(ctx, what, "error", err)
	}
	errs := requestError(codeInternal, "Something went wrong on our side.")
	stamp(ctx, errs)
	return errs
}
