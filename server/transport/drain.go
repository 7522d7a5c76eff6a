package transport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A stopping server sends its clients to the other servers. These look up each session and begin its
// subscriptions again, which takes about 0.4 ms of processor time for a socket. If 20,000 sockets moved
// at once, the other servers would need ten seconds, and delay their own clients. So clients leave one
// after the other, and return at a rate of at most comeBackRate. If the grace period is too short for
// that rate, they leave sooner, and each is told to wait before it reconnects: in the reason of the close
// frame, or in the field retry of a stream.

const (
	// comeBackRate is how many clients per second move to the other servers. They take a
	// fifth of one processor there.
	comeBackRate = 500
	// longestAway bounds the time until the last client returns. With more clients
	// than fit, the rate is higher.
	longestAway = time.Minute
)

// departures plans when the clients of a stopping server leave and return.
type departures struct {
	clients  int
	leaveIn  time.Duration // time in which all leave
	returnIn time.Duration // time in which all return
}

// newDepartures plans for a number of clients that must leave within the given time. 0 means no limit.
func newDepartures(clients int, within time.Duration) departures {
	d := departures{clients: clients, returnIn: min(time.Duration(clients)*time.Second/comeBackRate, longestAway)}
	d.leaveIn = d.returnIn
	if within > 0 {
		d.leaveIn = min(d.leaveIn, within)
	}
	return d
}

// of returns when client i leaves, counted from the beginning, and how long it waits before it returns.
func (d departures) of(i int) (leaves, waits time.Duration) {
	share := func(all time.Duration) time.Duration {
		return time.Duration(float64(all) * float64(i) / float64(d.clients))
	}
	return share(d.leaveIn), share(d.returnIn - d.leaveIn)
}

// reconnectIn returns the reason of a close frame that tells a client when to reconnect. Clients parse it;
// docs/live.md documents the format.
func reconnectIn(wait time.Duration) string {
	return fmt.Sprintf("reconnect in %dms", wait.Milliseconds())
}

// client is a connection that a server can send away.
type client interface {
	// activity orders clients: the least active ones leave first.
	activity() int
	// leave ends the connection once its queries and mutations are answered, and tells the client how
	// long to wait. It returns at once.
	leave(wait time.Duration)
}

// Activities of clients.
const (
	idle       = iota // no operation in progress
	subscribed        // subscriptions only
	executing         // a query or mutation in progress
)

// shutdown implements Handler.Shutdown.
func (s *sockets) shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	clients := make([]client, 0, len(s.open)+len(s.streams))
	for socket := range s.open {
		clients = append(clients, &socket.operations)
	}
	for stream := range s.streams {
		clients = append(clients, stream)
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	s.sendAway(ctx, clients, gone)
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for socket := range s.open {
		socket.conn.Close()
		socket.cancel()
	}
	for stream := range s.streams {
		stream.cancel()
	}
	s.mu.Unlock()
	<-gone
	return ctx.Err()
}

// sendAway makes the clients leave one after the other, the least active ones
// first. It does not wait for them.
func (s *sockets) sendAway(ctx context.Context, clients []client, gone <-chan struct{}) {
	activity := make(map[client]int, len(clients))
	for _, c := range clients {
		activity[c] = c.activity()
	}
	slices.SortFunc(clients, func(a, b client) int { return cmp.Compare(activity[a], activity[b]) })
	var within time.Duration
	if end, ok := ctx.Deadline(); ok {
		within = max(time.Until(end)*4/5, 1)
	}
	d := newDepartures(len(clients), within)
	s.api.config.Logger.InfoContext(ctx, "clients leave", "connections", len(clients), "within", d.leaveIn.String(), "back_within", d.returnIn.String())
	start := time.Now()
	for i, c := range clients {
		leaves, waits := d.of(i)
		s.sleep(ctx, leaves-time.Since(start), gone)
		c.leave(waits)
	}
}

// sleep waits until d has passed, ctx has ended or done is closed.
func sleep(ctx context.Context, d time.Duration, done <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-done:
	}
}
