// Package userstate sends viewers the users on their screens when they change: their profiles and counts,
// and the viewer's relation to them, whichever device changed it.
//
// It is level-triggered. Every two seconds one statement reads the states of all watched users for their
// viewers, and each viewer who was sent another state is sent the user. So it needs no messages and no
// writes. After an error, the next read makes up for it.
package userstate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/clock"
)

// DefaultEvery is the time between two reads of the states, and so between two events of a watch.
const DefaultEvery = 2 * time.Second

const (
	// atOnce is how many states one statement reads. If more users are watched, each is read less often.
	atOnce = 5000
	// lookTimeout bounds one read of the states.
	lookTimeout = 10 * time.Second
	// verdictLasts is how long the answer that a user is not hidden may be used.
	verdictLasts = 100 * time.Millisecond
)

// Config configures Users. Fields without a default are required.
type Config struct {
	Visibility *visibility.Reader
	Directory  *account.Directory
	Sessions   *session.Store
	// Every is the time between two reads of the states. Defaults to DefaultEvery.
	Every time.Duration
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Users serves the watches of a process. It is safe for concurrent use.
type Users struct {
	cfg Config

	mu      sync.Mutex // guards the fields below, and the state of all watches
	watches []*Watch   // in the order in which they are read
	next    int        // index in watches of the next one to read
}

// New returns Users. It fails when a required field is missing.
func New(cfg Config) (*Users, error) {
	if cfg.Visibility == nil || cfg.Directory == nil || cfg.Sessions == nil {
		return nil, errors.New("userstate: Visibility, Directory and Sessions are required")
	}
	cfg.Every = cmp.Or(cfg.Every, DefaultEvery)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Users{cfg: cfg}, nil
}

// Watch is one viewer's watch of some users. It has no goroutine: it wakes its reader, and the reader
// calls Next. Only one goroutine at a time may use it.
type Watch struct {
	of     *Users
	viewer session.Viewer
	wake   func()
	ids    []int64

	// The time and the Reader's version of the last event's read, for Confirm, and its states.
	at      time.Time
	version int64
	sending map[int64]visibility.UserState

	// Guarded by of.mu.
	begun  bool                           // the first event was confirmed
	states map[int64]visibility.UserState // at the last read
	sent   map[int64]visibility.UserState // the states that the client has
	ended  bool
	err    error
}

// Watch sends the viewer the users until ctx or the session ends. The first event has all of them. Each
// later event has the users whose state changed. A user who does not exist or is hidden is left out. Run
// must be running. The watch calls wake when it may have an event and when it ends, possibly before
// Watch returns. wake must return at once and must not call the watch. The caller must bound the number of
// ids. Error: Unauthenticated.
//
// Cost: none here; two queries for the first event. While anybody watches, Run executes one statement
// every two seconds, for all watched users.
func (u *Users) Watch(ctx context.Context, v session.Viewer, ids []int64, wake func()) (*Watch, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	w := &Watch{of: u, viewer: v, wake: wake, ids: ids, sent: map[int64]visibility.UserState{}}
	u.mu.Lock()
	u.watches = append(u.watches, w)
	u.mu.Unlock()
	stop := u.cfg.Sessions.Watch(v, func() { w.end(nil) })
	context.AfterFunc(ctx, func() {
		stop()
		w.end(nil)
	})
	wake()
	return w, nil
}

// Run reads the states every Config.Every until ctx ends. Without it, watches send only their first event.
func (u *Users) Run(ctx context.Context) error {
	return clock.Every(ctx, u.cfg.Every, u.look)
}

// look wakes the watches that have a new state to send.
func (u *Users) look(ctx context.Context) {
	turn := u.turn()
	if len(turn) == 0 {
		return
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := u.read(looking, turn); err != nil && ctx.Err() == nil {
		u.cfg.Logger.WarnContext(ctx, "live states of users not read; the next time tells", "error", err)
		return
	}
	for _, w := range turn {
		if w.pending() {
			w.wake()
		}
	}
}

// turn returns the watches to read next, which together watch about atOnce users at most, and advances
// next.
func (u *Users) turn() (turn []*Watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for n := 0; len(turn) < len(u.watches) && n < atOnce; u.next++ {
		u.next %= len(u.watches)
		w := u.watches[u.next]
		turn, n = append(turn, w), n+len(w.ids)
	}
	return turn
}

// read reads the states that the watches need.
func (u *Users) read(ctx context.Context, turn []*Watch) error {
	var pairs []visibility.ViewerUser
	for _, w := range turn {
		for _, id := range w.ids {
			pairs = append(pairs, visibility.ViewerUser{Viewer: w.viewer.ID, User: id})
		}
	}
	states, err := u.cfg.Visibility.UserStates(ctx, pairs)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range turn {
		w.states = map[int64]visibility.UserState{}
		for _, id := range w.ids {
			if state, ok := states[visibility.ViewerUser{Viewer: w.viewer.ID, User: id}]; ok {
				w.states[id] = state
			}
		}
	}
	return nil
}

// pending reports whether the client lacks a state that was read.
func (w *Watch) pending() bool {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return len(w.unsent()) > 0
}

// unsent returns the states that were read and not sent. of.mu must be held.
func (w *Watch) unsent() map[int64]visibility.UserState {
	unsent := map[int64]visibility.UserState{}
	for id, state := range w.states {
		if sent, ok := w.sent[id]; (!ok || sent != state) && !w.ended {
			unsent[id] = state
		}
	}
	return unsent
}

// Next returns the users whose state the client does not have; the first time, all of them. It never
// waits for a change: ok is false if there is none.
//
// Cost: one query, the first time two.
func (w *Watch) Next(ctx context.Context) (users []*ent.User, ok bool) {
	if ctx.Err() != nil {
		w.end(nil)
	}
	if w.Ended() {
		return nil, false
	}
	u := w.of
	u.mu.Lock()
	begun := w.begun
	u.mu.Unlock()
	w.at, w.version = u.cfg.Now(), u.cfg.Visibility.Version()
	if !begun {
		if err := u.read(ctx, []*Watch{w}); err != nil {
			w.end(err)
			return nil, false
		}
	}
	// The states were read before the users, so a change in between is sent once more.
	u.mu.Lock()
	w.sending = w.unsent()
	u.mu.Unlock()
	if begun && len(w.sending) == 0 {
		return nil, false
	}
	users, err := w.users(ctx)
	switch {
	case err != nil && begun:
		u.cfg.Logger.WarnContext(ctx, "changed users not sent; the next time tells", "viewer", w.viewer.ID, "error", err)
		return nil, false
	case err != nil:
		w.end(err)
		return nil, false
	}
	return users, !begun || len(users) > 0
}

// users reads the users of the event, without those who are hidden.
func (w *Watch) users(ctx context.Context) ([]*ent.User, error) {
	var ids []int64
	for _, id := range w.ids {
		if _, is := w.sending[id]; is {
			ids = append(ids, id)
		}
	}
	users, err := w.of.cfg.Directory.Users(ctx, ids)
	return slices.DeleteFunc(users, func(u *ent.User) bool { return u == nil }), err
}

// Confirm reports whether the response to the last event may be sent: its users were not hidden meanwhile.
// If so, Confirm records the event as sent. If not, the caller must call Next again.
//
// Cost: none, or one query if making the response took longer than a verdict lasts or something was
// hidden meanwhile.
func (w *Watch) Confirm(ctx context.Context, event []*ent.User, _ bool) bool {
	u := w.of
	if u.cfg.Now().Sub(w.at) > verdictLasts || u.cfg.Visibility.Version() != w.version {
		w.at, w.version = u.cfg.Now(), u.cfg.Visibility.Version()
		users, err := w.users(ctx)
		if err != nil {
			w.end(err)
		}
		if err != nil || len(users) < len(event) {
			return false
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.ended {
		return false
	}
	w.begun = true
	for id, state := range w.sending {
		w.sent[id] = state
	}
	return true
}

// end ends the watch, unless it has ended.
func (w *Watch) end(err error) {
	u := w.of
	u.mu.Lock()
	if w.ended {
		u.mu.Unlock()
		return
	}
	w.ended, w.err = true, err
	u.watches = slices.DeleteFunc(u.watches, func(other *Watch) bool { return other == w })
	u.mu.Unlock()
	w.wake()
}

// Ended reports whether the watch has ended.
func (w *Watch) Ended() bool {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return w.ended
}

// Err returns the error that ended the watch, nil if it ended otherwise. After an error the client may
// watch again; the new watch begins with all users.
func (w *Watch) Err() error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return w.err
}
