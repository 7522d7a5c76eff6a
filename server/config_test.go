package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"tideline/feed"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/server/transport"
	"tideline/storage"
	"tideline/timeline"
	"tideline/workers"
)

// parse parses arguments as the command line does.
func parse(t *testing.T, args ...string) (Config, error) {
	var c Config
	parser, err := kong.New(&c, kong.DefaultEnvars(EnvPrefix), kong.Vars(Vars()), kong.Exit(func(int) {}))
	require.NoError(t, err)
	_, err = parser.Parse(args)
	if err != nil {
		return c, err
	}
	return c, c.Validate()
}

func TestDefaultsAreValid(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8080", c.Addr)
	require.Equal(t, 72*time.Hour, c.ActiveFor)
	require.True(t, c.graphiql())
}

// The defaults of the settings equal the defaults of the packages that have their own.
func TestDefaultsAreThoseOfThePackages(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	requests := exec.DefaultLimits
	requests.PageSize, requests.CacheBytes = 0, 0 // these are not settings
	require.Equal(t, requests, c.requestLimits())
	require.Equal(t, timeline.DefaultInboxCap, c.InboxCap)
	require.Equal(t, timeline.DefaultOutboxCap, c.OutboxCap)
	require.Equal(t, timeline.DefaultActiveFor, c.ActiveFor)
	require.Equal(t, home.DefaultPullAbove, c.PullAbove)
	require.Equal(t, ranking.DefaultDecay, c.RankDecay)
	require.Equal(t, session.DefaultTTL, c.SessionTTL)
	require.Equal(t, feed.DefaultMaxText, c.MaxText)
	require.Equal(t, paging.DefaultMaxSize, c.MaxPage)
	require.Equal(t, workers.DefaultPageSize, c.FanOutPage)
	require.Equal(t, workers.DefaultPartSize, c.FanOutPart)
	require.Equal(t, feed.DefaultLargeAudience, c.LargeAudience)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("TIDELINE_ADDR", ":9")
	t.Setenv("TIDELINE_DATABASE_URL", "postgres://h/d")
	t.Setenv("TIDELINE_ALLOWED_ORIGINS", "https://a.example,http://b.example:81")
	t.Setenv("TIDELINE_RATE_LIMIT", "off")
	t.Setenv("TIDELINE_PRODUCTION", "true")
	t.Setenv("TIDELINE_SESSION_TTL", "1h")
	c, err := parse(t, "--addr=:10")
	require.NoError(t, err)
	require.Equal(t, ":10", c.Addr, "the flag wins")
	require.Equal(t, "postgres://h/d", c.DatabaseURL)
	require.Equal(t, []string{"https://a.example", "http://b.example:81"}, c.AllowedOrigins)
	require.Equal(t, "off", c.RateLimit)
	require.Equal(t, time.Hour, c.SessionTTL)
	require.False(t, c.graphiql())
}

