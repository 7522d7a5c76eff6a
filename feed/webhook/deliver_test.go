package webhook_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/webhookdelivery"
	"tideline/feed/feedtest"
	"tideline/feed/webhook"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// local is a Reach that includes the servers of tests.
var local = webhook.Reach{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, HTTP: true}

// clock is the time of a Deliverer, which tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// receiver is a server that receives webhooks. It answers with 200, unless answer is set.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []string // type of event and webhook-id
	answer func(w http.ResponseWriter, r *http.Request, body string)
}

func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, body string)) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		kind, _, _ := strings.Cut(strings.TrimPrefix(string(body), `{"type":"`), `"`)
		r.mu.Lock()
		r.got = append(r.got, kind+" "+request.Header.Get("Webhook-Id"))
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, request, string(body))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) will(answer func(w http.ResponseWriter, r *http.Request, body string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// received returns the types and the ids of the events that arrived since the last call.
func (r *receiver) received() (types, ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, got := range r.got {
		kind, id, _ := strings.Cut(got, " ")
		types, ids = append(types, kind), append(ids, id)
	}
	r.got = nil
	return types, ids
}

func fails(w http.ResponseWriter, _ *http.Request, _ string) {
	w.WriteHeader(http.StatusInternalServerError)
}

// eachDelivering is each with a clock, and with a Deliverer that reaches receivers.
func eachDelivering(t *testing.T, test func(w *feedtest.World, d *webhook.Deliverer, c *clock)) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		c := &clock{now: time.Now()}
		w := feedtest.New(t, s, feedtest.Options{Webhooks: webhook.NewOutbox(s.DB, nil, c.Now)})
		w.Run(w.IDs.Run)
		test(w, deliverer(w, webhook.Config{Reach: local, Now: c.Now}), c)
	})
}

// deliver starts due attempts and waits for them, until nothing is left.
func deliver(w *feedtest.World, d *webhook.Deliverer, r *receiver) (types, ids []string) {
	w.Helper()
	for {
		require.NoError(w, d.Round(w.Ctx))
		d.Wait()
		more, moreIDs := r.received()
		if len(more) == 0 {
			return types, ids
		}
		types, ids = append(types, more...), append(ids, moreIDs...)
	}
}

// Events of one subject arrive in their order. An event that fails is tried again with the same id,
// and holds up only the later events of its subject.
func TestOrderOfASubject(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		ada, bob := w.User("ada"), w.User("bob")
		r := newReceiver(w, nil)
		e := endpoint(w, d, r.URL)
		post := w.Post(ada, schema.Public)
		_, err := w.Feed.SetVisibility(w.Ctx, ada, post, schema.Private)
		require.NoError(w, err)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ada, post))
		failing := ent.NodeID("Post", post)
		r.will(func(w http.ResponseWriter, r *http.Request, body string) {
			if strings.Contains(body, failing) {
				fails(w, r, body)
			}
		})
		w.Follow(bob, ada)
		require.NoError(w, d.Round(w.Ctx))
		d.Wait()
		types, ids := r.received()
		require.ElementsMatch(w, []string{"post.created", "follow.created"}, types)
		first := ids[0]
		if types[0] != "post.created" {
			first = ids[1]
		}
		more, _ := deliver(w, d, r)
		require.Empty(w, more, "it is not due again yet, and what follows waits")
		list, err := d.Deliveries(w.Ctx, webhook.ListOptions{State: "PENDING", Failing: true})
		require.NoError(w, err)
		require.Len(w, list, 1, "what waits behind it has not failed")
		require.Equal(w, "post.created", list[0].Type)
		c.add(7 * time.Second)
		types, ids = deliver(w, d, r)
		require.Equal(w, []string{"post.created"}, types)
		require.Equal(w, first, ids[0], "the same event has the same id")
		r.will(nil)
		c.add(6 * time.Minute)
		types, ids = deliver(w, d, r)
		require.Equal(w, []string{"post.created", "post.updated", "post.deleted"}, types)
		require.Equal(w, first, ids[0])
		for _, row := range deliveries(w, d, e) {
			require.Equal(w, "DELIVERED", row.State)
		}

		// A list begins with the newest delivery. The next page begins below the last delivery of
		// the page before.
		list, err = d.Deliveries(w.Ctx, webhook.ListOptions{Limit: 1})
		require.NoError(w, err)
		require.Equal(w, "follow.created", list[0].Type)
		list, err = d.Deliveries(w.Ctx, webhook.ListOptions{Before: list[0].ID, Limit: 2})
		require.NoError(w, err)
		require.Equal(w, []string{"post.deleted", "post.updated"}, []string{list[0].Type, list[1].Type})
	})
}

