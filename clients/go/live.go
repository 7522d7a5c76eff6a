package tideline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errPosition means that the server does not accept the position to resume from, for example
// because it is from another database.
var errPosition = errors.New("the position is refused")

const (
	// maxReconnectDelay is the longest delay that a stopping server may ask for.
	maxReconnectDelay = time.Minute
	// From the patient-th invalidation in a row, a list is read again after a growing delay, and before that
	// at once. One that comes later than calm after a read is the first again. A connection that lasted longer
	// than calm is not a failure.
	calm    = 30 * time.Second
	patient = 3
)

// silence is added to two heartbeat intervals to get the time after which a silent
// connection is considered dead.
const silence = 5 * time.Second

// list is a list that live keeps up to date: a Timeline or a Conversation.
type list interface {
	// read reads the list from its start. The caller has the turn.
	read(ctx context.Context) error
	// mustRead reports whether it must be read before events make sense. position is where events resume.
	// The caller holds the lock.
	mustRead() bool
	position() string
	// invalidate makes mustRead true. The caller holds the lock.
	invalidate()
	// subscription returns the subscription and its variables without the position.
	subscription() (query string, variables map[string]any)
	// event decodes the data of a result. apply applies it; the caller has the turn.
	event(data json.RawMessage) (apply func(), err error)
}

// live reads a list, follows its events, and resumes. It has all that a Timeline and a Conversation have in
// common.
type live struct {
	list      list
	client    *Client
	backoff   func(n int) time.Duration
	heartbeat time.Duration // interval of the server's heartbeats; 0: it sends none

	turn    chan struct{} // held while reading pages or handling an event
	readAt  time.Time     // when the first page was last read; guarded by turn, like repeats
	repeats int           // how often in succession it was invalidated soon after a read

	mu      sync.Mutex // guards the following fields and the state of the list
	open    bool
	err     error
	changed chan struct{}
}

// begin prepares the zero value for use. backoff is nil for the default.
func (l *live) begin(list list, client *Client, backoff func(n int) time.Duration) {
	if backoff == nil {
		backoff = defaultBackoff
	}
	l.list, l.client, l.backoff = list, client, backoff
	l.turn, l.changed = make(chan struct{}, 1), make(chan struct{})
}

// defaultBackoff starts at half a second and doubles up to 15 s, each randomly varied by up to half.
func defaultBackoff(n int) time.Duration {
	most := min(500*time.Millisecond<<min(n, 5), 15*time.Second)
	return most/2 + rand.N(most)
}

// Changed returns a channel that is closed after the next change. Call it before Snapshot,
// so that no change is missed.
func (l *live) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// change calls how under the lock and notifies the watchers.
func (l *live) change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
	close(l.changed)
	l.changed = make(chan struct{})
}

// inTurn calls do while no other goroutine reads or handles an event, so that an event is newer
// than everything read before it.
func (l *live) inTurn(ctx context.Context, do func() error) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	return do()
}

// Read reads again what is shown, and at least the first page. This also updates like counts, which no
// event of a list reports. Run reads by itself when necessary; call Read first to get an error at once. Errors: the
// errors of Client.Query; the state then stays unchanged. A Conversation also has ErrNotFound.
func (l *live) Read(ctx context.Context) error {
	return l.inTurn(ctx, func() error { return l.read(ctx) })
}

func (l *live) read(ctx context.Context) error {
	err := l.list.read(ctx)
	if err == nil {
		l.readAt = time.Now()
	}
	return err
}

// readNext calls next with the cursor of the next page, if there is one. A list that must be read is read
// instead.
func (l *live) readNext(ctx context.Context, next func() error) error {
	return l.inTurn(ctx, func() error {
		if l.mustRead() {
			return l.read(ctx)
		}
		return next()
	})
}

func (l *live) mustRead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.mustRead()
}

