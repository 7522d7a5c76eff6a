package tideline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// errPosition means that the server does not accept the position to resume from, for example
// because it is from another database.
var errPosition = errors.New("the position is refused")

const (
	// maxReconnectDelay is the longest delay that a stopping server may ask for.
	maxReconnectDelay = time.Minute
	// A timeline that is invalidated within calm after a read is read again at once. From the patient-th
	// time in succession the delay grows.
	calm    = 30 * time.Second
	patient = 3
)

// silence is added to two heartbeat intervals to get the time after which a silent
// connection is considered dead.
const silence = 5 * time.Second

// Run keeps the timeline up to date until ctx ends, and then returns the cause of ctx. It reads what must be
// read, follows the timeline live, and resumes when a connection has ended.
//
// It waits before it tries again: for the delay that a stopping server names, for the time that a rate limit
// asks for, and otherwise longer after each failure. It also waits longer each time if the server
// invalidates the timeline again and again.
//
// It returns an error if trying again is of no use: ErrSessionEnded, or an *Error or
// *CloseError that requires a change of the program, its options or the user's account. Run may
// be called again, but not concurrently.
func (t *Timeline[P]) Run(ctx context.Context) error {
	for failures := 0; ; {
		heard, err := t.follow(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		t.change(func() { t.open, t.err = false, err })
		if err == nil {
			return context.Cause(ctx)
		}
		if heard {
			failures = 0
		}
		switch invalid := CodeOf(err) == codeInvalid; {
		case invalid && !t.untold:
			t.untold = true
			continue
		case !invalid && t.untold:
			// The next server may be newer and report edits again. Edits made meanwhile were not reported.
			t.untold = false
			t.change(func() { t.held.stale = true })
		}
		wait, again := t.wait(err, failures)
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
func (t *Timeline[P]) wait(err error, failures int) (wait time.Duration, again bool) {
	wait = t.options.Backoff(failures)
	var closed *CloseError
	var no *Error
	switch {
	case errors.Is(err, errPosition):
		return wait, true
	case errors.Is(err, ErrSessionEnded):
		return 0, false
	case errors.As(err, &closed):
		switch closed.Code {
		case closeTooLarge, closeNoMessage, closeTooEarly, closeProtocol, closeTwiceID, closeTwiceInitialised:
			return 0, false
		case closeRestart:
			if delay, ok := reconnectDelay(closed.Reason); ok && failures == 0 {
				return delay, true
			}
		}
	case errors.As(err, &no):
		switch {
		case no.Code == codeLimited, no.Code == codeTimeout, no.Code == codeInternal, strings.HasPrefix(no.Code, codeHTTP):
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

// follow reads what must be read, then follows until the connection ends. heard reports
// whether it received an event.
func (t *Timeline[P]) follow(ctx context.Context) (heard bool, err error) {
	if t.mustRead() {
		if err := t.Read(ctx); err != nil {
			return false, err
		}
	}
	t.mu.Lock()
	position := t.held.Position
	t.mu.Unlock()
	heartbeat := max(1, int(t.options.Heartbeat/time.Second))
	s, err := t.client.Subscribe(ctx, t.document(), map[string]any{"after": position, "heartbeat": heartbeat})
	if err != nil {
		return false, err
	}
	defer s.Close()
	t.change(func() { t.open, t.err = true, nil })
	for {
		reading, cancel := context.WithTimeout(ctx, 2*time.Duration(heartbeat)*time.Second+silence)
		event, err := next[P](reading, s)
		cancel()
		if CodeOf(err) == codeBadInput {
			t.change(func() { t.held.stale = true })
			err = fmt.Errorf("%w: %w", errPosition, err)
		}
		if err != nil {
			return heard, err
		}
		heard = true
		if err := t.happen(ctx, event); err != nil {
			return heard, err
		}
	}
}

// happen handles an event. While it reads the timeline again, further events wait in the connection, and may
// already be included in what it read.
func (t *Timeline[P]) happen(ctx context.Context, e Event[P]) error {
	var wait time.Duration
	err := t.inTurn(ctx, func() error {
		if t.options.OnEvent != nil {
			t.options.OnEvent(e)
		}
		t.change(func() { t.held.apply(e) })
		if e.Kind == Invalidated {
			wait = t.rest()
		}
		return nil
	})
	if err != nil || e.Kind != Invalidated {
		return err
	}
	if wait > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return t.inTurn(ctx, func() error {
		if !t.mustRead() { // the caller has read it meanwhile
			return nil
		}
		return t.read(ctx)
	})
}

// rest returns how long to wait before an invalidated timeline is read again: 0 at first, and longer each
// time it was invalidated soon after a read.
func (t *Timeline[P]) rest() time.Duration {
	if time.Since(t.readAt) > calm {
		t.repeats = 0
	}
	t.repeats++
	if t.repeats < patient {
		return 0
	}
	return t.options.Backoff(t.repeats - patient)
}

func (t *Timeline[P]) document() string {
	updates, late, updated := ", updates: true", " lateBy", `
		... on TimelinePostUpdated { position edge { `+t.entryFields()+` } }`
	if t.untold {
		updates, late, updated = "", "", ""
	}
	return `subscription TimelineEvents($after: Cursor, $heartbeat: Int) { timelineEvents(after: $after, heartbeat: $heartbeat` + updates + `) { __typename
		... on TimelinePostAdded { position edge { ` + t.entryFields() + ` } }` + updated + `
		... on TimelinePostRemoved { position postId removal: reason }
		... on TimelineInvalidated { position reason }
		... on TimelineHeartbeat { position unreadCount` + late + ` } } }`
}