// An event that fails is tried by the schedule and then given up, and only then the next event of
// its subject is tried. A replay has the same id. An event that waited for longer than the schedule
// is given up at its first failure.
func TestRetriesEndInADeadLetter(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		ada := w.User("ada")
		r := newReceiver(w, fails)
		e := endpoint(w, d, r.URL)
		post := w.Post(ada, schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ada, post))
		var ids []string
		for n, wait := range webhook.Schedule {
			c.add(wait + wait/10 + time.Millisecond)
			types, now := deliver(w, d, r)
			ids = append(ids, now...)
			if n < len(webhook.Schedule)-1 {
				require.Equal(w, []string{"post.created"}, types)
				row := deliveries(w, d, e)[0]
				next := webhook.Schedule[n+1]
				due := time.UnixMilli(row.DueAt).Sub(c.Now())
				require.GreaterOrEqual(w, due+time.Millisecond, next)
				require.LessOrEqual(w, due, next+next/10+time.Millisecond)
				require.Equal(w, 500, row.Status)
			} else {
				require.Equal(w, []string{"post.created", "post.deleted"}, types)
			}
		}
		for _, id := range ids[:len(webhook.Schedule)] {
			require.Equal(w, ids[0], id)
		}
		rows := deliveries(w, d, e)
		require.Equal(w, []string{"DEAD", "DEAD"}, []string{rows[0].State, rows[1].State})
		require.Equal(w, []int{len(webhook.Schedule), 1}, []int{rows[0].Attempts, rows[1].Attempts})
		stats, err := d.Stats(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, webhook.Stats{Dead: 2}, stats)

		r.will(nil)
		n, err := d.Replay(w.Ctx, e)
		require.NoError(w, err)
		require.Equal(w, 2, n)
		types, again := deliver(w, d, r)
		require.Equal(w, []string{"post.created", "post.deleted"}, types)
		require.Equal(w, ids[0], again[0])
		named := []int64{rows[0].ID}
		for i := range int64(66_000) { // more values than any engine binds in one statement
			named = append(named, rows[1].ID+1+i)
		}
		n, err = d.Replay(w.Ctx, 0, named...)
		require.NoError(w, err)
		require.Equal(w, 1, n)
		_, again = deliver(w, d, r)
		require.Equal(w, ids[:1], again)

		c.add(25 * time.Hour)
		purge(w, d)
		require.Empty(w, deliveries(w, d, e), "what was delivered is kept for a day")
	})
}

// The address of an endpoint, which may contain a secret, is neither in the log nor in the list.
func TestAddressOfAFailingEndpointIsNotTold(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, _ *webhook.Deliverer, c *clock) {
		var log bytes.Buffer
		d := deliverer(w, webhook.Config{Reach: local, Now: c.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		r := newReceiver(w, nil)
		endpoint(w, d, r.URL+"/hook?token=secret")
		r.Close()
		w.Post(w.User("ada"), schema.Public)
		deliver(w, d, r)
		list, err := d.Endpoints(w.Ctx)
		require.NoError(w, err)
		require.Contains(w, list[0].LastError, "connection refused")
		require.Contains(w, log.String(), "webhook endpoint fails")
		require.NotContains(w, list[0].LastError+log.String(), "secret")
	})
}

