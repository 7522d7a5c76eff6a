package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/ent/auditentry"
	entjob "tideline/ent/job"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/apikey"
	"tideline/feed/feedtest"
	"tideline/feed/job"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/graph"
	"tideline/internal/fleet"
	"tideline/server/admin"
	"tideline/server/limit"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m, func() error { return goleak.Find() }) }

const password = "correct horse"

// desk is an admin page on a test fixture, with its users.
type desk struct {
	*feedtest.World
	url    string
	looked *atomic.Int64 // snapshots made so far
	root   session.Viewer
	token  map[string]string // by handle: root is an admin, mod a moderator
}

func open(w *feedtest.World, change func(*admin.Config)) *desk {
	d := &desk{World: w, looked: &atomic.Int64{}, token: map[string]string{}}
	for _, who := range []struct {
		handle string
		role   user.Role
	}{{"root", user.RoleADMIN}, {"mod", user.RoleMODERATOR}, {"ann", user.RoleUSER}} {
		auth, err := w.Login.SignUp(w.Ctx, who.handle, password, "")
		require.NoError(w, err)
		_, err = w.Moderation.SetRole(w.Ctx, moderation.Console, auth.User.ID, who.role, "")
		require.NoError(w, err)
		d.token[who.handle] = auth.Token
		if who.handle == "root" {
			d.root.ID = auth.User.ID
		}
	}
	registry := prometheus.NewRegistry()
	sockets := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tideline_sockets"})
	sockets.Set(7)
	registry.MustRegister(sockets)
	c := admin.Config{
		Sessions: w.Sessions, Login: w.Login, Directory: w.Directory, Moderation: w.Moderation, Audit: w.Audit, Fleet: fleet.New(w.Stores.DB, time.Now), Queue: w.Queue,
		Stores: w.Stores, Limits: &limit.Limits{}, Metrics: registry, Process: 1, Version: "v0", PostID: graph.PostID,
		Webhooks: func(context.Context) (webhook.Stats, error) { return webhook.Stats{Pending: 3}, nil },
		Ready: func() map[string]string {
			d.looked.Add(1)
			return map[string]string{"sql": "ok"}
		},
	}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	mux := http.NewServeMux()
	admin.New(ctx, c).Register(mux)
	server := httptest.NewServer(mux)
	w.Cleanup(server.Close)
	w.Cleanup(cancel) // ends the streams
	d.url = server.URL
	return d
}

// reply is an answer. Its body is closed when the test ends.
type reply struct {
	status int
	header http.Header
	body   io.Reader
}

// send sends a request with a token.
func (d *desk) send(method, path, token, body string) reply {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Ctx, method, d.url+path, strings.NewReader(body))
	require.NoError(d, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(d, err)
	d.Cleanup(func() { response.Body.Close() })
	return reply{response.StatusCode, response.Header, response.Body}
}

// ask sends a request and returns its status and decoded answer.
func (d *desk) ask(method, path, token, body string) (status int, answer map[string]any) {
	d.Helper()
	response := d.send(method, path, token, body)
	text, err := io.ReadAll(response.body)
	require.NoError(d, err)
	require.NoError(d, json.Unmarshal(text, &answer), string(text))
	require.Equal(d, "no-store", response.header.Get("Cache-Control"))
	return response.status, answer
}

// does is ask as the admin root; the request must succeed.
func (d *desk) does(method, path, body string) map[string]any {
	d.Helper()
	status, answer := d.ask(method, path, d.token["root"], body)
	require.Equal(d, http.StatusOK, status, answer)
	return answer
}

func (d *desk) refused(status int, code, method, path, token, body string) {
	d.Helper()
	got, answer := d.ask(method, path, token, body)
	require.Equal(d, status, got, "%s %s: %v", method, path, answer)
	require.Equal(d, code, answer["error"].(map[string]any)["code"], "%s %s", method, path)
	require.NotEmpty(d, answer["error"].(map[string]any)["message"])
}

