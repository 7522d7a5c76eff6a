package webhook_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/ids"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// each runs the test on every engine, with a fixture that records events.
func each(t *testing.T, test func(w *feedtest.World, d *webhook.Deliverer)) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{Webhooks: webhook.NewOutbox(s.DB, nil, nil)})
		w.Run(w.IDs.Run)
		test(w, deliverer(w, webhook.Config{}))
	})
}

func deliverer(w *feedtest.World, cfg webhook.Config) *webhook.Deliverer {
	cfg.DB, cfg.Dialect = w.Stores.DB, w.Stores.Dialect
	d, err := webhook.NewDeliverer(cfg)
	require.NoError(w, err)
	w.Cleanup(d.Wait)
	return d
}

func endpoint(w *feedtest.World, d *webhook.Deliverer, url string, types ...string) int64 {
	w.Helper()
	e, secret, err := d.Add(w.Ctx, url, types)
	require.NoError(w, err)
	require.True(w, strings.HasPrefix(secret, webhook.SecretPrefix))
	return e.ID
}

// deliveries returns the endpoint's deliveries, oldest first.
func deliveries(w *feedtest.World, d *webhook.Deliverer, endpoint int64) []*ent.WebhookDelivery {
	w.Helper()
	list, err := d.Deliveries(w.Ctx, webhook.ListOptions{Endpoint: endpoint})
	require.NoError(w, err)
	slices.Reverse(list)
	return list
}

// typesOf returns the types of the endpoint's deliveries, in their order.
func typesOf(w *feedtest.World, d *webhook.Deliverer, endpoint int64) (types []string) {
	for _, row := range deliveries(w, d, endpoint) {
		types = append(types, row.Type)
	}
	return types
}

