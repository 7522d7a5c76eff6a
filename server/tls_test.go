package server

import (
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

	"tideline/server/internal/servertest"
)

// certificate creates a certificate for 127.0.0.1 and returns its files.
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
	ask := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	scraped, err := ask.Get(url + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(scraped.Body)
	require.NoError(t, err)
	require.NoError(t, scraped.Body.Close())
	require.Contains(t, string(text), "\ntideline_tls_certificate_end_timestamp_seconds 1.")
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
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}
	p := servertest.Dial(t, dialer, url+"/graphql", servertest.Modern)
	p.Send(`{"type":"connection_init"}`)
	p.Expect(`{"type":"connection_ack"}`)
	p.Conn.Close()
	_, err = (&tls.Dialer{Config: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}}).
		DialContext(context.WithoutCancel(t.Context()), "tcp", strings.TrimPrefix(url, "https://"))
	require.Error(t, err)
	require.NoError(t, stop())
}

// Every answer has the security headers, for every method.
func TestEveryAnswerIsSecured(t *testing.T) {
	handler := secure(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, method := range []string{http.MethodPost, http.MethodOptions} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/graphql", nil))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Equal(t, http.StatusTeapot, w.Code)
	}
}