// Every path refuses everyone except admins, for every request.
func TestNobodyElseIsAnswered(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), nil)
	_, key, err := d.Keys.Create(d.Ctx, nil, "robot", "", []apikey.Scope{apikey.Write})
	require.NoError(t, err)
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/api/session", ""}, {"DELETE", "/api/session", ""}, {"GET", "/api/snapshot", ""}, {"GET", "/api/stream", ""},
		{"GET", "/api/post?id=1", ""}, {"GET", "/api/timeline?user=ann", ""}, {"POST", "/api/jobs/retry", `{"all":true}`}, {"POST", "/api/jobs/discard", `{"ids":[1]}`},
		{"POST", "/api/timelines/rebuild", `{"user":"ann"}`}, {"POST", "/api/workers", `{"id":1,"wanted":"pause"}`},
	} {
		d.refused(401, "UNAUTHENTICATED", call.method, call.path, "", call.body)
		d.refused(401, "UNAUTHENTICATED", call.method, call.path, "made-up", call.body)
		d.refused(403, "FORBIDDEN", call.method, call.path, d.token["ann"], call.body)
		d.refused(403, "FORBIDDEN", call.method, call.path, d.token["mod"], call.body)
		d.refused(403, "FORBIDDEN", call.method, call.path, key, call.body)
	}
	d.refused(404, "NOT_FOUND", "GET", "/api/nothing", "", "")
	require.Zero(t, d.looked.Load(), "a snapshot was made for nobody")

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/api/snapshot", nil)
	require.NoError(t, err)
	r.AddCookie(&http.Cookie{Name: "token", Value: d.token["root"]})
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusUnauthorized, response.StatusCode, "a cookie would be sent by other sites' pages")
}

func TestLogIn(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), nil)
	credentials := func(handle, password string) string {
		return `{"handle":"` + handle + `","password":"` + password + `"}`
	}
	d.refused(401, "UNAUTHENTICATED", "POST", "/api/session", "", credentials("root", "wrong horse"))
	d.refused(401, "UNAUTHENTICATED", "POST", "/api/session", "", credentials("nobody", password))
	d.refused(400, "BAD_USER_INPUT", "POST", "/api/session", "", "[")
	d.refused(413, "BAD_USER_INPUT", "POST", "/api/session", "", credentials("root", strings.Repeat("x", 20_000)))
	response := d.send("POST", "/api/session", "", "")
	require.Equal(t, http.StatusUnsupportedMediaType, response.status, "a form of another site")

	sessions, err := d.Stores.DB.Session.Query().Count(d.Ctx)
	require.NoError(t, err)
	d.refused(403, "FORBIDDEN", "POST", "/api/session", "", credentials("mod", password))
	left, err := d.Stores.DB.Session.Query().Count(d.Ctx)
	require.NoError(t, err)
	require.Equal(t, sessions, left, "the session of who may not is ended")

	status, answer := d.ask("POST", "/api/session", "", credentials("root", password))
	require.Equal(t, 200, status, answer)
	token := answer["token"].(string)
	status, answer = d.ask("GET", "/api/session", token, "")
	require.Equal(t, 200, status)
	require.Equal(t, "root", answer["handle"])
	status, _ = d.ask("DELETE", "/api/session", token, "")
	require.Equal(t, 200, status)
	d.refused(401, "UNAUTHENTICATED", "GET", "/api/session", token, "")
}

// Log-ins here take from the same bucket as log-ins of the API.
func TestLogInsAreBounded(t *testing.T) {
	w := feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{})
	limits, err := limit.New(w.Stores.Redis, limit.Config{
		RateAccounts: 1, RateCredentials: 1, RateMutations: 1, RateCost: 1000, RateKeyMutations: 1, RateKeyCost: 1000, RateNewAccount: 1,
		MaxSocketsPerUser: 1, MaxSocketsPerAddress: 1, MaxSubscriptionsPerUser: 1, MaxSubscriptionsPerAddress: 1,
	})
	require.NoError(t, err)
	d := open(w, func(c *admin.Config) { c.Limits = limits })
	require.Nil(t, limits.Allow(w.Ctx, limit.Client{Address: "127.0.0.1"}, limit.Demand{Accounts: 1, Cost: limit.LeastCost}))
	d.refused(401, "UNAUTHENTICATED", "POST", "/api/session", "", `{"handle":"root","password":"wrong horse"}`)
	d.refused(429, "RATE_LIMITED", "POST", "/api/session", "", `{"handle":"root","password":"`+password+`"}`)
}

