package limit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// The headers in which proxies name the client, as values of Config.ProxyHeader.
const (
	headerForwardedFor = "x-forwarded-for"
	headerForwarded    = "forwarded"
)

// proxies are the trusted proxies, which may set a client's address. Only the one header that they write is
// read: a client could set the other one itself.
type proxies struct {
	networks []netip.Prefix
	header   string
}

// newProxies reads the proxies of a Config. Its error has the form of Validate's.
func newProxies(networks []string, header string) (proxies, error) {
	p := proxies{header: cmp.Or(header, headerForwardedFor)}
	var errs []error
	if p.header != headerForwardedFor && p.header != headerForwarded {
		errs = append(errs, fmt.Errorf("ProxyHeader is %q: it must be %s or %s", header, headerForwardedFor, headerForwarded))
	}
	for _, text := range networks {
		network, err := parseNetwork(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("TrustedProxies is %q: it must be an address or a network, such as 10.0.0.0/8", text))
		}
		p.networks = append(p.networks, network.Masked())
	}
	return p, errors.Join(errs...)
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

// ResolveAddress sets the RemoteAddr of each request to the client's own address, behind any number of
// trusted proxies, and the scheme of its URL to https if the last of them was reached by TLS. It ignores the
// headers of an untrusted peer.
func (l *Limits) ResolveAddress(next http.Handler) http.Handler {
	p := l.proxies
	if len(p.networks) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && p.trust(from.Addr()) {
			r.RemoteAddr = netip.AddrPortFrom(p.client(from.Addr(), r.Header), 0).String()
			if strings.EqualFold(p.scheme(r.Header), "https") {
				r.URL.Scheme = "https"
			}
		}
		next.ServeHTTP(w, r)
	})
}

// client returns the last address of the chain that is not a trusted proxy. If all are trusted, it returns
// the first address. It stops at an entry that it cannot parse, and returns the address after it.
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

// hop parses one element of the header. ok is false if it has no address.
func (p proxies) hop(text string) (addr netip.Addr, ok bool) {
	if p.header == headerForwarded {
		text = forwarded(text, "for")
	}
	if from, err := netip.ParseAddrPort(text); err == nil {
		return from.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr, err == nil
}

// scheme returns the scheme with which the nearest proxy was reached.
func (p proxies) scheme(h http.Header) string {
	if p.header == headerForwarded {
		elements := strings.Split(strings.Join(h.Values(p.header), ","), ",")
		return forwarded(elements[len(elements)-1], "proto")
	}
	return h.Get("X-Forwarded-Proto")
}

// forwarded returns the value of a parameter in an element of a Forwarded header.
func forwarded(element, parameter string) string {
	for _, pair := range strings.Split(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, parameter) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// AddressOf returns the address under which the limits count a RemoteAddr. That is an IPv4 address itself,
// and the /64 network of an IPv6 address, since a customer can choose addresses freely within it.
func AddressOf(remote string) string {
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

// parseNetwork parses an address or a network in CIDR notation.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}