// An operator finds a failing endpoint in the list, and once in the log.
func TestFailingEndpointIsTold(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, _ *webhook.Deliverer, c *clock) {
		var log bytes.Buffer
		d := deliverer(w, webhook.Config{Reach: local, Now: c.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		r := newReceiver(w, fails)
		endpoint(w, d, r.URL)
		w.Post(w.User("ada"), schema.Public)
		said := func(lastError string, lines ...string) {
			w.Helper()
			list, err := d.Endpoints(w.Ctx)
			require.NoError(w, err)
			require.Equal(w, lastError, list[0].LastError)
			require.Equal(w, len(lines), strings.Count(log.String(), "\n"), log.String())
			for _, line := range lines {
				require.Contains(w, log.String(), line)
			}
		}
		said("")
		for _, wait := range webhook.Schedule[:2] {
			c.add(wait + wait/10 + time.Millisecond)
			deliver(w, d, r)
			said("status 500", "webhook endpoint fails")
		}
		r.will(nil)
		c.add(webhook.Schedule[2] * 2)
		deliver(w, d, r)
		said("", "webhook endpoint fails", "webhook endpoint is well again")
	})
}

// After an operator has repaired an endpoint, Replay hurries the next attempts, which may be a day
// away.
func TestReplayHurriesWhatWaits(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		ada := w.User("ada")
		r := newReceiver(w, fails)
		e := endpoint(w, d, r.URL)
		post := w.Post(ada, schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ada, post))
		for _, wait := range webhook.Schedule[:2] {
			c.add(wait + wait/10 + time.Millisecond)
			types, _ := deliver(w, d, r)
			require.Equal(w, []string{"post.created"}, types)
		}
		r.will(nil)
		types, _ := deliver(w, d, r)
		require.Empty(w, types)
		n, err := d.Replay(w.Ctx, e)
		require.NoError(w, err)
		require.Equal(w, 2, n)
		types, _ = deliver(w, d, r)
		require.Equal(w, []string{"post.created", "post.deleted"}, types, "in their order")

		w.Post(ada, schema.Public)
		claimed, err := d.Claim(w.Ctx, e, 8)
		require.NoError(w, err)
		require.Len(w, claimed, 1)
		n, err = d.Replay(w.Ctx, e)
		require.NoError(w, err)
		require.Zero(w, n)
		types, _ = deliver(w, d, r)
		require.Empty(w, types, "what is under way is not hurried")
	})
}

// A process that ends between the commit and the delivery, or during the delivery, loses nothing:
// another process takes over when the claim has lapsed. The late result of a lost claim is not
// stored.
func TestCrashBeforeTheDelivery(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		r := newReceiver(w, nil)
		e := endpoint(w, d, r.URL)
		w.Post(w.User("ada"), schema.Public)
		crashed := deliverer(w, webhook.Config{Reach: local, Now: c.Now})
		claimed, err := crashed.Claim(w.Ctx, e, 8)
		require.NoError(w, err)
		require.Len(w, claimed, 1)
		types, _ := deliver(w, d, r)
		require.Empty(w, types, "it is claimed")
		c.add(webhook.Lease)
		types, _ = deliver(w, d, r)
		require.Equal(w, []string{"post.created"}, types)
		crashed.Attempt(w.Ctx, w.Stores.DB.WebhookEndpoint.GetX(w.Ctx, e), claimed[0])
		types, _ = r.received()
		require.Empty(w, types, "whoever has lost the claim sends nothing")
	})
}

// A receiver that does not answer holds up only its own few attempts. Other receivers get their
// events, and users who post do not wait.
func TestSlowReceiverDelaysNobody(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, _ *clock) {
		release, stuck := make(chan struct{}), make(chan struct{}, 100)
		slow := newReceiver(w, func(http.ResponseWriter, *http.Request, string) { stuck <- struct{}{}; <-release })
		quick := newReceiver(w, nil)
		endpoint(w, d, slow.URL)
		endpoint(w, d, quick.URL)
		ada := w.User("ada")
		const posts = 3 * webhook.PerEndpoint
		for range posts {
			w.Post(ada, schema.Public)
		}
		running := w.Run(d.Run)
		for range webhook.PerEndpoint {
			<-stuck
		}
		require.Eventually(w, func() bool {
			quick.mu.Lock()
			defer quick.mu.Unlock()
			return len(quick.got) == posts
		}, time.Minute, 5*time.Millisecond)
		require.Empty(w, stuck, "no more than its share is under way")
		close(release)
		running()
	})
}

