package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// The headers in which a proxy says for whom it asks, as Config.ProxyHeader
// names them.
const (
	headerForwardedFor = "x-forwarded-for"
	headerForwarded    = "forwarded"
)

// proxies are those whose word about a client's address is taken. Only the one
// header that they are known to write is read: the other would come from the
// client unchanged.
type proxies struct {
	networks []netip.Prefix
	header   string
}

func (p proxies) trust(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, network := range p.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// resolve makes RemoteAddr the client's own address, however many trusted
// proxies are in between. Whatever an untrusted one claims is ignored.
func (p proxies) resolve(next http.Handler) http.Handler {
	if len(p.networks) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && p.trust(from.Addr()) {
			r.RemoteAddr = netip.AddrPortFrom(p.client(from.Addr(), r.Header), 0).String()
		}
		next.ServeHTTP(w, r)
	})
}

// client is the last address of the chain that no trusted proxy has; the first
// one when all have one, and the one before a hop that cannot be read.
func (p proxies) client(peer netip.Addr, h http.Header) netip.Addr {
	hops := strings.Split(strings.Join(h.Values(p.header), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.trust(peer); i-- {
		hop, ok := p.hop(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		peer = hop
	}
	return peer
}

// hop reads one element of the header.
func (p proxies) hop(text string) (netip.Addr, bool) {
	if p.header == headerForwarded {
		text = forwardedFor(text)
	}
	if from, err := netip.ParseAddrPort(text); err == nil {
		return from.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr, err == nil
}

// forwardedFor is the value of "for" in an element of a Forwarded header.
func forwardedFor(element string) string {
	for _, pair := range strings.Split(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// addressOf is what an address is counted as: itself, and for IPv6 the network
// of 64 bits in which one customer can choose addresses freely.
func addressOf(remote string) string {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := from.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return addr.String()
	}
	return fmt.Sprint(prefix)
}

// parseNetwork reads an address or a network in CIDR notation.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}