// Every change records its event once, in its own transaction, with public data and the ids of the
// other server. An endpoint gets only the events it asked for.
func TestEventsOfChanges(t *testing.T) {
	each(t, func(w *feedtest.World, d *webhook.Deliverer) {
		all := endpoint(w, d, "https://app.example.com/all")
		follows := endpoint(w, d, "https://app.example.com/some", "follow.*", webhook.LikeDeleted)
		auth, err := w.Login.SignUp(w.Ctx, "ada", "correct horse", "Ada")
		require.NoError(w, err)
		results, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "7"}, {ExternalID: "8"}})
		require.NoError(w, err)
		ada, seven := session.Viewer{ID: auth.User.ID}, session.Viewer{ID: results[0].User}
		bio, yes, no := "Hello", true, false
		_, err = w.Accounts.UpdateProfile(w.Ctx, ada, account.Profile{Bio: &bio, ApprovesFollowers: &yes, AvatarURL: new("https://img.example.org/a"), Links: []string{"https://a.example"}, Data: new(`{"k":[]}`)})
		require.NoError(w, err)
		for range 2 {
			_, err = w.Feed.Follow(w.Ctx, seven, ada.ID)
			require.NoError(w, err)
		}
		_, err = w.Feed.AcceptFollower(w.Ctx, ada, seven.ID)
		require.NoError(w, err)
		_, err = w.Feed.Block(w.Ctx, ada, seven.ID)
		require.NoError(w, err)
		_, err = w.Feed.Unblock(w.Ctx, ada, seven.ID)
		require.NoError(w, err)
		for _, end := range []func() error{
			func() error { _, err := w.Feed.Unfollow(w.Ctx, seven, ada.ID); return err },
			func() error { _, err := w.Feed.RejectFollower(w.Ctx, ada, seven.ID); return err },
		} {
			_, err = w.Feed.Follow(w.Ctx, seven, ada.ID)
			require.NoError(w, err)
			require.NoError(w, end())
		}
		_, err = w.Accounts.UpdateProfile(w.Ctx, ada, account.Profile{ApprovesFollowers: &no})
		require.NoError(w, err)
		_, err = w.Feed.Follow(w.Ctx, seven, ada.ID)
		require.NoError(w, err)
		for range 2 {
			_, err = w.Feed.RemoveFollower(w.Ctx, ada, seven.ID)
			require.NoError(w, err)
		}
		post, err := w.Feed.CreatePost(w.Ctx, seven, feed.Draft{Text: `A "quote"`, Data: new(`{"n": 1}`), IdempotencyKey: "k"})
		require.NoError(w, err)
		_, err = w.Feed.CreatePost(w.Ctx, seven, feed.Draft{Text: `A "quote"`, Data: new(`{"n":1}`), IdempotencyKey: "k"})
		require.NoError(w, err)
		for range 2 {
			_, err = w.Feed.LikePost(w.Ctx, ada, post.ID)
			require.NoError(w, err)
		}
		_, err = w.Feed.UnlikePost(w.Ctx, ada, post.ID)
		require.NoError(w, err)
		for range 2 {
			_, err = w.Feed.SetVisibility(w.Ctx, seven, post.ID, schema.Followers)
			require.NoError(w, err)
		}
		require.NoError(w, w.Feed.DeletePost(w.Ctx, seven, post.ID))
		require.Equal(w, []string{
			"user.created", "user.updated", "follow.requested", "follow.created", "follow.deleted", "follow.requested", "follow.deleted",
			"follow.requested", "follow.deleted", "user.updated", "follow.created", "follow.deleted", "post.created", "like.created", "like.deleted", "post.updated", "post.deleted",
		}, typesOf(w, d, all))
		require.Equal(w, []string{
			"follow.requested", "follow.created", "follow.deleted", "follow.requested", "follow.deleted", "follow.requested", "follow.deleted",
			"follow.created", "follow.deleted", "like.deleted",
		}, typesOf(w, d, follows))

		person := func(v session.Viewer, external string) string {
			if external == "" {
				return fmt.Sprintf(`{"id":%q}`, ent.NodeID("User", v.ID))
			}
			return fmt.Sprintf(`{"id":%q,"externalId":%q,"issuer":"app"}`, ent.NodeID("User", v.ID), external)
		}
		bodies := map[string]string{}
		messages := map[string]bool{}
		for _, row := range deliveries(w, d, all) {
			var p struct {
				Type      string
				Version   int
				Timestamp time.Time
				Data      json.RawMessage
			}
			require.NoError(w, json.Unmarshal([]byte(row.Body), &p))
			require.Equal(w, row.Type, p.Type)
			require.Equal(w, 1, p.Version)
			require.WithinDuration(w, time.UnixMilli(row.CreatedAt), p.Timestamp, time.Second)
			bodies[row.Type] = string(p.Data)
			messages[row.Message] = true
		}
		require.Len(w, messages, 17)
		id := ent.NodeID("Post", post.ID)
		at := func(id int64) string { return ids.TimeOf(id).UTC().Format(time.RFC3339Nano) }
		require.JSONEq(w, `{"post":{"id":"`+id+`","author":`+person(seven, "7")+`,"text":"A \"quote\"","data":{"n":1},"visibility":"PUBLIC","createdAt":"`+at(post.ID)+`"}}`, bodies["post.created"])
		require.JSONEq(w, `{"post":{"id":"`+id+`","author":`+person(seven, "7")+`,"text":"A \"quote\"","data":{"n":1},"visibility":"FOLLOWERS","createdAt":"`+at(post.ID)+`"}}`, bodies["post.updated"])
		require.JSONEq(w, `{"post":{"id":"`+id+`","author":`+person(seven, "7")+`}}`, bodies["post.deleted"])
		require.JSONEq(w, `{"follow":{"follower":`+person(seven, "7")+`,"followee":`+person(ada, "")+`}}`, bodies["follow.deleted"])
		require.JSONEq(w, `{"like":{"user":`+person(ada, "")+`,"post":{"id":"`+id+`"}}}`, bodies["like.deleted"])
		require.Contains(w, bodies["user.updated"], `"handle":"ada","name":"Ada","bio":"Hello","avatarUrl":"https://img.example.org/a","links":["https://a.example"],"data":{"k":[]},"approvesFollowers":false`)
	})
}

