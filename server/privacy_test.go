package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/graph"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// Ten thousand identical queries at once by different viewers: each is answered
// with its own viewer's fields and nobody else's, whatever the server shares
// between them.
func TestManyViewersSeeTheirOwn(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const viewers, atOnce = 100, 2000
		share := 1
		if s.Embedded { // SQLite takes its time with many readers under the race detector
			share = 5
		}
		handler, tokens := feedHandler(t, s, viewers)
		for _, round := range []struct {
			queries     int
			query, want string
		}{
			{10_000, `{ viewer { handle } }`, `{"data":{"viewer":{"handle":"v%[1]d"}}}`},
			{1_000, `{ viewer { handle } timeline(first: 1) { nodes { text author { handle } } } }`,
				`{"data":{"viewer":{"handle":"v%[1]d"},"timeline":{"nodes":[{"text":"only v%[1]d","author":{"handle":"v%[1]d"}}]}}}`},
		} {
			var group errgroup.Group
			group.SetLimit(atOnce)
			for i := range round.queries / share {
				group.Go(func() error {
					who := i * 7 % viewers // neighbours in time differ
					r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(`{"query":"`+round.query+`"}`))
					r.Header.Set("Content-Type", asJSON)
					r.Header.Set("Authorization", "Bearer "+tokens[who])
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if got := w.Body.String(); got != fmt.Sprintf(round.want, who) {
						return fmt.Errorf("v%d was answered %s", who, got)
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
		}
	})
}

// feedHandler serves the real API on the stores, to so many users v0, v1, …,
// each signed in and with one private post.
func feedHandler(t *testing.T, s *storage.Stores, users int) (h *graphqlHandler, tokens []string) {
	w := feedtest.New(t, s, feedtest.Options{})
	engine, err := graph.New(graph.Backend{Accounts: w.Accounts, Directory: w.Directory, Feed: w.Feed, Home: w.Home, Streams: w.Streams}, graph.Config{})
	require.NoError(t, err)
	c, err := parse(t, "--request-timeout=5m")
	require.NoError(t, err)
	h = &graphqlHandler{api: &api{
		engine: engine, authenticate: w.Sessions.Authenticate, metrics: newMetrics(), log: noLog(), timeout: c.RequestTimeout,
		maxBody: maxBody, documents: newDocuments(c.PersistedCache), limiter: newLimiter(s.Redis, noLog(), rates{
			accounts: rate{1 << 20, 1 << 20}, mutations: rate{1 << 20, 1 << 20}, cost: rate{1 << 30, 1 << 20},
		}),
	}}
	for i := range users {
		u, err := s.DB.User.Create().SetID(int64(i + 1)).SetHandle(fmt.Sprint("v", i)).SetName("V").SetPasswordHash("-").Save(t.Context())
		require.NoError(t, err)
		token := fmt.Sprint("token of ", i)
		hash := sha256.Sum256([]byte(token))
		require.NoError(t, s.DB.Session.Create().SetTokenHash(hash[:]).SetUserID(u.ID).SetExpiresAt(time.Now().Add(time.Hour).UTC()).Exec(t.Context()))
		private := schema.Private
		_, err = w.Feed.CreatePost(t.Context(), account.Viewer{ID: u.ID, Session: 1}, feed.Draft{Text: "only " + u.Handle, Visibility: &private})
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	return h, tokens
}
