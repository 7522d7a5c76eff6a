package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
)

const appSecret = "a secret of the app, 32 bytes or more"

func appToken(t *testing.T, user string, issued time.Time) string {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "app", "aud": "tideline", "sub": user, "preferred_username": user, "iat": issued.Unix(), "exp": issued.Add(time.Hour).Unix(),
	}).SignedString([]byte(appSecret))
	require.NoError(t, err)
	return token
}

// An app's users sign in with its tokens, over HTTP and on sockets, and a sign-out ends that. Disabled
// mutations are refused with a code, and the app is not served.
func TestUsersOfAnApp(t *testing.T) {
	t.Setenv("APP_SECRET", appSecret)
	url, stop := start(t, Serve, "--own-accounts=off", "--app=off",
		`--issuers=[{"issuer": "app", "audience": "tideline", "secret_env": "APP_SECRET"}]`)
	now := time.Now().Add(-time.Minute)
	ann := appToken(t, "ann", now)
	_, answer := askFor(t, url, ann, "", "{viewer{handle externalId}}")
	require.JSONEq(t, `{"data":{"viewer":{"handle":"ann","externalId":"ann"}}}`, answer)
	_, answer = askFor(t, url, appToken(t, "bob", now), "", `{user(handle:\"ann\"){name externalId} userByExternalId(externalId:\"ann\"){id} me:userByExternalId(externalId:\"bob\"){handle}}`)
	require.JSONEq(t, `{"data":{"user":{"name":"ann","externalId":null},"userByExternalId":null,"me":{"handle":"bob"}}}`, answer)
	status, _ := askFor(t, url, ann[:len(ann)-4]+"AAAA", "", "{viewer{handle}}")
	require.Equal(t, http.StatusUnauthorized, status)

	for _, mutation := range []string{
		`mutation{signUp(input:{handle:\"cat\",password:\"correct horse\"}){token}}`, `mutation{logIn(input:{handle:\"ann\",password:\"correct horse\"}){token}}`,
	} {
		_, answer := servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"`+mutation+`"}`)
		require.Contains(t, answer, `"code":"FORBIDDEN"`)
	}
	for path, want := range map[string]int{"/": 404, "/people": 404, "/favicon.svg": 404, "/graphiql": 200, "/livez": 200} {
		status, _ := servertest.Ask(t, http.MethodGet, url+path, "")
		require.Equal(t, want, status, path)
	}

	p := servertest.Dial(t, nil, url+"/graphql", servertest.Modern)
	p.Send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + ann + `"}}`)
	p.Expect(`{"type":"connection_ack"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{timelineEvents{__typename}}"}}`)
	_, answer = askFor(t, url, appToken(t, "ann", now.Add(time.Second)), "", "mutation{logOut}")
	require.JSONEq(t, `{"data":{"logOut":true}}`, answer)
	p.ExpectClose(4403)
	status, _ = askFor(t, url, ann, "", "{viewer{handle}}")
	require.Equal(t, http.StatusUnauthorized, status)
	require.NoError(t, stop())
}

// /readyz names an issuer that cannot be reached, and the process is ready all the same.
func TestIssuerThatIsAway(t *testing.T) {
	issuer := httptest.NewServer(http.NotFoundHandler())
	defer issuer.Close()
	url, stop := start(t, Serve, `--issuers=[{"issuer": "`+issuer.URL+`", "audience": "tideline", "discovery": true}]`)
	require.Eventually(t, func() bool {
		status, answer := servertest.Ask(t, http.MethodGet, url+"/readyz", "")
		return status == http.StatusOK && strings.Contains(answer, `"issuers":"degraded"`)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, stop())
}

func TestInvalidIssuers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "issuers.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"issuer": "a"}, {"issuer": "b", "audience": "t", "secret_env": "NO_SUCH"}]`), 0o600))
	_, err := parse(t, "--issuers="+file)
	for _, want := range []string{"--issuers (TIDELINE_ISSUERS) is not valid: issuer \"a\": audience", "exactly one of", "issuer \"b\": the variable NO_SUCH"} {
		require.ErrorContains(t, err, want)
	}
	_, err = parse(t, "--issuers=/no/such/file")
	require.ErrorContains(t, err, "TIDELINE_ISSUERS")
	require.Regexp(t, regexp.MustCompile(`no such file`), err.Error())
}

// The command ends a user's sessions without a running server.
func TestSignOutByCommand(t *testing.T) {
	c, err := parse(t, "--data-dir="+t.TempDir(), "--log-level=warn")
	require.NoError(t, err)
	b := open(t, c, CreateAll)
	_, err = b.Directory.User(t.Context(), "nobody")
	require.Error(t, err)
	_, err = b.Sessions.SignOut(t.Context(), 1)
	require.Error(t, err)
}
