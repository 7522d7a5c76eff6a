package transport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A server that stops sends its clients to the other servers, where each has its session looked
// up and its subscriptions begun: about 0.4 ms of processor time for a socket. If all came at
// once, 20,000 sockets would take the others ten seconds, and everybody else there would wait.
// So the clients leave one after the other, and come back at a rate of at most comeBackRate. If
// the grace period is too short for that, they leave sooner, and each is told to wait before it
// reconnects: by the reason of the close frame, or by the field retry of a stream.

const (
	// comeBackRate is how many clients a second are sent to the other servers: a fifth of one
	// processor there.
	comeBackRate = 500
	// longestAway bounds the time until the last client comes back; the rate is higher when
	// there are more clients than that.
	longestAway = time.Minute
)

// departures is when the clients of a server that stops leave, and when they come back.
type departures struct {
	clients  int
	leaveIn  time.Duration // all have left
	returnIn time.Duration // all are told to be back
}

// newDepartures plans for so many clients. They may take the given time to leave; 0 is any time.
func newDepartures(clients int, within time.Duration) departures {
	d := departures{clients: clients, returnIn: min(time.Duration(clients)*time.Second/comeBackRate, longestAway)}
	d.leaveIn = d.returnIn
	if within > 0 {
		d.leaveIn = min(d.leaveIn, within)
	}
	return d
}

// of is when the client with the index leaves, counted from the beginning, and how long it waits
// before it comes back.
func (d departures) of(i int) (leaves, waits time.Duration) {
	share := func(all time.Duration) time.Duration {
		return time.Duration(float64(all) * float64(i) / float64(d.clients))
	}
	return share(d.leaveIn), share(d.returnIn - d.leaveIn)
}

// reconnectIn is the reason of a close frame that tells a client when to reconnect. Clients parse
// it: docs/live.md has its form.
func reconnectIn(wait time.Duration) string {
	return fmt.Sprintf("reconnect in %dms", wait.Milliseconds())
}

// client is a connection that a server can send away.
type client interface {
	// activity orders clients: the least active ones leave first.
	activity() int
	// leave ends the connection as soon as what it executes is answered, and tells the client
	// how long to wait. It returns at once.
	leave(wait time.Duration)
}

// The activities of clients.
const (
	idle       = iota // nothing is under way
	subscribed        // subscriptions only
	executing         // a query or mutation too
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

// sendAway has the clients leave, until all are gone.
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

// sleep waits until the time has passed, or one of the others ends.
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
