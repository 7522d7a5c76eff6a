package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/server/internal/servertest"
	"tideline/server/limit"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// The path of an export is valid until its file was sent completely. HEAD requests and
// interrupted downloads do not use it up.
func TestExportIsGoodUntilItWasSentWhole(t *testing.T) {
	url, stop := start(t, Serve, "--data-dir="+t.TempDir())
	_, answer := servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token}}"}`)
	var signedUp struct {
		Data struct{ SignUp struct{ Token string } }
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &signedUp))
	_, answer = askFor(t, url, signedUp.Data.SignUp.Token, "", `mutation{exportAccount(input:{password:\"correct horse\"}){path}}`)
	var offered struct {
		Data struct{ ExportAccount struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &offered))
	path := offered.Data.ExportAccount.Path
	require.NotEmpty(t, path, answer)

	for range 2 {
		status, file := servertest.Ask(t, http.MethodHead, url+path, "")
		require.Equal(t, http.StatusOK, status)
		require.Empty(t, file)
	}
	status, file := servertest.Ask(t, http.MethodGet, url+path, "")
	require.Equal(t, http.StatusOK, status)
	first, _, _ := strings.Cut(file, "\n")
	require.Contains(t, first, `"handle":"ann"`)
	for _, path := range []string{path, "/account/export"} {
		status, answer = servertest.Ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, answer, `"reason":"DOWNLOAD_ENDED"`)
		require.Contains(t, answer, `"code":"UNAUTHENTICATED"`)
	}
	require.NoError(t, stop())
}

// A client that disconnects during its download may start it again.
func TestBrokenDownloadLeavesThePathGood(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{})
		path, _, err := w.Login.OfferExport(w.Ctx, w.SignUp("ann", "correct horse"), "correct horse")
		require.NoError(t, err)
		download := downloads(t, w)
		require.Equal(t, http.ErrAbortHandler, download(brokenWriter{httptest.NewRecorder()}, path, time.Hour))
		require.Equal(t, http.ErrAbortHandler, download(httptest.NewRecorder(), path, 0), "it takes too long")
		whole := httptest.NewRecorder()
		require.Nil(t, download(whole, path, time.Hour))
		require.Equal(t, http.StatusOK, whole.Code)
		require.Contains(t, whole.Body.String(), `"handle":"ann"`)
		again := httptest.NewRecorder()
		require.Nil(t, download(again, path, time.Hour))
		require.Equal(t, http.StatusUnauthorized, again.Code)
	})
}

// downloads returns a function that downloads the file of a path from a process with the default limits. It
// returns the panic that aborts the download.
func downloads(t *testing.T, w *feedtest.World) func(to http.ResponseWriter, path string, within time.Duration) any {
	c, err := parse(t)
	require.NoError(t, err)
	p := &process{log: slog.New(slog.DiscardHandler)}
	p.limits, err = limit.New(w.Stores.Redis, c.limits(p.log))
	require.NoError(t, err)
	return func(to http.ResponseWriter, path string, within time.Duration) (aborted any) {
		defer func() { aborted = recover() }()
		p.serveExport(w.Login, w.Accounts, within)(to, httptest.NewRequest(http.MethodGet, path, nil))
		return nil
	}
}