// dead creates a dead job of a post.
func (d *desk) dead(post int64) int64 { return d.deadOf(job.PostCreated, post) }

func (d *desk) deadOf(kind string, post int64) int64 {
	d.Helper()
	payload, err := json.Marshal(job.Post{Post: post, Author: 1})
	require.NoError(d, err)
	row, err := d.Stores.DB.Job.Create().SetKind(kind).SetPool("small").SetPayload(payload).SetDead(true).
		SetAttempts(12).SetLastError("the disk is full").SetDueAt(time.Now()).Save(d.Ctx)
	require.NoError(d, err)
	return row.ID
}

// member adds a process with workers to the fleet.
func (d *desk) member() *fleet.Member {
	d.Helper()
	m, err := fleet.NewMember(fleet.Config{DB: d.Stores.DB, Version: "v1", Server: true, Subscriptions: func() int { return 5 }, Workers: d.Queue})
	require.NoError(d, err)
	require.NoError(d, m.Renew(d.Ctx))
	return m
}

func TestSnapshot(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		d := open(w, nil)
		m := d.member()
		dead := d.dead(42)
		w.Post(w.User("ben"), schema.Public) // its fan-out waits, since no worker runs
		now := d.does("GET", "/api/snapshot", "")
		require.Empty(w, now["failed"])
		require.Equal(w, map[string]any{"sql": "ok"}, now["checks"])
		processes := now["processes"].([]any)
		require.Len(w, processes, 1)
		require.Subset(w, processes[0], map[string]any{"id": float64(m.ID()), "version": "v1", "subscriptions": 5.0, "state": "running", "workers": true})
		require.InDelta(w, 1, now["dead"], 0)
		require.Contains(w, now["kinds"], map[string]any{"kind": job.PostCreated, "pool": "small", "depth": 1.0, "tried": 0.0, "dead": 1.0})
		require.Subset(w, now["pools"].([]any)[0], map[string]any{"pool": "small", "depth": 1.0})
		require.Subset(w, now["deadJobs"].([]any)[0], map[string]any{"id": float64(dead), "error": "the disk is full", "attempts": 12.0})
		require.InDelta(w, 3, now["webhooks"].(map[string]any)["pending"], 0)
		require.InDelta(w, 7, now["metrics"].(map[string]any)["tideline_sockets"], 0)
		stores := now["stores"].(map[string]any)
		sql, redis := stores["sql"].(map[string]any), stores["redis"].(map[string]any)
		require.Subset(w, sql, map[string]any{"dialect": w.Stores.Dialect, "up": true})
		require.NotEmpty(w, sql["version"])
		require.Greater(w, sql["bytes"], 1000.0)
		require.Equal(w, true, redis["up"])
		require.Equal(w, w.Stores.Embedded, redis["embedded"])
		if w.Stores.Embedded {
			return
		}
		master := redis["masters"].([]any)[0].(map[string]any)
		require.Regexp(w, `^[0-9a-f]{40}$`, master["incarnation"])
		require.NotEmpty(w, master["version"])
		require.Greater(w, master["used"], 1000.0)
	})
}

// A part that does not answer is named, and the others are complete.
func TestSnapshotWithoutAPart(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), func(c *admin.Config) {
		c.Webhooks = func(context.Context) (webhook.Stats, error) { return webhook.Stats{}, errors.New("password=secret") }
	})
	now := d.does("GET", "/api/snapshot", "")
	require.Equal(t, []any{"webhooks"}, now["failed"])
	require.Nil(t, now["webhooks"])
	require.Len(t, now["pools"], 3)
	text, err := json.Marshal(now)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
}

