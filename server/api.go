package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"

	"tideline/feed/account"
	"tideline/feed/refusal"
	"tideline/graph"
	"tideline/graph/exec"
)

// The codes that the transports themselves give; graph and exec give the rest.
const (
	codeBadInput        = string(refusal.BadInput)
	codeUnauthenticated = string(refusal.Unauthenticated)
	codeRateLimited     = "RATE_LIMITED"
	codeInternal        = "INTERNAL"
)

// accountTimeout is the least time for a request that signs up or logs in:
// hashing a password takes long by design, and few are hashed at a time.
const accountTimeout = 20 * time.Second

// beginTimeout is how long a subscription waits for its turn to begin.
const beginTimeout = 20 * time.Second

// api is what both transports do with a request once they have read it.
type api struct {
	engine       *exec.Engine
	authenticate func(ctx context.Context, token string) (account.Viewer, time.Time, error)
	limiter      *limiter // nil: no limits
	quotas       quotas
	documents    *documents          // nil: clients send documents, not hashes
	inFlight     *semaphore.Weighted // the cost of all that executes at once; nil: any
	beginning    line                // of subscriptions
	maxBody      int64               // bytes of an HTTP body or of a message on a socket
	bodies       *budget             // bytes of all large ones in hand; nil: any
	metrics      *metrics
	log          *slog.Logger
	timeout      time.Duration // to authenticate and to execute a query or mutation, in all
}

// errForbidden refuses a token that is malformed, unknown, expired or revoked.
var errForbidden = errors.New("the session has ended or never was")

