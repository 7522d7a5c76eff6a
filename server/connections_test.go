package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// behindDoor serves the fixture anew, with the quotas and as a process does.
func (f *fixture) behindDoor(t *testing.T, q quotas, slots int, address *quota) *door {
	f.handler.api.quotas = q
	server := httptest.NewUnstartedServer(identify(f.handler))
	d := newDoor(server.Listener, slots, address, proxies{})
	server.Listener = d
	server.Config.ConnContext = withConn
	server.Start()
	t.Cleanup(server.Close)
	f.server.Close()
	f.server = server
	return d
}

func TestSocketsOfAnAddress(t *testing.T) {
	f := newFixture(t, nil)
	d := f.behindDoor(t, quotas{addressSockets: newQuota(2)}, 100, nil)
	first := f.connect(t, modern, "")
	f.connect(t, modern, "")
	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	_, response, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	body, _ := io.ReadAll(response.Body)
	require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Retry-After"))
	require.Contains(t, string(body), "2 sockets")

	first.conn.Close()
	require.Eventually(t, func() bool { return f.sockets.count() == 1 }, 30*time.Second, time.Millisecond)
	f.connect(t, modern, "")
	status, _ := ask(t, http.MethodPost, f.server.URL, `{"query":"{hello}"}`)
	require.Equal(t, http.StatusOK, status, "other requests are no sockets")
	require.LessOrEqual(t, len(d.slots), 4)
}

