package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// text returns an answer of n bytes.
func text(n int) string {
	return strings.Repeat(`{"node":{"text":"hello, everybody"}},`, n/37+1)[:n]
}

func answer(contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, body)
	})
}

// ask makes a request with headers, given as name, value, name, value.
func ask(h http.Handler, method string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func inflate(t *testing.T, compressed []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	require.NoError(t, err)
	plain, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(plain)
}

func TestCompress(t *testing.T) {
	t.Parallel()
	const asJSON = "application/json; charset=utf-8"
	for name, c := range map[string]struct {
		next       http.Handler
		accept     string
		size       int
		compressed bool
	}{
		"large":              {answer(asJSON, text(9000)), "gzip, deflate, br, zstd", 9000, true},
		"least":              {answer(asJSON, text(Least)), "gzip", Least, true},
		"very large":         {answer(asJSON, text(3<<20)), "gzip", 3 << 20, true},
		"the spec's type":    {answer("application/graphql-response+json; charset=utf-8", text(9000)), "gzip", 9000, true},
		"small":              {answer(asJSON, text(Least-1)), "gzip", Least - 1, false},
		"empty":              {answer(asJSON, ""), "gzip", 0, false},
		"not asked for":      {answer(asJSON, text(9000)), "", 9000, false},
		"refused":            {answer(asJSON, text(9000)), "gzip;q=0, *", 9000, false},
		"another coding":     {answer(asJSON, text(9000)), "br, zstd", 9000, false},
		"another type":       {answer("image/png", text(9000)), "gzip", 9000, false},
		"events nobody asks": {answer("text/event-stream", text(9000)), "gzip", 9000, false},
		"without length": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", asJSON)
			for range 90 {
				_, _ = io.WriteString(w, text(100))
			}
		}), "gzip", 9000, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := Compress(c.next)
			w := ask(h, http.MethodGet, "Accept-Encoding", c.accept)
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, []string{"Accept-Encoding"}, w.Header().Values("Vary"))
			plain := w.Body.String()
			if c.compressed {
				require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
				require.Empty(t, w.Header().Get("Content-Length"), "it is that of the plain answer")
				require.Less(t, w.Body.Len(), c.size/2)
				plain = inflate(t, w.Body.Bytes())
			} else {
				require.Empty(t, w.Header().Get("Content-Encoding"))
			}
			require.Equal(t, ask(c.next, http.MethodGet).Body.String(), plain)
			require.Equal(t, w.Body.Bytes(), ask(h, http.MethodGet, "Accept-Encoding", c.accept).Body.Bytes(), "an ETag stands for the same bytes")
			head := ask(h, http.MethodHead, "Accept-Encoding", c.accept)
			require.Equal(t, http.StatusOK, head.Code)
			require.Equal(t, ask(c.next, http.MethodHead).Header().Get("Content-Length"), head.Header().Get("Content-Length"), "HEAD tells of the plain answer")
		})
	}
}

// An answer with a Content-Encoding and a partial answer stay unchanged. Errors are
// compressed like other answers.
func TestCompressLeavesOtherAnswers(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Content-Encoding", "Content-Range"} {
		w := ask(Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, "bytes 0-8999/10000")
			answer("text/plain", text(9000)).ServeHTTP(w, r)
		})), http.MethodGet, "Accept-Encoding", "gzip")
		require.Equal(t, text(9000), w.Body.String(), header)
		require.Equal(t, "9000", w.Header().Get("Content-Length"), header)
	}
	w := ask(Compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text(9000), http.StatusTeapot)
	})), http.MethodGet, "Accept-Encoding", "gzip")
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, text(9000)+"\n", inflate(t, w.Body.Bytes()))
	w = ask(Compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })),
		http.MethodOptions, "Accept-Encoding", "gzip")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, w.Header().Get("Content-Encoding"))
}