// stream opens a stream and returns a function that reads its next event.
func (d *desk) stream(token string) func() (event, data string) {
	d.Helper()
	response := d.send("GET", "/api/stream", token, "")
	require.Equal(d, http.StatusOK, response.status)
	require.Equal(d, "text/event-stream; charset=utf-8", response.header.Get("Content-Type"))
	lines := bufio.NewReader(response.body)
	return func() (event, data string) {
		d.Helper()
		for {
			line, err := lines.ReadString('\n')
			require.NoError(d, err)
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "event: "):
				event = line[len("event: "):]
			case strings.HasPrefix(line, "data:"):
				data = strings.TrimSpace(line[len("data:"):])
			case line == "":
				return event, data
			}
		}
	}
}

// Nothing is computed while nobody looks, and all viewers share one snapshot.
func TestAllShareASnapshot(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), func(c *admin.Config) { c.Every = time.Hour })
	var first string
	for i := range 3 {
		event, data := d.stream(d.token["root"])()
		require.Equal(t, "snapshot", event)
		require.EqualValues(t, 1, d.looked.Load())
		if i == 0 {
			first = data
		}
		require.Equal(t, first, data)
	}
	d.does("GET", "/api/snapshot", "")
	require.EqualValues(t, 1, d.looked.Load())
}

func TestStreamsAreBounded(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), func(c *admin.Config) { c.Every = time.Hour })
	for range 16 {
		d.stream(d.token["root"])()
	}
	d.refused(503, "RATE_LIMITED", "GET", "/api/stream", d.token["root"], "")
}

// A user who is no longer an admin receives nothing more.
func TestStreamEndsWithTheRole(t *testing.T) {
	for name, end := range map[string]func(d *desk){
		"role": func(d *desk) {
			_, err := d.Moderation.SetRole(d.Ctx, moderation.Console, d.root.ID, user.RoleUSER, "")
			require.NoError(d, err)
		},
		"log-out": func(d *desk) { d.does("DELETE", "/api/session", "") },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), func(c *admin.Config) { c.Every = time.Millisecond })
			next := d.stream(d.token["root"])
			event, _ := next()
			require.Equal(t, "snapshot", event)
			end(d)
			for event != "end" {
				event, _ = next()
			}
		})
	}
}

// logged checks the newest entry of the audit log.
func (d *desk) logged(action auditentry.Action, subject int64, note string, jobs ...int64) {
	d.Helper()
	entry, err := d.Stores.DB.AuditEntry.Query().Order(auditentry.ByID()).All(d.Ctx)
	require.NoError(d, err)
	last := entry[len(entry)-1]
	require.Equal(d, d.root.ID, last.ActorID)
	require.Equal(d, []any{action, subject, note}, []any{last.Action, last.SubjectID, last.Note})
	require.Equal(d, schema.AuditDetails{JobCount: len(jobs), Jobs: jobs}, last.Details)
}

func TestRetry(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		d := open(w, nil)
		one, two, three := d.dead(42), d.dead(43), d.dead(44)
		id := func(n int64) string { return strconv.FormatInt(n, 10) }
		require.Equal(w, map[string]any{"retried": 1.0}, d.does("POST", "/api/jobs/retry", `{"ids":[`+id(two)+`],"note":"there is room"}`))
		d.logged(auditentry.ActionRETRY_JOBS, two, "there is room", two)
		row := w.Stores.DB.Job.GetX(w.Ctx, two)
		require.False(w, row.Dead)
		require.Zero(w, row.Attempts)
		require.True(w, w.Stores.DB.Job.GetX(w.Ctx, one).Dead)
		require.Equal(w, map[string]any{"retried": 2.0}, d.does("POST", "/api/jobs/retry", `{"all":true}`))
		d.logged(auditentry.ActionRETRY_JOBS, one, "", one, three)
		require.Equal(w, map[string]any{"retried": 0.0}, d.does("POST", "/api/jobs/retry", `{"all":true}`))
		root := d.token["root"]
		d.refused(404, "NOT_FOUND", "POST", "/api/jobs/retry", root, `{"ids":[999999]}`)
		d.refused(400, "BAD_USER_INPUT", "POST", "/api/jobs/retry", root, `{}`)
		d.refused(400, "BAD_USER_INPUT", "POST", "/api/jobs/retry", root, `{"all":true,"ids":[1]}`)
		d.refused(400, "BAD_USER_INPUT", "POST", "/api/jobs/retry", root, `{"ids":["x"]}`)
		d.refused(400, "BAD_USER_INPUT", "POST", "/api/jobs/retry", root, `{"ids":[`+id(one)+`],"note":"`+strings.Repeat("x", 1200)+`"}`)
	})
}