// A reply, a repost and a quote name the other posts, also after a change.
func TestEventsNameTheOtherPosts(t *testing.T) {
	each(t, func(w *feedtest.World, d *webhook.Deliverer) {
		ada, bob := w.User("ada"), w.User("bob")
		root := w.Post(ada, schema.Public)
		all := endpoint(w, d, "https://app.example.com/all", "post.*")
		reply, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "a reply", ReplyTo: root})
		require.NoError(w, err)
		further, err := w.Feed.CreatePost(w.Ctx, ada, feed.Draft{Text: "a further one", ReplyTo: reply.ID})
		require.NoError(w, err)
		_, err = w.Feed.UpdatePost(w.Ctx, ada, further.ID, feed.Edit{Text: new("edited")})
		require.NoError(w, err)
		_, err = w.Feed.Repost(w.Ctx, ada, reply.ID, nil)
		require.NoError(w, err)
		quote, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "a quote", QuoteOf: root})
		require.NoError(w, err)
		_, err = w.Feed.WithdrawQuote(w.Ctx, ada, quote.ID)
		require.NoError(w, err)
		_, err = w.Feed.UndoRepost(w.Ctx, ada, reply.ID)
		require.NoError(w, err)

		node := func(id int64) string { return ent.NodeID("Post", id) }
		links := func(replyTo, root int64) map[string]any {
			return map[string]any{"replyTo": node(replyTo), "root": node(root)}
		}
		want := []map[string]any{
			links(root, root), links(reply.ID, root), links(reply.ID, root),
			{"repostOf": node(reply.ID), "root": node(root), "text": ""},
			{"quoteOf": node(root)}, {"quoteOf": node(root), "quoteWithdrawn": true}, {},
		}
		told := deliveries(w, d, all)
		require.Len(w, told, len(want))
		for i, row := range told {
			var body struct {
				Data struct{ Post map[string]any }
			}
			require.NoError(w, json.Unmarshal([]byte(row.Body), &body))
			for _, field := range []string{"replyTo", "root", "repostOf", "quoteOf", "quoteWithdrawn"} {
				require.Equal(w, want[i][field], body.Data.Post[field], "%s in %s", field, row.Body)
			}
			if text, ok := want[i]["text"]; ok {
				require.Equal(w, text, body.Data.Post["text"])
			}
		}
	})
}

// Events about a post of another server, including its deletion, have the post's id at that server.
// A deleted user has only ids.
func TestEventsNameExternalIDs(t *testing.T) {
	each(t, func(w *feedtest.World, d *webhook.Deliverer) {
		all := endpoint(w, d, "https://app.example.com/all")
		users, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "7"}})
		require.NoError(w, err)
		posts, err := w.Bulk.Posts(w.Ctx, "app", []bulk.Post{{ExternalID: "p1", Author: "7", Text: "Hello"}})
		require.NoError(w, err)
		seven := session.Viewer{ID: users[0].User}
		_, err = w.Feed.LikePost(w.Ctx, seven, posts[0].Post)
		require.NoError(w, err)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, seven, posts[0].Post))
		tx, err := w.Stores.DB.Tx(w.Ctx)
		require.NoError(w, err)
		u, err := tx.User.Get(w.Ctx, seven.ID)
		require.NoError(w, err)
		require.NoError(w, webhook.NewOutbox(w.Stores.DB, nil, nil).User(w.Ctx, tx, webhook.UserDeleted, u))
		require.NoError(w, tx.Commit())
		rows := deliveries(w, d, all)
		require.Len(w, rows, 3, "what the other server sends in bulk is not told to it")
		for i, part := range []string{`"externalId":"p1","issuer":"app"`, `"externalId":"p1","issuer":"app","author"`, `{"user":{"id":"` + ent.NodeID("User", seven.ID) + `","externalId":"7","issuer":"app"}}`} {
			require.Contains(w, rows[i].Body, part)
		}
	})
}

// A change of the handle is sent as a change of the profile. The last event of a user has the
// newest profile, whichever of two calls that change different fields commits last.
func TestUserUpdatedHasTheNewestProfile(t *testing.T) {
	each(t, func(w *feedtest.World, d *webhook.Deliverer) {
		all := endpoint(w, d, "https://app.example.com/all", "user.*")
		ada := w.User("ada")
		u, err := w.Accounts.ChangeHandle(w.Ctx, ada, "Lovelace")
		require.NoError(w, err)
		require.Equal(w, "lovelace", u.Handle)
		told := deliveries(w, d, all)
		require.Equal(w, webhook.UserUpdated, told[len(told)-1].Type)
		require.Contains(w, told[len(told)-1].Body, `"handle":"lovelace"`)
		if w.Stores.Dialect != dialect.Postgres { // SQLite has one writer
			return
		}

		name, err := w.Stores.DB.Tx(w.Ctx)
		require.NoError(w, err)
		u, err = name.User.UpdateOneID(ada.ID).SetName("Ada Lovelace").Save(w.Ctx)
		require.NoError(w, err)
		require.NoError(w, webhook.NewOutbox(w.Stores.DB, nil, nil).User(w.Ctx, name, webhook.UserUpdated, u))
		data := make(chan error, 1)
		go func() {
			_, err := w.Accounts.UpdateProfile(w.Ctx, ada, account.Profile{Data: new(`{"k":1}`)})
			data <- err
		}()
		require.Eventually(w, func() bool {
			var waiting int
			err := w.Stores.SQL.QueryRowContext(w.Ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waiting)
			return err == nil && waiting > 0 || len(data) > 0
		}, time.Minute, 2*time.Millisecond)
		require.NoError(w, name.Commit())
		require.NoError(w, <-data)
		told = deliveries(w, d, all)
		require.Contains(w, told[len(told)-1].Body, `"name":"Ada Lovelace"`)
		require.Contains(w, told[len(told)-1].Body, `"data":{"k":1}`)
	})
}