// A process that stops hands its deliveries back, so that the next process sends them at once.
func TestStopHandsBack(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, _ *clock) {
		release, stuck := make(chan struct{}), make(chan struct{}, 1)
		r := newReceiver(w, func(http.ResponseWriter, *http.Request, string) { stuck <- struct{}{}; <-release })
		e := endpoint(w, d, r.URL)
		w.Post(w.User("ada"), schema.Public)
		stop := w.Run(d.Run)
		<-stuck
		stop()
		close(release)
		row := deliveries(w, d, e)[0]
		require.Equal(w, "PENDING", row.State)
		require.Zero(w, row.Attempts)
		r.received()
		r.will(nil)
		types, _ := deliver(w, deliverer(w, webhook.Config{Reach: local}), r)
		require.Equal(w, []string{"post.created"}, types)
	})
}

// An endpoint that answers 410 Gone is disabled and receives nothing until it is enabled.
func TestGoneDisables(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, _ *clock) {
		r := newReceiver(w, func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusGone) })
		e := endpoint(w, d, r.URL)
		ada := w.User("ada")
		post := w.Post(ada, schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ada, post))
		types, _ := deliver(w, d, r)
		require.Equal(w, []string{"post.created"}, types)
		w.Post(ada, schema.Public)
		rows := deliveries(w, d, e)
		require.Len(w, rows, 2)
		for _, row := range rows {
			require.Equal(w, "DEAD", row.State)
		}
		list, err := d.Endpoints(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, "410 Gone", list[0].DisabledWhy)
		require.Equal(w, 2, list[0].Dead)
		require.NoError(w, d.Enable(w.Ctx, e))
		r.will(nil)
		w.Post(ada, schema.Public)
		types, _ = deliver(w, d, r)
		require.Equal(w, []string{"post.created"}, types)
		require.NoError(w, d.Remove(w.Ctx, e))
		require.ErrorIs(w, d.Remove(w.Ctx, e), webhook.ErrNoSuch)
		purge(w, d)
		require.Empty(w, deliveries(w, d, e), "what belongs to no endpoint is deleted")
	})
}

// Statements of 1,000 rows delete old deliveries, and give up the pending deliveries of a disabled
// endpoint.
func TestPurgeIsBounded(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		const more = 10
		e, disabled := endpoint(w, d, "https://app.example.com/all"), endpoint(w, d, "https://app.example.com/gone")
		w.Stores.DB.WebhookEndpoint.UpdateOneID(disabled).SetDisabledAt(1).ExecX(w.Ctx)
		removed := disabled + 1
		old := c.Now().Add(-31 * 24 * time.Hour).UnixMilli()
		create := func(endpoint int64, state string, at int64) {
			w.Helper()
			for left := webhook.PurgeBatch + more; left > 0; left -= 500 {
				rows := make([]*ent.WebhookDeliveryCreate, min(left, 500))
				for i := range rows {
					rows[i] = w.Stores.DB.WebhookDelivery.Create().SetEndpointID(endpoint).SetMessage("m").SetType("t").SetSubject("s").
						SetBody("{}").SetState(state).SetDueAt(at).SetCreatedAt(at).SetRetrySince(at).SetEndedAt(at)
				}
				w.Stores.DB.WebhookDelivery.CreateBulk(rows...).ExecX(w.Ctx)
			}
		}
		create(e, "DELIVERED", old)
		create(e, "DEAD", old)
		create(e, "PENDING", old)
		create(disabled, "PENDING", old)
		create(removed, "PENDING", old)
		recent := c.Now().UnixMilli()
		create(disabled, "PENDING", recent)
		count := func(of int64, state string) int {
			w.Helper()
			return w.Stores.DB.WebhookDelivery.Query().Where(webhookdelivery.EndpointID(of), webhookdelivery.State(state)).CountX(w.Ctx)
		}
		more1, err := d.Purge(w.Ctx)
		require.NoError(w, err)
		require.True(w, more1)
		require.Equal(w, more, count(e, "DELIVERED"))
		require.Equal(w, more, count(e, "DEAD"))
		require.Equal(w, more, count(removed, "PENDING"))
		require.Equal(w, webhook.PurgeBatch, count(disabled, "DEAD"))
		purge(w, d)
		require.Zero(w, w.Stores.DB.WebhookDelivery.Query().Where(webhookdelivery.EndpointID(removed)).CountX(w.Ctx))
		require.Equal(w, []int{0, 0, webhook.PurgeBatch + more}, []int{count(e, "DELIVERED"), count(e, "DEAD"), count(e, "PENDING")})
		require.Equal(w, []int{webhook.PurgeBatch + more, webhook.PurgeBatch + more}, []int{count(disabled, "DEAD"), count(disabled, "PENDING")},
			"what is younger than three days may still be sent, once the endpoint is enabled")
	})
}