func TestDiscard(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		d := open(w, nil)
		one, two, three := d.dead(42), d.dead(43), d.dead(44)
		id := func(n int64) string { return strconv.FormatInt(n, 10) }
		require.Equal(w, map[string]any{"discarded": 1.0, "feedsStale": false}, d.does("POST", "/api/jobs/discard", `{"ids":[`+id(two)+`],"note":"poisoned"}`))
		d.logged(auditentry.ActionDISCARD_JOBS, two, "poisoned", two)
		require.NoError(w, w.Stores.DB.Job.Update().Where(entjob.ID(three)).SetDead(false).Exec(w.Ctx))
		refused := func(status int, code, body string) {
			d.refused(status, code, "POST", "/api/jobs/discard", d.token["root"], body)
		}
		refused(404, "NOT_FOUND", `{"ids":[`+id(one)+`,`+id(two)+`]}`)
		refused(409, "CONFLICT", `{"ids":[`+id(one)+`,`+id(three)+`]}`)
		refused(400, "BAD_USER_INPUT", `{}`)
		refused(400, "BAD_USER_INPUT", `{"ids":["x"]}`)
		left, err := w.Queue.DeadIDs(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, []int64{one}, left)
		refused(409, "CONFLICT", `{"ids":[`+id(d.deadOf(job.UserDeleted, 45))+`]}`)
		followed := d.deadOf(job.PostGivenUp, 46)
		require.Equal(w, map[string]any{"discarded": 1.0, "feedsStale": true}, d.does("POST", "/api/jobs/discard", `{"ids":[`+id(followed)+`]}`))
	})
}

func TestWorkersArePaused(t *testing.T) {
	d := open(feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{}), nil)
	m := d.member()
	of := func(wanted string) string {
		return `{"id":` + strconv.FormatInt(m.ID(), 10) + `,"wanted":"` + wanted + `"}`
	}
	require.Equal(t, map[string]any{"changed": true}, d.does("POST", "/api/workers", of("pause")))
	d.logged(auditentry.ActionPAUSE_WORKERS, m.ID(), "")
	require.NoError(t, m.Renew(t.Context()))
	require.True(t, d.Queue.Paused())
	require.Equal(t, map[string]any{"changed": false}, d.does("POST", "/api/workers", of("pause")))
	d.does("POST", "/api/workers", of("run"))
	d.logged(auditentry.ActionRESUME_WORKERS, m.ID(), "")
	require.NoError(t, m.Renew(t.Context()))
	require.False(t, d.Queue.Paused())
	root := d.token["root"]
	d.refused(404, "NOT_FOUND", "POST", "/api/workers", root, `{"id":7,"wanted":"pause"}`)
	d.refused(400, "BAD_USER_INPUT", "POST", "/api/workers", root, of("stop"))

	server, err := fleet.NewMember(fleet.Config{DB: d.Stores.DB, Server: true, Subscriptions: func() int { return 0 }})
	require.NoError(t, err)
	require.NoError(t, server.Renew(t.Context()))
	d.refused(409, "CONFLICT", "POST", "/api/workers", root, `{"id":`+strconv.FormatInt(server.ID(), 10)+`,"wanted":"pause"}`)
}

