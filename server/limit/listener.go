package limit

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"
)

// defaultConnections is the default of Config.MaxConnections.
const defaultConnections = 4096

// Listener returns a listener that bounds the connections it accepts from inner. Connections for which
// [FreeSlot] was called do not count. While it is full, new connections wait to be accepted, since the open
// ones have deadlines. A single address cannot fill it, except a trusted proxy's, which stands for many
// clients. The listener works until it is closed, also after ctx ends.
func (l *Limits) Listener(ctx context.Context, inner net.Listener) net.Listener {
	return newListener(ctx, inner, int64(cmp.Or(l.maxConnections, defaultConnections)), l.addressConnections, l.proxies)
}

type limitListener struct {
	net.Listener
	slots   *semaphore.Weighted
	address *quota // nil: no bound on an address
	proxies proxies
	open    context.Context // ends when the listener is closed, and with it an Accept that waits for a slot
	close   func() error
}

func newListener(ctx context.Context, inner net.Listener, slots int64, address *quota, p proxies) *limitListener {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &limitListener{
		Listener: inner, slots: semaphore.NewWeighted(slots), address: address, proxies: p, open: open,
		close: sync.OnceValue(func() error {
			cancel()
			return inner.Close()
		}),
	}
}

// Close implements net.Listener.
func (l *limitListener) Close() error { return l.close() }

// Accept implements net.Listener. It also waits for a slot.
func (l *limitListener) Accept() (net.Conn, error) {
	if l.slots.Acquire(l.open, 1) != nil {
		return nil, net.ErrClosed
	}
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			l.slots.Release(1)
			return nil, err
		}
		remote := accepted.RemoteAddr().String()
		quota := l.address
		if from, err := netip.ParseAddrPort(remote); err == nil && l.proxies.trust(from.Addr()) {
			quota = nil
		}
		giveBack, ok := quota.take(AddressOf(remote))
		if !ok {
			accepted.Close()
			continue
		}
		return &conn{Conn: accepted, slot: func() { giveBack(); l.slots.Release(1) }}, nil
	}
}
