package webhook_test

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/webhook"
	"tideline/storage/storagetest"
)

// The receiver in docs/webhooks.md accepts each event once, and only with a fresh signature.
func TestReceiverOfTheDocs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no node here")
	}
	page, err := os.ReadFile("../../docs/webhooks.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?ms)^```js\n(.*?)^```").FindSubmatch(page)
	require.NotNil(t, program)
	require.LessOrEqual(t, strings.Count(string(program[1]), "\n"), 25)
	file := filepath.Join(t.TempDir(), "receiver.mjs")
	require.NoError(t, os.WriteFile(file, program[1], 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, port, _ := net.SplitHostPort(address)

	w := feedtest.New(t, storagetest.Embedded(t), feedtest.Options{})
	outbox := webhook.NewOutbox(w.Stores.DB, nil, nil)
	w = feedtest.New(t, w.Stores, feedtest.Options{Webhooks: outbox})
	d := deliverer(w, webhook.Config{Reach: local})
	e, secret, err := d.Add(t.Context(), "http://"+address, nil)
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), "node", file)
	cmd.Env = append(os.Environ(), "PORT="+port, "WEBHOOK_SECRET="+secret)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)

	send := func(secret, id string, at time.Time) int {
		body := `{"type":"webhook.test"}`
		signature, err := webhook.SignWith(secret, id, at, []byte(body))
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Webhook-Id", id)
		r.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		r.Header.Set("Webhook-Signature", "v1,AAAA "+signature)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	now := time.Now()
	require.Equal(t, http.StatusUnauthorized, send("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "msg_1", now))
	require.Equal(t, http.StatusUnauthorized, send(secret, "msg_1", now.Add(-time.Hour)))
	for range 2 {
		require.Equal(t, http.StatusNoContent, send(secret, "msg_1", now))
	}
	w.Post(w.User("ada"), schema.Public)
	require.NoError(t, d.Round(t.Context()))
	d.Wait()
	require.Equal(t, "DELIVERED", deliveries(w, d, e.ID)[0].State)
	lines := bufio.NewScanner(out)
	for _, want := range []string{`{"type":"webhook.test"}`, `{"type":"post.created","version":1,`} {
		require.True(t, lines.Scan())
		require.True(t, strings.HasPrefix(lines.Text(), want), lines.Text())
	}
}