// Run keeps the list up to date until ctx ends, and then returns the cause of ctx. It reads what must be
// read, follows the events, and resumes when a connection has ended.
//
// It waits before it tries again: for the delay that a stopping server names, for the time that a rate limit
// asks for, and otherwise longer after each failure. It also waits longer each time if the server
// invalidates the list again and again.
//
// It returns an error if trying again is of no use: ErrSessionEnded, for a Conversation ErrNotFound, or an
// *Error or *CloseError that requires a change of the program, its options or the user's account. Run may
// be called again, but not concurrently.
func (l *live) Run(ctx context.Context) error {
	for failures := 0; ; {
		worked, err := l.follow(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		l.change(func() { l.open, l.err = false, err })
		if err == nil {
			return context.Cause(ctx)
		}
		if worked {
			failures = 0
		}
		wait, again := l.wait(err, failures)
		if !again {
			return err
		}
		failures++
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// wait returns how long to wait before the next try. again is false if trying again is of no use.
func (l *live) wait(err error, failures int) (wait time.Duration, again bool) {
	wait = l.backoff(failures)
	var closed *CloseError
	var no *Error
	switch {
	case errors.Is(err, errPosition):
		return wait, true
	case errors.Is(err, ErrSessionEnded), errors.Is(err, ErrNotFound):
		return 0, false
	case errors.As(err, &closed):
		switch closed.Code {
		case closeTooLarge, closeBadMessage, closeTooEarly, closeBadSubprotocol, closeDuplicateID, closeTwiceInitialised:
			return 0, false
		case closeRestart:
			if delay, ok := reconnectDelay(closed.Reason); ok && failures == 0 {
				return delay, true
			}
		}
	case errors.As(err, &no):
		switch {
		case no.Code == codeLimited, no.Code == codeTimeout, no.Code == codeInternal, no.Code == codeUnavailable, strings.HasPrefix(no.Code, codeHTTP):
			return no.RetryAfter + wait, true
		}
		return 0, false
	}
	return wait, true
}

// reconnectDelay parses the delay that a stopping server names in the reason of its close frame. It adds up
// to a tenth at random, so that the clients do not all return at once.
func reconnectDelay(reason string) (delay time.Duration, ok bool) {
	digits, ok := strings.CutPrefix(reason, "reconnect in ")
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, "ms")
	ms, err := strconv.ParseUint(digits, 10, 16)
	delay = time.Duration(ms) * time.Millisecond
	if !ok || err != nil || delay > maxReconnectDelay {
		return 0, false
	}
	return delay + rand.N(delay/10+1), true
}

// follow reads what must be read, then follows until the connection ends. worked reports whether it received
// an event, or the connection lasted longer than calm.
func (l *live) follow(ctx context.Context) (worked bool, err error) {
	if l.mustRead() {
		if err := l.Read(ctx); err != nil {
			return false, err
		}
	}
	l.mu.Lock()
	position := l.list.position()
	l.mu.Unlock()
	query, variables := l.list.subscription()
	variables["after"] = orNull(position)
	s, err := l.client.Subscribe(ctx, query, variables)
	if err != nil {
		return false, err
	}
	defer s.Close()
	opened := time.Now()
	l.change(func() { l.open, l.err = true, nil })
	for {
		apply, err := l.next(ctx, s)
		if code := CodeOf(err); code == codeBadInput || code == codeNotFound {
			l.change(func() { l.list.invalidate() })
			err = fmt.Errorf("%w: %w", errPosition, err)
		}
		if err != nil {
			return worked || time.Since(opened) > calm, err
		}
		worked = true
		if err := l.happen(ctx, apply); err != nil {
			return worked, err
		}
	}
}

// next waits for the next event of the subscription. If the result contains errors, next returns the first
// one as an *Error.
func (l *live) next(ctx context.Context, s *Subscription) (apply func(), err error) {
	if l.heartbeat > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, 2*l.heartbeat+silence)
		defer cancel()
	}
	result, err := s.Next(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data   json.RawMessage
		Errors []responseError
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	if len(answer.Errors) > 0 {
		return nil, answer.Errors[0].asError()
	}
	if apply, err = l.list.event(answer.Data); err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	return apply, nil
}

// happen applies an event. While it reads the list again, further events wait in the connection, and may
// already be included in what it read.
func (l *live) happen(ctx context.Context, apply func()) error {
	var wait time.Duration
	err := l.inTurn(ctx, func() error {
		apply()
		if l.mustRead() {
			wait = l.rest()
		}
		return nil
	})
	if err != nil || !l.mustRead() {
		return err
	}
	if wait > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return l.inTurn(ctx, func() error {
		if !l.mustRead() { // the caller has read it meanwhile
			return nil
		}
		return l.read(ctx)
	})
}

// rest returns how long to wait before an invalidated list is read again: 0 at first, and longer each
// time it was invalidated soon after a read.
func (l *live) rest() time.Duration {
	if time.Since(l.readAt) > calm {
		l.repeats = 0
	}
	l.repeats++
	if l.repeats < patient {
		return 0
	}
	return l.backoff(l.repeats - patient)
}