// slowPurge is a database that holds up the deletion of deliveries until the test allows it.
type slowPurge struct {
	dialect.Driver
	began chan struct{}
}

func (s slowPurge) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if strings.HasPrefix(query, "DELETE FROM webhook_deliveries") {
		select {
		case s.began <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Driver.(interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}).ExecContext(ctx, query, args...)
}

func (s slowPurge) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.Driver.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}).QueryContext(ctx, query, args...)
}

// A slow purge holds up no delivery.
func TestPurgeDelaysNobody(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, _ *clock) {
		slow := slowPurge{w.Stores.Driver, make(chan struct{}, 1)}
		told := make(chan string, 1)
		r := newReceiver(w, func(_ http.ResponseWriter, _ *http.Request, body string) { told <- body })
		endpoint(w, d, r.URL)
		purging, err := webhook.NewDeliverer(webhook.Config{DB: ent.NewClient(ent.Driver(slow)), Dialect: w.Stores.Dialect, Reach: local})
		require.NoError(w, err)
		w.Run(purging.Run)
		<-slow.began
		w.Post(w.User("ada"), schema.Public)
		require.Contains(w, <-told, "post.created")
	})
}

// purge purges until nothing is left to do.
func purge(w *feedtest.World, d *webhook.Deliverer) {
	w.Helper()
	for more := true; more; {
		var err error
		more, err = d.Purge(w.Ctx)
		require.NoError(w, err)
	}
}