func TestInvalidSettings(t *testing.T) {
	for arg, wants := range map[string][]string{
		"--addr=8080":     {"--addr (TIDELINE_ADDR)", `"8080"`, "host:port"},
		"--addr=:99999":   {"--addr", "host:port"},
		"--admin-addr=x":  {"--admin-addr (TIDELINE_ADMIN_ADDR)", "host:port"},
		"--worker-addr=x": {"--worker-addr (TIDELINE_WORKER_ADDR)", "host:port"},
		"--allowed-origins=https://a.example/path": {"--allowed-origins (TIDELINE_ALLOWED_ORIGINS)", "without a path"},
		"--allowed-origins=a.example":              {"--allowed-origins", "https://app.example.com"},
		"--avatar-hosts=https://a.example":         {"--avatar-hosts (TIDELINE_AVATAR_HOSTS)", "*.example.org"},
		"--inbox-cap=299":                          {"--inbox-cap (TIDELINE_INBOX_CAP) is 299", "300 to 1000"},
		"--outbox-cap=10001":                       {"--outbox-cap", "100 to 10000"},
		"--active-for=1s":                          {"--active-for", "1m0s to 8760h0m0s"},
		"--rank-decay=-1h":                         {"--rank-decay (TIDELINE_RANK_DECAY) is -1h0m0s", "1m0s to 8760h0m0s"},
		`--rankings={"a":"liks"}`:                  {`--rankings (TIDELINE_RANKINGS) is not valid: ranking "a": at character 1: "liks" is no signal`},
		`--rankings={"a":"likes >"}`:               {"at character 7: unexpected token EOF"},
		`--rankings={"hot":"likes"}`:               {"--rank-decay (TIDELINE_RANK_DECAY) changes it"},
		"--rankings=no-such-file":                  {"--rankings (TIDELINE_RANKINGS) is not valid: it must be a JSON object"},
		"--session-ttl=-1h":                        {"--session-ttl (TIDELINE_SESSION_TTL)", "1m0s"},
		"--small-workers=0":                        {"--small-workers", "1 to 1024"},
		"--large-workers=1025":                     {"--large-workers", "1 to 1024"},
		"--fan-out-page=99":                        {"--fan-out-page (TIDELINE_FAN_OUT_PAGE) is 99", "100 to 30000"},
		"--fan-out-part=999":                       {"--fan-out-part (TIDELINE_FAN_OUT_PART) is 999", "1000 to 1000000000"},
		"--large-audience=0":                       {"--large-audience (TIDELINE_LARGE_AUDIENCE)", "1 to 1000000000"},
		"--request-timeout=1ms":                    {"--request-timeout", "100ms to 5m0s"},
		"--shutdown-grace=0s":                      {"--shutdown-grace", "1s to 10m0s"},
		"--max-sockets=0":                          {"--max-sockets", "1 to 1000000"},
		"--max-sockets-per-user=0":                 {"--max-sockets-per-user (TIDELINE_MAX_SOCKETS_PER_USER)", "1 to 1000000"},
		"--max-sockets-per-address=0":              {"--max-sockets-per-address", "1 to 1000000"},
		"--max-subscriptions-per-user=0":           {"--max-subscriptions-per-user", "1 to 1000000"},
		"--max-subscriptions-per-address=0":        {"--max-subscriptions-per-address", "1 to 1000000"},
		"--max-body=1023":                          {"--max-body (TIDELINE_MAX_BODY)", "1024 to 67108864"},
		"--max-document=1":                         {"--max-document", "256 to 1048576"},
		"--max-tokens=9":                           {"--max-tokens", "10 to 100000"},
		"--max-depth=0":                            {"--max-depth", "1 to 100"},
		"--max-aliases=0":                          {"--max-aliases", "1 to 1000"},
		"--max-directives=1001":                    {"--max-directives", "1 to 1000"},
		"--max-cost=99":                            {"--max-cost", "100 to 1000000"},
		"--max-text=50001":                         {"--max-text (TIDELINE_MAX_TEXT) is 50001", "1 to 50000"},
		"--max-page=19":                            {"--max-page (TIDELINE_MAX_PAGE) is 19", "20 to 1000"},
		"--max-errors=0":                           {"--max-errors", "1 to 1000"},
		"--persisted-cache=-1":                     {"--persisted-cache", "0 to 1073741824"},
		"--rate-accounts=0":                        {"--rate-accounts", "1 to 60000"},
		"--rate-mutations=0":                       {"--rate-mutations", "1 to 60000"},
		"--rate-cost=1":                            {"--rate-cost", "1000 to 10000000"},
		"--trusted-proxies=10.0.0.0/33":            {"--trusted-proxies (TIDELINE_TRUSTED_PROXIES)", "such as 10.0.0.0/8"},
		"--proxy-header=x-real-ip":                 {"--proxy-header", "x-forwarded-for"},
		"--tls-cert=cert.pem":                      {"--tls-cert (TIDELINE_TLS_CERT)", "together with --tls-key"},
		"--tls-key=key.pem":                        {"--tls-key (TIDELINE_TLS_KEY)"},
		"--log-format=xml":                         {"--log-format", `"text","json"`},
		"--traces-endpoint=collector:4318":         {"--traces-endpoint (TIDELINE_TRACES_ENDPOINT)", "http://127.0.0.1:4318"},
		"--traces-share=1.5":                       {"--traces-share (TIDELINE_TRACES_SHARE) is 1.5", "0 to 1"},
		"--log-level=loud":                         {"--log-level", "debug"},
		"--rate-limit=maybe":                       {"--rate-limit", `"on","off"`},
		"--graphiql=maybe":                         {"--graphiql", `"on","off"`},
		"--inbox-cap=many":                         {"--inbox-cap", "many"},
		"--database-url=mysql://h/d":               {"database URL", "postgres://"},
		"--redis-url=http://h":                     {"Redis URL", "redis://"},
		"--data-dir=":                              {"data directory", "must be set"},
		"--no-such-flag":                           {"--no-such-flag"},
	} {
		t.Run(arg, func(t *testing.T) {
			_, err := parse(t, arg)
			require.Error(t, err)
			for _, want := range wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// Every setting with a range accepts both bounds and nothing beyond. Its error and its help name the
// bounds. Every switch names its values.
func TestEverySettingIsValidated(t *testing.T) {
	parser, err := kong.New(&Config{}, kong.DefaultEnvars(EnvPrefix), kong.Vars(Vars()))
	require.NoError(t, err)
	ranges := regexp.MustCompile(`it must be (\S+) to (\S+)`)
	for _, flag := range parser.Model.Flags {
		if flag.Name == "help" {
			continue
		}
		require.Equal(t, []string{"TIDELINE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))}, flag.Envs)
		set := "--" + flag.Name + "="
		switch kind := flag.Target.Interface().(type) {
		case int, time.Duration:
			far := "2000000000"
			if _, isTime := kind.(time.Duration); isTime {
				far = "99999h"
			}
			_, err := parse(t, set+far)
			require.Error(t, err, flag.Name)
			require.ErrorContains(t, err, "--"+flag.Name+" ("+flag.Envs[0]+") is ")
			bounds := ranges.FindStringSubmatch(err.Error())
			require.NotNil(t, bounds, err)
			for _, bound := range bounds[1:] {
				_, err := parse(t, set+bound)
				require.NoError(t, err)
			}
			if _, isTime := kind.(time.Duration); !isTime {
				least, err := strconv.Atoi(bounds[1])
				require.NoError(t, err)
				most, err := strconv.Atoi(bounds[2])
				require.NoError(t, err)
				for _, beyond := range []int{least - 1, most + 1} {
					_, err := parse(t, set+strconv.Itoa(beyond))
					require.ErrorContains(t, err, "it must be "+bounds[1]+" to "+bounds[2])
				}
				require.Contains(t, flag.Help, bounds[1]+" to "+bounds[2])
			}
		case bool:
			_, err := parse(t, set+"maybe")
			require.ErrorContains(t, err, "true, 1, yes, false, 0 or no")
		case string:
			if flag.Enum != "" {
				_, err := parse(t, set+"maybe")
				for position := range strings.SplitSeq(flag.Enum, ",") {
					require.ErrorContains(t, err, `"`+position+`"`)
					require.Contains(t, flag.Help, position)
				}
			}
		}
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	_, err := parse(t, "--inbox-cap=1", "--outbox-cap=1", "--max-text=0", "--max-page=1001")
	require.ErrorContains(t, err, "--inbox-cap")
	require.ErrorContains(t, err, "--outbox-cap")
	require.ErrorContains(t, err, "--max-text")
	require.ErrorContains(t, err, "--max-page")
}

func TestCheckEnv(t *testing.T) {
	known := []string{"TIDELINE_ADDR", "TIDELINE_DATABASE_URL", "TIDELINE_REDIS_URL"}
	require.NoError(t, CheckEnv([]string{
		"HOME=/", "TIDELINE=1", "TIDELINE_ADDR=:1",
		"TIDELINE_PORT=tcp://10.0.0.1:80", "TIDELINE_SERVICE_HOST=10.0.0.1", "TIDELINE_SERVICE_PORT_HTTP=80",
		"TIDELINE_PORT_80_TCP_ADDR=10.0.0.1", "TIDELINE_POSTGRES_SERVICE_HOST=10.0.0.2",
	}, known))
	err := CheckEnv([]string{"TIDELINE_DATABSE_URL=x", "TIDELINE_SOMETHING_ELSE=x"}, known)
	require.ErrorContains(t, err, "TIDELINE_DATABSE_URL is no setting; did you mean TIDELINE_DATABASE_URL?")
	require.ErrorContains(t, err, "TIDELINE_SOMETHING_ELSE is no setting; see tideline --help")
	require.NotContains(t, err.Error(), "=x", "a value may be a secret")
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	failure := error(nil)
	logged := &bytes.Buffer{}
	m := newMetrics()
	asked := 0
	h := &health{log: slog.New(slog.NewTextHandler(logged, nil)), observe: m.Checked, checks: []check{
		{name: "sql", ask: func(context.Context) error { return nil }},
		{name: "redis", ask: func(context.Context) error { asked++; return failure }},
	}}
	called := func() (int, string) {
		w := httptest.NewRecorder()
		h.ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	ask := func() (int, string) {
		h.ask(t.Context())
		return called()
	}
	scraped := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	status, body := called()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"checks":{"process":"unknown"}}`, body, "before the first round")
	status, body = ask()
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready":true,"checks":{"sql":"ok","redis":"ok"}}`, body)
	require.Empty(t, logged.String())
	for range 100 {
		_, _ = called()
	}
	require.Equal(t, 1, asked, "a call asks no part")
	h.asked = h.asked.Add(-staleAfter - time.Second)
	status, body = called()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"checks":{"sql":"ok","redis":"ok","process":"unknown"}}`, body)

	failure = fmt.Errorf("%w: one of three", storage.ErrSomeAnswer)
	status, body = ask()
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready":true,"checks":{"sql":"ok","redis":"degraded"}}`, body)
	require.Contains(t, logged.String(), `msg=degraded check=redis error="some masters of the Redis Cluster do not answer: one of three"`)
	require.Contains(t, scraped(), `tideline_check{check="redis",state="degraded"} 1`)

	failure = nil
	_, _ = ask()
	failure = fmt.Errorf("%w: OOM", storage.ErrNoWrites)
	status, body = ask()
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready":true,"checks":{"sql":"ok","redis":"degraded"}}`, body)

	logged.Reset()
	failure = errors.New("secret")
	for range 2 {
		status, body = ask()
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.JSONEq(t, `{"ready":false,"checks":{"sql":"ok","redis":"failed"}}`, body)
	}
	require.Equal(t, 1, strings.Count(logged.String(), `msg="not ready" check=redis error=secret`), "%s", logged)
	require.Contains(t, scraped(), `tideline_check{check="redis",state="failed"} 1`)
	require.Contains(t, scraped(), `tideline_check{check="redis",state="degraded"} 0`)

	failure = nil
	h.stopping.Store(true)
	status, body = ask()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"checks":{"sql":"ok","redis":"ok","process":"stopping"}}`, body)
	require.Contains(t, logged.String(), `msg="well again" check=redis was=failed for=`)
	require.Contains(t, scraped(), `tideline_check{check="redis",state="ok"} 1`)
}

// A server that loses Redis still serves, and /readyz says what that means. A server that has
// never reached Redis is not ready.
func TestReadinessWithoutASparePart(t *testing.T) {
	t.Parallel()
	failure := errors.New("secret")
	logged := &bytes.Buffer{}
	h := &health{log: slog.New(slog.NewTextHandler(logged, nil)), observe: newMetrics().Checked, checks: []check{
		{name: "redis", spare: true, means: "pages are slower", ask: func(context.Context) error { return failure }},
	}}
	ask := func() (int, string) {
		h.ask(t.Context())
		w := httptest.NewRecorder()
		h.ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	status, body := ask()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"checks":{"redis":"failed"},"means":{"redis":"pages are slower"}}`, body)
	failure = nil
	status, body = ask()
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready":true,"checks":{"redis":"ok"}}`, body)
	failure = errors.New("secret")
	status, body = ask()
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready":true,"checks":{"redis":"degraded"},"means":{"redis":"pages are slower"}}`, body)
	require.Contains(t, logged.String(), `msg=degraded check=redis error=secret means="pages are slower"`)
}

// A number without a unit is ambiguous, so durations in JSON are seconds and their keys say so.
func TestDurationsInTheLogHaveTheirUnit(t *testing.T) {
	var out strings.Builder
	log, err := newLogger(&out, "json", "info")
	require.NoError(t, err)
	log.With("since", time.Minute).Info("hello", "duration", 1500*time.Millisecond, slog.Group("lag", "first", time.Second))
	require.Contains(t, out.String(), `"since_seconds":60,"duration_seconds":1.5,"lag":{"first_seconds":1}}`)

	out.Reset()
	log, err = newLogger(&out, "text", "info")
	require.NoError(t, err)
	log.Info("hello", "duration", 1500*time.Millisecond)
	require.Contains(t, out.String(), "duration=1.5s")
}

func TestLogCarriesTheRequest(t *testing.T) {
	var out strings.Builder
	log, err := newLogger(&out, "json", "info")
	require.NoError(t, err)
	log.With("a", 1).InfoContext(transport.WithRequestID(t.Context(), "r1"), "hello")
	log.DebugContext(t.Context(), "hidden")
	var record map[string]any
	require.NoError(t, json.Unmarshal([]byte(out.String()), &record))
	require.Equal(t, "r1", record["request"])
	require.Equal(t, "hello", record["msg"])
}
