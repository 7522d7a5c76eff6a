package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An account deleted while Tideline is down gets no more tokens. It is deleted at Tideline,
// and then in the app, as soon as Tideline is back.
func TestDeletionWaitsForTideline(t *testing.T) {
	t.Parallel()
	away, told := true, ""
	tidelineServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		body, _ := io.ReadAll(r.Body)
		told += r.Header.Get("Authorization") + string(body)
		_, _ = w.Write([]byte(`{"data": {"deleteUsers": [{"status": "DELETED"}]}}`))
	}))
	defer tidelineServer.Close()
	table, err := openUsers(t.Context(), filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	defer table.db.Close()
	a := app{table, tideline{url: tidelineServer.URL, key: "tk_1", secret: []byte("secret")}}
	server := httptest.NewServer(a.handler())
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := http.Client{Jar: jar}
	post := func(path, body string) (status int, answer map[string]any) {
		response, err := client.Post(server.URL+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		_ = json.NewDecoder(response.Body).Decode(&answer)
		return response.StatusCode, answer
	}

	status, _ := post("/sign-in", `{"name": " Ada  Lovelace "}`)
	require.Equal(t, http.StatusNoContent, status)
	status, answer := post("/token", "")
	require.Equal(t, http.StatusOK, status)
	require.NotEmpty(t, answer["token"])
	status, _ = post("/delete-account", "")
	require.Equal(t, http.StatusNoContent, status)

	status, _ = post("/token", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = post("/sign-in", `{"name": "ada lovelace"}`)
	require.Equal(t, http.StatusConflict, status)
	ids, err := table.markedForDeletion(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 1)

	away = false
	require.NoError(t, a.finishDeletions(t.Context()))
	require.Contains(t, told, "Bearer tk_1")
	require.Contains(t, told, ids[0])
	status, _ = post("/sign-in", `{"name": "Ada Lovelace"}`)
	require.Equal(t, http.StatusNoContent, status)
	require.NoError(t, a.finishDeletions(t.Context()))
	status, _ = post("/token", "")
	require.Equal(t, http.StatusOK, status)
	status, _ = post("/sign-in", `{"name": "`+strings.Repeat("a", 31)+`"}`)
	require.Equal(t, http.StatusBadRequest, status)
}

// A deletion that Tideline refuses does not hold up the others.
func TestRefusedDeletionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data": {"deleteUsers": [{"status": "REFUSED", "message": "no"}, {"status": "DELETED"}]}}`))
	}))
	defer server.Close()
	table, err := openUsers(t.Context(), filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	defer table.db.Close()
	for _, name := range []string{"ada", "ben"} {
		session, err := table.signIn(t.Context(), name)
		require.NoError(t, err)
		u, err := table.signedIn(t.Context(), session)
		require.NoError(t, err)
		require.NoError(t, table.markForDeletion(t.Context(), u.id))
	}
	before, err := table.markedForDeletion(t.Context())
	require.NoError(t, err)
	require.Len(t, before, 2)
	a := app{table, tideline{url: server.URL}}
	require.ErrorContains(t, a.finishDeletions(t.Context()), before[0]+": no")
	after, err := table.markedForDeletion(t.Context())
	require.NoError(t, err)
	require.Equal(t, before[:1], after)
}