func TestTimeline(t *testing.T) {
	feedtest.Each(t, func(w *feedtest.World) {
		d := open(w, nil)
		ben, cho := w.User("ben"), w.User("cho")
		w.Follow(ben, cho)
		w.AwaitInbox(ben)
		post := w.Post(cho, schema.Followers)
		w.Drain()
		found := d.does("GET", "/api/timeline?user=ben", "")
		require.Subset(w, found, map[string]any{"handle": "ben", "active": true, "state": "ready", "followees": 1.0, "entries": 1.0, "floor": nil})
		require.InDelta(w, post, found["newest"].(map[string]any)["post"], 0)
		require.NotContains(w, found, "verified")
		found = d.does("GET", "/api/timeline?verify=1&user=@ben", "")
		require.Equal(w, map[string]any{"checked": 1.0, "missing": 0.0, "extra": 0.0}, found["verified"])
		require.Equal(w, map[string]any{"built": true}, d.does("POST", "/api/timelines/rebuild", `{"user":"ben","note":"asked for"}`))
		d.logged(auditentry.ActionREBUILD_TIMELINE, ben.ID, "asked for")
		again := d.does("GET", "/api/timeline?user="+strconv.FormatInt(ben.ID, 10), "")
		require.NotEqual(w, found["epoch"], again["epoch"])

		root := d.token["root"]
		d.refused(404, "NOT_FOUND", "GET", "/api/timeline?user=nobody", root, "")
		w.User(strconv.FormatInt(ben.ID, 10)) // a handle that equals ben's number
		d.refused(400, "BAD_USER_INPUT", "GET", "/api/timeline?user="+strconv.FormatInt(ben.ID, 10), root, "")
		d.refused(400, "BAD_USER_INPUT", "POST", "/api/timelines/rebuild", root, `{"user":"`+strconv.FormatInt(ben.ID, 10)+`"}`)
		d.refused(400, "BAD_USER_INPUT", "GET", "/api/timeline", root, "")
		d.refused(400, "BAD_USER_INPUT", "GET", "/api/timeline?user="+strings.Repeat("x", 300), root, "")
		d.refused(404, "NOT_FOUND", "POST", "/api/timelines/rebuild", root, `{"user":"nobody"}`)
	})
}

func TestJourneyOfAPost(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		d := open(w, nil)
		ben, cho := w.User("ben"), w.User("cho")
		w.Follow(ben, cho)
		post := strconv.FormatInt(w.Post(cho, schema.Followers), 10)
		found := d.does("GET", "/api/post?id="+post, "")
		require.Subset(w, found, map[string]any{"author": "cho", "visibility": "FOLLOWERS"})
		require.NotContains(w, found, "receipt")
		jobs := found["jobs"].([]any)
		require.Len(w, jobs, 1, "those of other posts are not among them")
		require.Equal(w, job.PostCreated, jobs[0].(map[string]any)["kind"])

		w.Work()
		w.AwaitInbox(ben)
		w.Drain()
		found = d.does("GET", "/api/post?viewer=ben&id="+post, "")
		require.Empty(w, found["jobs"])
		require.Equal(w, true, found["receipt"].(map[string]any)["done"])
		require.Contains(w, found["why"], "It is shown")
		hot := found["scores"].([]any)[0].(map[string]any)
		require.Equal(w, "hot", hot["ranking"])
		require.Equal(w, map[string]any{"name": "likes", "value": 0.0}, hot["signals"].([]any)[0])
		stranger := d.does("GET", "/api/post?viewer=ann&id="+post, "")
		require.Contains(w, stranger["why"], "It is not shown")
		require.Empty(w, stranger["scores"])
		text, err := json.Marshal(found)
		require.NoError(w, err)
		require.NotContains(w, string(text), "text")

		root := d.token["root"]
		gone := d.does("GET", "/api/post?viewer=ben&id=12345", "")
		require.Contains(w, gone["why"], "no such post")
		require.NotContains(w, gone, "author")
		d.refused(404, "NOT_FOUND", "GET", "/api/post?id=12345", root, "")
		d.refused(404, "NOT_FOUND", "GET", "/api/post?viewer=nobody&id="+post, root, "")
		d.refused(400, "BAD_USER_INPUT", "GET", "/api/post?id=what", root, "")
		d.refused(400, "BAD_USER_INPUT", "GET", "/api/post?id="+strings.Repeat("1", 300), root, "")
	})
}