func TestSocketsOfAUser(t *testing.T) {
	f := newFixture(t, nil)
	f.behindDoor(t, quotas{userSockets: newQuota(1)}, 100, nil)
	f.logIn("bob", time.Now().Add(time.Hour))
	const alice, bob = `{"Authorization":"Bearer alice"}`, `{"Authorization":"Bearer bob"}`
	hello := func(p *peer, id string) string {
		p.send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"{hello}"}}`)
		return p.receive()
	}
	first := f.connect(t, modern, alice)
	require.Contains(t, hello(first, "1"), "world")
	first.expect(`{"id":"1","type":"complete"}`)
	require.Contains(t, hello(first, "2"), "world", "one socket counts once")
	second := f.connect(t, modern, alice)
	refusal := hello(second, "1")
	require.Contains(t, refusal, `"RATE_LIMITED"`)
	require.Contains(t, refusal, `"allowed":1`)
	require.Contains(t, hello(f.connect(t, modern, bob), "1"), "world")
	require.Contains(t, hello(f.connect(t, modern, ""), "1"), "world")
	first.conn.Close()
	require.Eventually(t, func() bool { return f.sockets.count() == 3 }, 30*time.Second, time.Millisecond)
	require.Contains(t, hello(second, "2"), "world")
}

func TestSubscriptionsOfAUserAndAnAddress(t *testing.T) {
	f := newFixture(t, nil)
	f.behindDoor(t, quotas{userSubscriptions: newQuota(2), addressSubscriptions: newQuota(3)}, 100, nil)
	start := func(p *peer, id string) {
		p.send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	}
	news := func(p *peer) string { // only a subscription that was begun can take it
		f.news <- 1
		return p.receive()
	}
	p := f.connect(t, modern, `{"Authorization":"Bearer alice"}`)
	start(p, "1")
	require.Contains(t, news(p), `"news":1`)
	start(p, "2")
	require.Contains(t, news(p), `"news":1`)
	start(p, "3")
	require.Contains(t, p.receive(), "A user may have 2 subscriptions")
	anonymous := f.connect(t, modern, "")
	start(anonymous, "1")
	start(anonymous, "2")
	require.Contains(t, anonymous.receive(), "An address may have 3 subscriptions")
	p.send(`{"id":"1","type":"complete"}`)
	require.Eventually(t, func() bool {
		start(p, "4")
		p.send(`{"id":"4","type":"complete"}`)
		p.send(`{"type":"ping"}`)
		return !strings.Contains(p.receive(), "RATE_LIMITED") || !strings.Contains(p.receive(), "pong")
	}, 30*time.Second, 10*time.Millisecond)
}

func TestDoor(t *testing.T) {
	f := newFixture(t, nil)
	f.behindDoor(t, quotas{}, 3, newQuota(2))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.server.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	served := func(c net.Conn) bool {
		io.WriteString(c, "GET /graphql?query={hello} HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && response.StatusCode == http.StatusOK
	}
	first, second := dial(), dial()
	require.True(t, served(first))
	require.True(t, served(second))
	require.False(t, served(dial()), "a third one of the address is closed")
	first.Close()
	require.Eventually(t, func() bool { return served(dial()) }, 30*time.Second, time.Millisecond)

}

// Full, it makes new ones wait; closed, it lets nobody wait.
func TestDoorIsFull(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := newDoor(listener, 1, nil, proxies{})
	for range 2 {
		c, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	first, err := d.Accept()
	require.NoError(t, err)
	second := make(chan error, 1)
	accept := func() {
		c, err := d.Accept()
		if err == nil {
			defer c.Close()
		}
		second <- err
	}
	go accept()
	require.Empty(t, second)
	require.NoError(t, first.Close())
	require.NoError(t, <-second)

	d.slots <- struct{}{}
	go accept()
	require.NoError(t, d.Close())
	require.ErrorIs(t, <-second, net.ErrClosed)
}

func TestTurns(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.timeout = 50 * time.Millisecond
	f.handler.api.inFlight = semaphore.NewWeighted(5)
	require.NoError(t, f.handler.api.inFlight.Acquire(t.Context(), 5))
	busy := f.post(`{"query":"{hello}"}`)
	require.Equal(t, http.StatusTooManyRequests, busy.Code)
	require.Equal(t, "1", busy.Header().Get("Retry-After"))
	f.handler.api.inFlight.Release(5)
	require.Equal(t, http.StatusOK, f.post(`{"query":"{hello}"}`).Code)
}

// Subscriptions that have to wait for their beginning hold up nobody else.
func TestSubscriptionsBeginInTurn(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.beginning = newLine(1)
	f.handler.api.beginning <- struct{}{}
	p := f.connect(t, modern, "")
	p.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{count(to:1)}"}}`)
	p.send(`{"id":"2","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.expect(`{"id":"2","type":"next","payload":{"data":{"hello":"world"}}}`)
	p.expect(`{"id":"2","type":"complete"}`)
	<-f.handler.api.beginning
	p.expect(`{"id":"1","type":"next","payload":{"data":{"count":1}}}`)
	p.expect(`{"id":"1","type":"complete"}`)
	require.Eventually(t, func() bool { return len(f.handler.api.beginning) == 0 }, 30*time.Second, time.Millisecond, "it is over with its beginning")
}

func TestDeadline(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.timeout = 50 * time.Millisecond
	require.Contains(t, f.post(`{"query":"mutation{hold}"}`).Body.String(), `"errors"`)
}

// certificate makes a certificate for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(cert, public, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(public))
	return cert, key, pool
}

func TestTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	url, stop := start(t, Serve, "--tls-cert="+cert, "--tls-key="+key)
	require.True(t, strings.HasPrefix(url, "https://"), url)
	for _, http2 := range []bool{false, true} {
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2, DisableKeepAlives: true,
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/graphql?query={__typename}", nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, "max-age=31536000", response.Header.Get("Strict-Transport-Security"))
		require.Equal(t, http2, response.ProtoMajor == 2)
		client.CloseIdleConnections()
	}
	dialer := websocket.Dialer{Subprotocols: []string{modern}, TLSClientConfig: &tls.Config{RootCAs: pool}}
	conn, response, err := dialer.Dial("wss"+strings.TrimPrefix(url, "https")+"/graphql", nil)
	require.NoError(t, err)
	response.Body.Close()
	p := &peer{t, conn}
	p.send(`{"type":"connection_init"}`)
	p.expect(`{"type":"connection_ack"}`)
	p.conn.Close()
	_, err = (&tls.Dialer{Config: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}}).
		DialContext(context.WithoutCancel(t.Context()), "tcp", strings.TrimPrefix(url, "https://"))
	require.Error(t, err)
	require.NoError(t, stop())
}

// Streams of events share the quotas of sockets and subscriptions, and take no
// place at the door from requests.
func TestStreamsCountAsSockets(t *testing.T) {
	f := newFixture(t, func(c *socketConfig) { c.WriteTimeout = time.Minute }) // the streams are not read to their end
	addresses := newQuota(2)
	d := f.behindDoor(t, quotas{userSockets: newQuota(1), addressSockets: addresses}, 100, nil)
	hangUp := func(e events) { // and wait until the server knows
		e.response.Body.Close()
		require.Eventually(t, func() bool {
			addresses.mu.Lock()
			defer addresses.mu.Unlock()
			for _, held := range addresses.held {
				if held > 1 {
					return false
				}
			}
			return true
		}, 30*time.Second, time.Millisecond)
	}
	listen := func(token string) (e events, first string) {
		e = f.ask(t, http.MethodPost, token, "subscription{flood}")
		_, first = e.next()
		if strings.Contains(first, "errors") {
			e.response.Body.Close()
		}
		return e, first
	}
	stream, first := listen("alice")
	require.Contains(t, first, `{"data":{"flood":`)
	_, first = listen("alice")
	require.Contains(t, first, "A user may have 1 sockets and streams")
	require.Contains(t, first, `"RATE_LIMITED"`)
	anonymous, first := listen("")
	require.Contains(t, first, `{"data":{"flood":`)
	_, first = listen("")
	require.Contains(t, first, "An address may have 2 sockets and streams")
	hangUp(anonymous)
	socket := f.connect(t, modern, "")
	http.DefaultClient.CloseIdleConnections()
	// One is for the next connection.
	require.Eventually(t, func() bool { return len(d.slots) == 1 }, 30*time.Second, time.Millisecond)

	f.handler.api.quotas = quotas{addressSubscriptions: newQuota(1)}
	hangUp(stream)
	stream, first = listen("")
	require.Contains(t, first, `{"data":{"flood":`)
	socket.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	require.Contains(t, socket.receive(), "An address may have 1 subscriptions")
	stream.response.Body.Close()
}