// identify finds out whose token it is; "" is the anonymous viewer. Errors:
// errForbidden, or what kept it from finding out.
func (a *api) identify(ctx context.Context, token string) (account.Viewer, time.Time, error) {
	if token == "" {
		return account.Viewer{}, time.Time{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	viewer, expires, err := a.authenticate(ctx, token)
	if refusal.CodeOf(err) == refusal.Unauthenticated {
		return account.Viewer{}, time.Time{}, errForbidden
	}
	return viewer, expires, err
}

// prepare checks a request of the viewer's up to the point where it could be
// executed. Errors are request errors: nothing was done.
func (a *api) prepare(ctx context.Context, v account.Viewer, address string, r exec.Request) (*exec.Operation, gqlerror.List) {
	r, register, errs := a.documents.resolve(r)
	var operation *exec.Operation
	if len(errs) == 0 {
		operation, errs = a.engine.Prepare(ctx, r)
	}
	if len(errs) == 0 && operation.Kind() == ast.Subscription {
		errs = lasting(r)
	}
	if len(errs) > 0 {
		if err := a.limiter.allow(ctx, v, address, demand{cost: leastCost}); err != nil {
			errs = gqlerror.List{err}
		}
		a.metrics.request("invalid", codeOf(errs), 0)
		return nil, errs
	}
	err := a.limiter.allow(ctx, v, address, demandOf(operation))
	if c := connOf(ctx); err == nil && c != nil {
		err = c.use(v, a.quotas.userSockets)
	}
	if err != nil {
		a.metrics.request(string(operation.Kind()), codeRateLimited, 0)
		return nil, gqlerror.List{err}
	}
	a.documents.keep(register)
	return operation, nil
}

// deadline is how long an operation may take.
func (a *api) deadline(operation *exec.Operation) time.Duration {
	if operation.Kind() == ast.Mutation && slices.ContainsFunc(operation.RootFields(), isAccountField) {
		return max(a.timeout, accountTimeout)
	}
	return a.timeout
}

// execute runs a query or mutation as the viewer, within the deadline of a
// request that was begun at the time given: what came before counts.
func (a *api) execute(ctx context.Context, begun time.Time, v account.Viewer, operation *exec.Operation) exec.Response {
	start := time.Now()
	ctx, cancel := context.WithDeadline(graph.WithViewer(ctx, v), begun.Add(a.deadline(operation)))
	defer cancel()
	response, ok := a.turn(ctx, operation)
	if !ok {
		a.metrics.request(string(operation.Kind()), codeRateLimited, time.Since(start))
		return exec.Response{Errors: gqlerror.List{tooMany(1, "The server is busy.")}}
	}
	stamp(ctx, response.Errors)
	took, code := time.Since(start), codeOf(response.Errors)
	a.metrics.request(string(operation.Kind()), code, took)
	a.log.DebugContext(ctx, "executed", "kind", operation.Kind(), "name", operation.Name(), "viewer", v.ID, "code", code, "took", took)
	return response
}

// turn executes an operation when what executes already leaves room for it,
// ok=false when that has not come about before the deadline.
func (a *api) turn(ctx context.Context, operation *exec.Operation) (response exec.Response, ok bool) {
	if a.inFlight != nil {
		cost := int64(operation.Cost())
		if err := a.inFlight.Acquire(ctx, cost); err != nil {
			return response, false
		}
		defer a.inFlight.Release(cost)
	}
	return a.engine.Execute(ctx, operation), true
}

// subscribe starts a subscription as the viewer; it lasts as long as ctx.
func (a *api) subscribe(ctx context.Context, v account.Viewer, operation *exec.Operation, wake func()) (*exec.Subscription, gqlerror.List) {
	if err := a.quotas.subscribe(ctx, v); err != nil {
		a.metrics.request(string(ast.Subscription), codeRateLimited, 0)
		return nil, gqlerror.List{err}
	}
	waiting, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	var subscription *exec.Subscription
	var errs gqlerror.List
	if !inTurn(waiting, a.beginning, func() { subscription, errs = a.engine.Subscribe(ctx, operation, wake) }) {
		a.metrics.request(string(ast.Subscription), codeRateLimited, 0)
		return nil, refusalOf(codeInternal, "The server is busy.") // as what goes wrong on our side: the client is to come back
	}
	stamp(ctx, errs)
	a.metrics.request(string(ast.Subscription), codeOf(errs), 0)
	if len(errs) == 0 {
		a.metrics.subscriptions.Inc()
		context.AfterFunc(ctx, a.metrics.subscriptions.Dec)
	}
	return subscription, errs
}

// line is where those stand who come in crowds, as they do after a restart, and
// each ask Redis and SQL several times: in a line of their own, and not before
// everybody else. A nil line has room for all.
type line chan struct{}

func newLine(room int) line { return make(line, room) }

// inTurn runs do when there is room in the line; ok=false when ctx ends before.
func inTurn(ctx context.Context, l line, do func()) (ok bool) {
	if l != nil {
		select {
		case l <- struct{}{}:
			defer func() { <-l }()
		case <-ctx.Done():
			return false
		}
	}
	do()
	return true
}

// stamp tells the client under which id the log has the details.
func stamp(ctx context.Context, errs gqlerror.List) {
	for _, err := range errs {
		if err.Extensions["code"] == codeInternal {
			err.Extensions["requestId"] = requestID(ctx)
		}
	}
}

// codeOf is the code of the first error, "OK" without one.
func codeOf(errs gqlerror.List) string {
	if len(errs) == 0 {
		return "OK"
	}
	if code, ok := errs[0].Extensions["code"].(string); ok {
		return code
	}
	return codeInternal
}

// refusal is a request error made by a transport.
func refusalOf(code, format string, args ...any) gqlerror.List {
	err := gqlerror.Errorf(format, args...)
	err.Extensions = map[string]any{"code": code}
	return gqlerror.List{err}
}

// internal is the refusal for what went wrong on our side; the cause is logged.
func (a *api) internal(ctx context.Context, what string, err error) gqlerror.List {
	if !errors.Is(ctx.Err(), context.Canceled) { // else the client has left
		a.log.ErrorContext(ctx, what, "err", err)
	}
	errs := refusalOf(codeInternal, "Something went wrong on our side.")
	stamp(ctx, errs)
	return errs
}