// Event streams and sockets get the connection's own writer, which reports that the client
// has left and can be hijacked.
func TestCompressHandsConnectionsOn(t *testing.T) {
	t.Parallel()
	for _, header := range [][]string{
		{"Accept", "text/event-stream"}, {"Accept", "application/json;q=0.5", "Accept", "Text/Event-Stream"}, {"Upgrade", "websocket"},
	} {
		var given http.ResponseWriter
		h := Compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { given = w }))
		w := ask(h, http.MethodGet, append(header, "Accept-Encoding", "gzip")...)
		require.Same(t, w, given, header)
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	body := text(9000)
	h := Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Share(w, r, []byte(body)) {
			answer("application/json", body).ServeHTTP(w, r)
		}
	}))
	plain, compressed := ask(h, http.MethodGet), ask(h, http.MethodGet, "Accept-Encoding", "gzip")
	of := func(w *httptest.ResponseRecorder) string { return w.Header().Get("ETag") }
	require.Regexp(t, `^"[0-9a-f]{32}"$`, of(plain))
	require.Regexp(t, `^"[0-9a-f]{32}-gzip"$`, of(compressed))
	require.Equal(t, body, inflate(t, compressed.Body.Bytes()))
	for held, want := range map[string]string{
		of(plain): of(plain), of(compressed): of(compressed), "W/" + of(compressed): of(compressed), "*": of(plain),
		`"other", ` + of(compressed) + `, "another"`: of(compressed),
	} {
		for _, accept := range []string{"", "gzip"} {
			w := ask(h, http.MethodGet, "If-None-Match", held, "Accept-Encoding", accept)
			require.Equal(t, http.StatusNotModified, w.Code, held)
			require.Equal(t, want, of(w))
			require.Equal(t, "public, no-cache", w.Header().Get("Cache-Control"))
			require.ElementsMatch(t, []string{"Accept-Encoding", "Authorization"}, w.Header().Values("Vary"))
			require.Empty(t, w.Header().Get("Content-Encoding"))
			require.Empty(t, w.Body.Bytes())
		}
	}
	for _, held := range []string{"", `"other"`, strings.Trim(of(plain), `"`), of(plain) + "x"} {
		w := ask(h, http.MethodGet, "If-None-Match", held)
		require.Equal(t, http.StatusOK, w.Code, held)
		require.Equal(t, body, w.Body.String())
	}
	old := of(compressed)
	body = text(9001)
	w := ask(h, http.MethodGet, "If-None-Match", old, "Accept-Encoding", "gzip")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, body, inflate(t, w.Body.Bytes()))
}

// slow is a client to which an answer is being written.
type slow func(p []byte)

func (s slow) Write(p []byte) (int, error) {
	s(p)
	return len(p), nil
}

func TestNoEncoderIsHeldWhileAClientIsWaitedFor(t *testing.T) {
	t.Parallel()
	var e *encoding
	writes := 0
	e = newEncoding(slow(func(p []byte) {
		writes++
		require.Nil(t, e.Writer)
		require.Equal(t, text(1<<20), inflate(t, p))
	}), level).(*encoding)
	_, err := io.WriteString(e, text(1<<20))
	require.NoError(t, err)
	require.Zero(t, writes)
	require.NoError(t, e.Close())
	require.Equal(t, 1, writes)
}

// Encoders are reused, but no answer contains a part of another.
func TestAnswersAreNotMixed(t *testing.T) {
	t.Parallel()
	h := Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer("application/json", strings.Repeat(r.Header.Get("X-Word"), 1000)).ServeHTTP(w, r)
	}))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				word := fmt.Sprintf("%d/%d ", i, j)
				w := ask(h, http.MethodGet, "Accept-Encoding", "gzip", "X-Word", word)
				if strings.Repeat(word, 1000) != inflate(t, w.Body.Bytes()) {
					t.Errorf("the answer to %s is another's", word)
				}
			}
		})
	}
	all.Wait()
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// sink is a client that takes everything.
type sink struct {
	header http.Header
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(int)     {}
func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// BenchmarkCompress measures bytes and processor time of answers with 1, 5, 20 and 100
// posts, plain and compressed.
func BenchmarkCompress(b *testing.B) {
	for _, posts := range []int{1, 5, 20, 100} {
		body := page(posts)
		for _, accept := range []string{"identity", "gzip"} {
			b.Run(fmt.Sprintf("posts=%d/%s", posts, accept), func(b *testing.B) {
				h := Compress(answer("application/json", body))
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Accept-Encoding", accept)
				b.ReportAllocs()
				var w *sink
				begun := processorTime(b)
				for b.Loop() {
					w = &sink{header: http.Header{}}
					h.ServeHTTP(w, r)
				}
				b.ReportMetric(float64((processorTime(b)-begun).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
				b.ReportMetric(float64(w.bytes), "bytes")
			})
		}
	}
}
