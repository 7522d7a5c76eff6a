package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The registrar is the one goroutine that writes presence. It works by level,
// not by edge: a subscription that begins or ends only touches its user, and
// the registrar then writes what is true of that user at that moment. So no
// order of Subscribe and Close leaves a subscriber without presence, and what
// many touched while a write was under way goes out in one.

// touch has the presence of a user looked at. The caller holds h.mu.
func (h *Hub) touch(user int64) {
	h.touched[user] = struct{}{}
	select {
	case h.wake <- struct{}{}:
	default: // it is awake
	}
}

// keepPresence registers all users, brings the subscriptions up to date after a
// gap, and then follows the changes, beats and probes until ctx is done. It
// returns an error when it did not get as far as that.
func (h *Hub) keepPresence(ctx context.Context) error {
	if err := bounded(ctx, func(ctx context.Context) error { return h.beat(ctx, true) }); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("live: %w", err)
	}
	h.connects.Add(1)
	h.online.Store(true)

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
				heartbeat.Reset(h.cfg.Heartbeat / 10) // which mends it
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

// stepTimeout bounds what the registrar does at a time. A connection that breaks
// waits for it, and the commands of a client do not end with their context, only
// by its deadline.
const stepTimeout = 3 * time.Second

func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return step(ctx)
}

// beat refreshes presence, and writes it whole when it is not what it should
// be. A gap ends in a Resync: a new connection (fresh), lost presence, or a lost
// message. The Resync comes after the presence is back, so that nothing is lost
// between the two.
//
// A mark that was taken before a beat, and before a gap that the beat found, is
// carried by probes only after the Resync.
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

// takeMarks takes a mark every Heartbeat until ctx is done. A source of marks that
// hangs holds up nothing else.
func (h *Hub) takeMarks(ctx context.Context) {
	every := time.NewTicker(h.cfg.Heartbeat)
	defer every.Stop()
	for ctx.Err() == nil {
		h.marked.Store(max(h.cfg.Mark(ctx), h.marked.Load()))
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}

// change writes the presence of the touched users.
func (h *Hub) change(ctx context.Context) error {
	if h.dirty {
		return nil // the next beat writes everything
	}
	add, remove, waiting := h.changes()
	if err := h.presence.change(ctx, add, remove); err != nil {
		// The subscriptions that wait go on waiting, for the beat that mends it.
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

// changes takes the touched users: those to add, those to remove, and the
// subscriptions that wait for it.
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

// everyone is changes for all users.
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

// release lets Subscribe return.
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
