package transport

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
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/server/limit"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// Different viewers make ten thousand identical queries concurrently. Each answer has only its own viewer's
// fields, although the server shares work between the queries.
func TestManyViewersSeeTheirOwn(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const viewers, atOnce = 100, 1000
		share := 1
		if s.Embedded { // SQLite is slow with many readers under the race detector
			share = 5
		}
		handler, tokens := feedHandler(t, s, viewers)
		for _, round := range []struct {
			queries     int
			query, want string
		}{
			{5_000, `{ viewer { handle } }`, `{"data":{"viewer":{"handle":"v%[1]d"}}}`},
			{500, `{ viewer { handle } timeline(first: 1) { nodes { text author { handle } } } }`,
				`{"data":{"viewer":{"handle":"v%[1]d"},"timeline":{"nodes":[{"text":"only v%[1]d","author":{"handle":"v%[1]d"}}]}}}`},
		} {
			var group errgroup.Group
			group.SetLimit(atOnce)
			for i := range round.queries / share {
				group.Go(func() error {
					viewer := i * 7 % viewers // consecutive queries have different viewers
					r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(`{"query":"`+round.query+`"}`))
					r.Header.Set("Content-Type", asJSON)
					r.Header.Set("Authorization", "Bearer "+tokens[viewer])
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if got := w.Body.String(); got != fmt.Sprintf(round.want, viewer) {
						return fmt.Errorf("v%d was answered %s", viewer, got)
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
		}
	})
}

// feedHandler serves the real API on the stores. There are that many users v0, v1, …, each
// signed in and with one private post.
func feedHandler(t *testing.T, s *storage.Stores, users int) (h *Handler, tokens []string) {
	w := feedtest.New(t, s, feedtest.Options{})
	engine, err := graph.New(graph.Backend{Sessions: w.Sessions, Accounts: w.Accounts, Login: w.Login, Directory: w.Directory, Feed: w.Feed, Conversations: w.Conversations, Home: w.Home, Streams: w.Streams}, graph.Config{})
	require.NoError(t, err)
	limits, err := limit.New(s.Redis, limit.Config{
		RateAccounts: 60_000, RateCredentials: 60_000, RateMutations: 60_000, RateCost: 10_000_000, RateKeyMutations: 60_000, RateKeyCost: 60_000_000, RateNewAccount: 60, MaxCost: 1 << 30,
		MaxSocketsPerUser: 1, MaxSocketsPerAddress: 1, MaxSubscriptionsPerUser: 1, MaxSubscriptionsPerAddress: 1,
	})
	require.NoError(t, err)
	h, err = New(t.Context(), Config{
		Engine: engine, Authenticate: w.Sessions.Authenticate, Watch: w.Sessions.Watch, Limits: limits,
		RequestTimeout: 5 * time.Minute, MaxBody: maxBody, MaxSockets: 1, PersistedCache: 8 << 20,
	})
	require.NoError(t, err)
	for i := range users {
		u, err := s.DB.User.Create().SetID(int64(i + 1)).SetHandle(fmt.Sprint("v", i)).SetName("V").SetPasswordHash("-").Save(t.Context())
		require.NoError(t, err)
		token := fmt.Sprint("token of ", i)
		hash := sha256.Sum256([]byte(token))
		require.NoError(t, s.DB.Session.Create().SetTokenHash(hash[:]).SetUserID(u.ID).SetExpiresAt(time.Now().Add(time.Hour).UTC()).Exec(t.Context()))
		private := schema.Private
		_, err = w.Feed.CreatePost(t.Context(), session.Viewer{ID: u.ID, Session: 1}, feed.Draft{Text: "only " + u.Handle, Visibility: &private})
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	return h, tokens
}
