package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
)

// The path of an export is good for one download.
func TestExportIsDownloadedOnce(t *testing.T) {
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

	status, file := servertest.Ask(t, http.MethodGet, url+path, "")
	require.Equal(t, http.StatusOK, status)
	first, _, _ := strings.Cut(file, "\n")
	require.Contains(t, first, `"handle":"ann"`)
	for _, path := range []string{path, "/account/export"} {
		status, _ = servertest.Ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.NoError(t, stop())
}