// A user may have one download at a time, and a process four. One that ends makes room for others.
func TestDownloadsAtOnce(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.Idle(t, s, feedtest.Options{})
		download := downloads(t, w)
		var users []session.Viewer
		for _, handle := range []string{"ann", "bob", "cat", "dan", "eve"} {
			users = append(users, w.SignUp(handle, "correct horse"))
		}
		offer := func(v session.Viewer) string {
			path, _, err := w.Login.OfferExport(w.Ctx, v, "correct horse")
			require.NoError(w, err)
			return path
		}
		begin := func(v session.Viewer) (end func()) {
			reading, read, ended := make(chan struct{}), make(chan struct{}), make(chan any)
			to := slowWriter{httptest.NewRecorder(), sync.OnceFunc(func() { close(reading); <-read })}
			path := offer(v)
			go func() { ended <- download(to, path, time.Hour) }()
			<-reading
			return func() { close(read); require.Nil(w, <-ended) }
		}
		requireRefused := func(path string) {
			to := httptest.NewRecorder()
			require.Nil(w, download(to, path, time.Hour))
			require.Equal(w, http.StatusTooManyRequests, to.Code)
			require.Contains(w, to.Body.String(), `"code":"RATE_LIMITED"`)
			require.Equal(w, "30", to.Header().Get("Retry-After"))
		}
		requireSent := func(path string) {
			to := httptest.NewRecorder()
			require.Nil(w, download(to, path, time.Hour))
			require.Equal(w, http.StatusOK, to.Code)
		}
		end := begin(users[0])
		requireRefused(offer(users[0]))
		for _, v := range users[1:4] {
			defer begin(v)()
		}
		path := offer(users[4])
		requireRefused(path)
		end()
		requireSent(path)
		requireSent(offer(users[0]))
	})
}

// slowWriter is an answer to a client that waits before it reads.
type slowWriter struct {
	*httptest.ResponseRecorder
	wait func()
}

func (s slowWriter) Write(line []byte) (int, error) {
	s.wait()
	return s.ResponseRecorder.Write(line)
}

// Each line extends the write deadline of a download, but not beyond the end of the download.
func TestWriteDeadlineOfADownload(t *testing.T) {
	write := func(until time.Time) time.Time {
		to := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		_, err := patient{to, until}.Write(nil)
		require.NoError(t, err)
		return to.deadline
	}
	now := time.Now()
	require.Equal(t, now, write(now))
	require.True(t, write(now.Add(24*time.Hour)).Before(now.Add(24*time.Hour)))
}

// deadlineWriter records the deadline of the last write.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (d *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	d.deadline = deadline
	return nil
}

// brokenWriter is an answer to a client that has disconnected.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A client with made-up credentials is refused without a look-up, on the API and on the export path.
// Signed-in clients at the address are not affected.
func TestMadeUpCredentials(t *testing.T) {
	t.Setenv("APP_SECRET", appSecret)
	url, stop := start(t, Serve, "--rate-credentials=5", `--issuers=[{"issuer":"app","audience":"tideline","secret_env":"APP_SECRET"}]`)
	_, answer := servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token}}"}`)
	var signedUp struct {
		Data struct{ SignUp struct{ Token string } }
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &signedUp))
	ann := signedUp.Data.SignUp.Token

	wrong := []struct{ credential, reason string }{
		{"tk_1_" + strings.Repeat("A", 43), "KEY_INVALID"}, {"tk_1_abc", "KEY_INVALID"}, {"made-up", "SESSION_ENDED"}, {"a.b.c", "TOKEN_INVALID"},
	}
	for i := range 10 {
		status, answer := askFor(t, url, wrong[i%len(wrong)].credential, "", "{viewer{handle}}")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, answer, `"reason":"`+wrong[i%len(wrong)].reason+`"`)
	}
	require.Eventually(t, func() bool { // one attempt comes back every twelve seconds
		status, _ := askFor(t, url, wrong[0].credential, "", "{viewer{handle}}")
		return status == http.StatusTooManyRequests
	}, time.Minute, time.Millisecond)
	for _, w := range wrong {
		status, answer := askFor(t, url, w.credential, "", "{viewer{handle}}")
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Contains(t, answer, `"retryAfter":`)
	}
	status, answer := servertest.Ask(t, http.MethodGet, url+"/account/export?secret=made-up", "")
	require.Equal(t, http.StatusTooManyRequests, status, answer)
	require.Eventually(t, func() bool { // until the process has cached the session, or allows a look-up again
		status, _ := askFor(t, url, ann, "", "{viewer{handle}}")
		return status == http.StatusOK
	}, time.Minute, time.Millisecond)
	require.NoError(t, stop())
}
