package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

const (
	// attemptTimeout bounds one attempt, from the look-up of the name to the end of the answer.
	attemptTimeout = 15 * time.Second
	// maxAnswer is how many bytes of an answer are read, and how many bytes its headers may have.
	maxAnswer = 64 << 10
	// maxURL bounds the address of an endpoint, in bytes.
	maxURL = 2000
)

// Reach describes where webhooks may be sent in addition to public addresses by https.
type Reach struct {
	// Networks are private networks that webhooks may be sent to. Defaults to none.
	Networks []netip.Prefix
	// HTTP allows addresses without TLS.
	HTTP bool
}

// special lists the networks that are not public although no method of netip.Addr says so: IANA's
// registries of special-purpose addresses, and forms of IPv6 that contain an IPv4 address.
var special = func() (list []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}()

var errPrivate = errors.New("the address is not public, and its network is not allowed")

// allows returns an error unless a connection to the address is allowed.
func (r Reach) allows(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(r.Networks, in) {
		return nil
	}
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || slices.ContainsFunc(special, in) {
		return fmt.Errorf("%s: %w", addr, errPrivate)
	}
	return nil
}

// checkURL returns an error if the text cannot be the address of an endpoint.
func (r Reach) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || len(text) > maxURL:
		return fmt.Errorf("%q is no address of an endpoint", text)
	case u.User != nil || u.Fragment != "":
		return errors.New("the address of an endpoint has no password and no fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !r.HTTP):
		return errors.New("the address of an endpoint begins with https://, or http:// where the operator allows it")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return r.allows(addr)
	}
	return nil
}

// client returns a client that connects to allowed addresses only. It checks the address when it
// connects, after the name was resolved. It follows no redirect and uses no proxy.
func (r Reach) client() *http.Client {
	dialer := net.Dialer{
		Timeout: attemptTimeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			addr, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return r.allows(addr.Addr())
		},
	}
	return &http.Client{
		Timeout:       attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxIdleConns: 100, MaxIdleConnsPerHost: perEndpoint, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer,
		},
	}
}
