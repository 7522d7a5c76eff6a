package server

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
	"tideline/storage"
)

// A process that cannot write its row to SQL still serves and works, logs the failure, and stops in order.
func TestProcessServesWithoutItsRow(t *testing.T) {
	dir := t.TempDir()
	stores, err := storage.Open(t.Context(), storage.Config{DataDir: dir}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, stores.Migrate(t.Context()))
	_, err = stores.SQL.ExecContext(t.Context(), "ALTER TABLE processes RENAME TO away")
	require.NoError(t, err)
	require.NoError(t, stores.Close())

	url, stop, log := startLogged(t, Serve, "--data-dir="+dir)
	require.Eventually(t, func() bool {
		status, _ := servertest.Ask(t, http.MethodGet, url+"/readyz", "")
		return status == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	_, body := servertest.Ask(t, http.MethodPost, url+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){user{handle}}}"}`)
	require.Contains(t, body, `"handle":"ann"`)
	_, metrics := servertest.Ask(t, http.MethodGet, url+"/metrics", "")
	require.Contains(t, metrics, "\ntideline_worker_paused 0\n")
	require.Contains(t, metrics, "\ntideline_worker_jobs ")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "others do not hear of this process") }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, stop())
	require.True(t, strings.Contains(log.String(), "this process will be shown as gone"))
}