// A change that is rolled back, or commits without an endpoint, leaves no event. Without endpoints
// a new post costs no statement more. With endpoints it costs at most one, and on PostgreSQL no round trip.
func TestEventsCostNothingWithoutAnEndpoint(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now()
		outbox := webhook.NewOutbox(s.DB, nil, func() time.Time { return now })
		plain := feedtest.New(t, s, feedtest.Options{})
		w := feedtest.New(t, s, feedtest.Options{Webhooks: outbox})
		w.Run(w.IDs.Run)
		d := deliverer(w, webhook.Config{})
		ada := w.User("ada")
		cost := func(w *feedtest.World) int {
			before := storagetest.Queries(s)
			w.Post(ada, schema.Public)
			return storagetest.Queries(s) - before
		}
		without := cost(plain)
		require.True(t, outbox.Wanted(), "nobody has looked yet")
		require.NoError(t, outbox.Refresh(t.Context()))
		require.False(t, outbox.Wanted())
		require.Equal(t, without, cost(w))

		all := endpoint(w, d, "https://app.example.com/all")
		w.Post(ada, schema.Public)
		require.Empty(t, deliveries(w, d, all), "the process does not know of the endpoint yet")
		now = now.Add(webhook.KnownFor + time.Millisecond)
		require.True(t, outbox.Wanted(), "what a process knows does not last")
		w.Post(ada, schema.Public)
		require.Len(t, deliveries(w, d, all), 1)
		require.NoError(t, outbox.Refresh(t.Context()))
		require.True(t, outbox.Wanted())
		more := 1
		if s.Dialect == dialect.Postgres {
			more = 0 // it is sent together with the post
		}
		require.Equal(t, without+more, cost(w))

		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		u, err := tx.User.Get(t.Context(), ada.ID)
		require.NoError(t, err)
		require.NoError(t, outbox.User(t.Context(), tx, webhook.UserUpdated, u))
		require.NoError(t, tx.Rollback())
		require.Len(t, deliveries(w, d, all), 2)
		_, err = w.Feed.CreatePost(t.Context(), ada, feed.Draft{Text: strings.Repeat("x", feed.DefaultMaxText+1)})
		require.Error(t, err)
		require.Len(t, deliveries(w, d, all), 2)
	})
}

// Other servers are told about a deleted user once the deletion cannot be undone. All other pending
// events about the user are deleted.
func TestDeletedUserIsToldOnceAndLeavesNothingElse(t *testing.T) {
	each(t, func(w *feedtest.World, d *webhook.Deliverer) {
		all := endpoint(w, d, "https://app.example.com/all")
		gone, stays := w.User("gone"), w.User("stays")
		w.Follow(stays, gone)
		_, err := w.Feed.LikePost(w.Ctx, gone, w.Post(stays, schema.Public))
		require.NoError(w, err)
		w.Post(gone, schema.Public)
		w.Work()
		w.Drain()
		_, _, err = w.Accounts.Delete(w.Ctx, gone.ID, time.Hour)
		require.NoError(w, err)
		require.NotContains(w, typesOf(w, d, all), webhook.UserDeleted, "the user may come back")
		_, _, err = w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.NoError(w, err)
		_, _, err = w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.True(w, err == nil || refusal.CodeOf(err) == refusal.NotFound, "the user may be gone by now: %v", err)
		w.Drain()
		var types []string
		for _, row := range deliveries(w, d, all) {
			if strings.Contains(row.Body, ent.NodeID("User", gone.ID)) {
				types = append(types, row.Type)
			}
		}
		require.Equal(w, []string{webhook.UserDeleted}, types)
		require.Contains(w, typesOf(w, d, all), webhook.PostCreated, "what others did stays")
	})
}