// An answer may ask for more time, at most a day. A redirect is a failure and is not followed. Only
// a part of an endless answer is read.
func TestAnswers(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		ada := w.User("ada")
		r := newReceiver(w, nil)
		e := endpoint(w, d, r.URL)
		last := func() *ent.WebhookDelivery {
			w.Helper()
			w.Post(ada, schema.Public)
			deliver(w, d, r)
			rows := deliveries(w, d, e)
			return rows[len(rows)-1]
		}
		c.add(c.Now().Truncate(time.Second).Add(time.Second).Sub(c.Now())) // HTTP dates have no milliseconds
		date := func(in time.Duration) string { return c.Now().Add(in).UTC().Format(http.TimeFormat) }
		for text, want := range map[string]time.Duration{
			"600": 10 * time.Minute, "99999999": 24 * time.Hour,
			date(10 * time.Minute): 10 * time.Minute, date(30 * 24 * time.Hour): 24 * time.Hour,
			c.Now().Add(20 * time.Minute).UTC().Format(time.RFC850): 20 * time.Minute,
		} {
			r.will(func(w http.ResponseWriter, _ *http.Request, _ string) {
				w.Header().Set("Retry-After", text)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			row := last()
			require.Equal(w, want.Milliseconds(), row.DueAt-c.Now().UnixMilli(), text)
		}
		for _, text := range []string{date(-time.Hour), "-5", "soon", ""} {
			r.will(func(w http.ResponseWriter, _ *http.Request, _ string) {
				w.Header().Set("Retry-After", text)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			require.InDelta(w, webhook.Schedule[1].Milliseconds(), last().DueAt-c.Now().UnixMilli(), 1000, text)
		}
		target := newReceiver(w, nil)
		r.will(func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		})
		require.Equal(w, "status 307", last().LastError)
		types, _ := target.received()
		require.Empty(w, types)
		r.will(func(w http.ResponseWriter, r *http.Request, _ string) {
			for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		require.Equal(w, "DELIVERED", last().State)
	})
}

// Every attempt is signed with all secrets that are in force at its time.
func TestRotation(t *testing.T) {
	eachDelivering(t, func(w *feedtest.World, d *webhook.Deliverer, c *clock) {
		headers := make(chan http.Header, 1)
		bodies := make(chan string, 1)
		r := newReceiver(w, func(_ http.ResponseWriter, r *http.Request, body string) { headers <- r.Header; bodies <- body })
		added, old, err := d.Add(w.Ctx, r.URL, nil)
		require.NoError(w, err)
		check := func(secrets ...string) {
			w.Helper()
			status, err := d.Test(w.Ctx, added.ID)
			require.NoError(w, err)
			require.Equal(w, http.StatusOK, status)
			h, body := <-headers, <-bodies
			require.Equal(w, strconv.FormatInt(c.Now().Unix(), 10), h.Get("Webhook-Timestamp"))
			var want []string
			for _, s := range secrets {
				one, err := webhook.SignWith(s, h.Get("Webhook-Id"), c.Now(), []byte(body))
				require.NoError(w, err)
				want = append(want, one)
			}
			require.Equal(w, strings.Join(want, " "), h.Get("Webhook-Signature"))
		}
		check(old)
		next, err := d.Rotate(w.Ctx, added.ID, time.Hour)
		require.NoError(w, err)
		check(next, old)
		c.add(time.Hour)
		check(next)
		list, err := d.Endpoints(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, 1, list[0].Secrets)
	})
}

// The example comes from the specification's own library.
func TestSignature(t *testing.T) {
	t.Parallel()
	signature, err := webhook.SignWith("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", signature)
}

// Nothing is sent to an address that only this machine and its neighbours can reach, whatever its
// name or spelling.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	closed, public := webhook.Reach{HTTP: true}, webhook.Reach{}
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "[::1]", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "0.0.0.0", "[::]",
		"100.64.0.1", "192.0.0.8", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"[fc00::1]", "[fd12::1]", "[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[ff02::1]", "[2001:db8::1]",
		"[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001::1]",
	} {
		require.ErrorIs(t, closed.CheckURL("http://"+host+"/"), webhook.ErrPrivate, host)
	}
	for _, address := range []string{"https://93.184.216.34/", "https://[2606:4700::1111]:8443/x?y", "https://app.example.com/hook", "https://172.32.0.1/", "https://100.128.0.1/"} {
		require.NoError(t, public.CheckURL(address), address)
	}
	for _, address := range []string{"http://app.example.com/", "ftp://app.example.com/", "https:///x", "https://u:p@app.example.com/", "https://app.example.com/#f", "app.example.com", "https://" + strings.Repeat("x", 2001)} {
		require.Error(t, public.CheckURL(address), address)
	}
	allowed := webhook.Reach{HTTP: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	require.NoError(t, allowed.CheckURL("http://10.1.2.3/"))
	require.NoError(t, allowed.CheckURL("http://[::ffff:10.1.2.3]/"))
	require.ErrorIs(t, allowed.CheckURL("http://10.2.2.3/"), webhook.ErrPrivate)
}

// A name is judged by the address that it resolves to when the connection is made.
func TestNamesOfPrivateAddresses(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	w := feedtest.New(t, s, feedtest.Options{})
	r := newReceiver(t, nil)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	d := deliverer(w, webhook.Config{Reach: webhook.Reach{HTTP: true}})
	_, err := d.Test(t.Context(), endpoint(w, d, fmt.Sprintf("http://localhost:%s/", port)))
	require.ErrorIs(t, err, webhook.ErrPrivate)
	types, _ := r.received()
	require.Empty(t, types)
	open := deliverer(w, webhook.Config{Reach: local})
	e := endpoint(w, open, r.URL)
	status, err := open.Test(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}
