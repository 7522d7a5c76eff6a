package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/internal/clock"
)

// The registrar is the only goroutine that writes presence. It is level-triggered:
// a subscription that begins or ends only marks its user as touched. The registrar
// then writes whether the user has a subscription at that moment. So no order of
// Subscribe and Close leaves a subscriber without presence. Users that are touched
// during a write are written together afterwards.

// touch makes the registrar check the presence of a user. The caller holds h.mu.
func (h *Hub) touch(user int64) {
	h.touched[user] = struct{}{}
	select {
	case h.wake <- struct{}{}:
	default: // the registrar already has a wake-up
	}
}

// keepPresence registers all users, sends a Resync, and then writes changes, heartbeats
// and probes until ctx is done. It returns an error only if it cannot register all users.
func (h *Hub) keepPresence(ctx context.Context) error {
	if err := bounded(ctx, func(ctx context.Context) error { return h.beat(ctx, true) }); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("live: %w", err)
	}
	h.online.Store(true)
	if h.connects.Add(1) == 1 {
		close(h.first)
	}

	heartbeat := time.NewTimer(h.cfg.Heartbeat)
	defer heartbeat.Stop()
	probes := time.NewTicker(max(h.cfg.Silence/3, time.Millisecond))
	defer probes.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
			if err = bounded(ctx, h.change); err != nil {
				heartbeat.Reset(h.cfg.Heartbeat / 10) // the heartbeat writes everything again
			}
		case <-heartbeat.C:
			if err = bounded(ctx, func(ctx context.Context) error { return h.beat(ctx, false) }); err != nil {
				heartbeat.Reset(h.cfg.Heartbeat / 10)
			} else {
				heartbeat.Reset(h.cfg.Heartbeat)
			}
		case <-probes.C:
			err = bounded(ctx, h.probe)
		}
		if err != nil && ctx.Err() == nil {
			h.log.Warn("live: presence", "error", err)
		}
	}
}

// stepTimeout bounds each step of the registrar. The replacement of a broken connection
// waits for the step to end. The Redis client ends a command at the deadline of its
// context, but not when the context is canceled, so each step needs a deadline.
const stepTimeout = 3 * time.Second

func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return step(ctx)
}

// beat refreshes presence, and rewrites all of it if it is incomplete. It sends a Resync
// after a new connection (fresh), lost presence or a lost message. The Resync follows
// after presence is restored, so that no event is lost in between.
//
// beat reads the mark at its start, and gives it to the probes only after it has
// succeeded, including the Resync. So a subscriber that missed an event from before the
// mark has a Resync before the probe arrives.
func (h *Hub) beat(ctx context.Context, fresh bool) error {
	mark := h.marked.Load()
	intact, err := h.presence.refresh(ctx, len(h.held))
	if err != nil {
		return err
	}
	var waiting []*Subscription
	if fresh || h.dirty || !intact {
		var users []int64
		users, waiting = h.everyone()
		h.dirty = true
		if err := h.presence.rewrite(ctx, users); err != nil {
			return err
		}
		h.dirty = false
		clear(h.held)
		for _, user := range users {
			h.held[user] = struct{}{}
		}
	}
	if h.gap.Swap(false) || fresh || !intact {
		h.resync()
	}
	h.whole = mark
	h.release(waiting)
	return nil
}

// takeMarks calls HubConfig.Mark every Heartbeat and keeps the highest result, until ctx
// is done. It has its own goroutine, so that a slow Mark delays nothing else.
func (h *Hub) takeMarks(ctx context.Context) {
	take := func(ctx context.Context) { h.marked.Store(max(h.cfg.Mark(ctx), h.marked.Load())) }
	take(ctx)
	_ = clock.Every(ctx, h.cfg.Heartbeat, take)
}

// change writes the presence of the touched users.
func (h *Hub) change(ctx context.Context) error {
	if h.dirty {
		return nil // the next beat writes everything
	}
	add, remove, waiting := h.changes()
	if err := h.presence.change(ctx, add, remove); err != nil {
		// The waiting subscriptions keep waiting until a heartbeat has written presence again.
		h.dirty = true
		return err
	}
	for _, user := range add {
		h.held[user] = struct{}{}
	}
	for _, user := range remove {
		delete(h.held, user)
	}
	h.release(waiting)
	return nil
}

// probe publishes the mark of the last successful beat to the process's own channel.
func (h *Hub) probe(ctx context.Context) error {
	var err error
	if name, msg := channel(h.presence.proc), encodeProbe(h.whole); h.cfg.Sharded {
		err = h.rdb.SPublish(ctx, name, msg).Err()
	} else {
		err = h.rdb.Publish(ctx, name, msg).Err()
	}
	if err != nil {
		return fmt.Errorf("probe own channel: %w", err)
	}
	return nil
}

// changes clears the touched users. It returns the users to add, the users to remove, and
// the subscriptions that wait for that.
func (h *Hub) changes() (add, remove []int64, waiting []*Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for user := range h.touched {
		subs := h.subs[user]
		_, held := h.held[user]
		switch {
		case len(subs) > 0 && !held:
			add = append(add, user)
		case len(subs) == 0 && held:
			remove = append(remove, user)
		}
		waiting = append(waiting, unregistered(subs)...)
	}
	clear(h.touched)
	return add, remove, waiting
}

// everyone returns all users, and the subscriptions that wait for their registration. It
// clears the touched users.
func (h *Hub) everyone() (users []int64, waiting []*Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subs := range h.subs {
		waiting = append(waiting, unregistered(subs)...)
	}
	clear(h.touched)
	return slices.Collect(maps.Keys(h.subs)), waiting
}

func unregistered(subs []*Subscription) (waiting []*Subscription) {
	for _, s := range subs {
		if !s.registered {
			waiting = append(waiting, s)
		}
	}
	return waiting
}

// release marks the subscriptions as registered, so that Subscribe returns them.
func (h *Hub) release(waiting []*Subscription) {
	if len(waiting) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range waiting {
		if !s.Ended() && !s.registered {
			s.registered = true
			close(s.ready)
		}
	}
}
