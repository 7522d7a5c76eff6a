package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/server/limit"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// site serves the app and the API of a World.
type site struct {
	*feedtest.World
	process *process
	mux     *http.ServeMux
}

func newSite(t *testing.T, s *storage.Stores, args ...string) site {
	c, err := parse(t, append([]string{"--avatar-hosts=img.example.org", "--request-timeout=1m"}, args...)...)
	require.NoError(t, err)
	w := feedtest.Idle(t, s, feedtest.Options{})
	p := &process{Backend: w.Backend, config: c, metrics: newMetrics(), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	p.limits, err = limit.New(s.Redis, c.limits(p.log))
	require.NoError(t, err)
	mux := http.NewServeMux()
	require.NoError(t, p.serveAPI(t.Context(), mux))
	return site{w, p, mux}
}

// get returns the answer to a visitor.
func (s site) get(address string) *http.Response {
	s.Helper()
	r := httptest.NewRequest(http.MethodGet, address, nil)
	r.Host = "feed.example.com"
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w.Result()
}

func (s site) read(response *http.Response) string {
	s.Helper()
	body, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return string(body)
}

// shows requires that the address has a preview with the texts.
func (s site) shows(address string, texts ...string) {
	s.Helper()
	response := s.get(address)
	require.Equal(s, http.StatusOK, response.StatusCode, address)
	body := s.read(response)
	for _, text := range texts {
		require.Contains(s, body, text, address)
	}
}

// hides requires that the addresses are answered exactly as one at which there never was anything.
func (s site) hides(addresses ...string) {
	s.Helper()
	unknown := s.get("/post/UG9zdDox")
	nothing := s.read(unknown)
	require.Contains(s, nothing, "<title>Tideline</title>")
	require.NotContains(s, nothing, "og:")
	for _, address := range addresses {
		response := s.get(address)
		require.Equal(s, http.StatusNotFound, response.StatusCode, address)
		require.Equal(s, unknown.Header, response.Header, address)
		require.Equal(s, nothing, s.read(response), address)
	}
}

func (s site) say(author session.Viewer, d feed.Draft) (id int64, address string) {
	s.Helper()
	p, err := s.Feed.CreatePost(s.Ctx, author, d)
	require.NoError(s, err)
	return p.ID, addressOf(p.ID)
}

func addressOf(post int64) string { return "/post/" + (&ent.Post{ID: post}).NodeID() }

func TestPreviewOfAPostAndAProfile(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, stores *storage.Stores) {
		s := newSite(t, stores)
		ann, bob := s.User("ann"), s.User("bob")
		s.Stores.DB.User.UpdateOneID(ann.ID).SetName(`Ann "<script>alert(1)</script>`).SetBio("On & off\nthe shore").ExecX(s.Ctx)
		s.Stores.DB.User.UpdateOneID(bob.ID).SetAvatarURL("https://img.example.org/bob.png?a=1&b=2").ExecX(s.Ctx)
		id, post := s.say(ann, feed.Draft{Text: "Low  water\n\"now\" </title><b>" + strings.Repeat("é", 300)})
		const name = `Ann &#34;&lt;script&gt;alert(1)&lt;/script&gt; (@ann)`
		s.shows(post,
			`<title>`+name+` · Tideline</title>`,
			`<meta property="og:title" content="`+name+`">`,
			`<meta property="og:type" content="article">`,
			`<meta name="description" content="Low water &#34;now&#34; &lt;/title&gt;&lt;b&gt;é`,
			`é…">`,
			`<link rel="canonical" href="http://feed.example.com`+post+`">`,
			`<meta property="og:url" content="http://feed.example.com`+post+`">`,
			`<meta property="og:image" content="http://feed.example.com/preview.png">`,
			`<meta name="twitter:card" content="summary_large_image">`)
		s.shows(post+"?from=somewhere", `href="http://feed.example.com`+post+`">`)
		body := s.read(s.get(post))
		require.NotContains(t, body, "<script>")
		require.NotContains(t, body, "</title><b>")
		require.Less(t, len(body), 4<<10)
		require.Contains(t, s.get(post).Header.Get("Content-Security-Policy"), "script-src 'self';")

		s.shows("/@ANN", `<meta property="og:type" content="profile">`, `content="On &amp; off the shore"`, `href="http://feed.example.com/@ann">`)
		_, quote := s.say(bob, feed.Draft{Text: "Look", QuoteOf: id})
		s.shows(quote, `content="bob (@bob)"`, `content="Look"`, `<meta property="og:image" content="https://img.example.org/bob.png?a=1&amp;b=2">`, `content="summary"`)
		_, reply := s.say(bob, feed.Draft{Text: "Aye", ReplyTo: id})
		s.shows(reply, `content="Aye"`)
		repost, err := s.Feed.Repost(s.Ctx, bob, id, nil)
		require.NoError(t, err)
		s.shows(addressOf(repost.ID), `content="`+name+`"`, `<link rel="canonical" href="http://feed.example.com`+post+`">`)
		s.shows("/", `<meta property="og:type" content="website">`, `href="http://feed.example.com/"`)
		s.hides("/@nobody", "/post/nonsense", "/post/"+(&ent.User{ID: ann.ID}).NodeID(), "/@ann%20or%20bob", "/no/such/page")
	})
}

// What a visitor may not see at this moment has the answer of what does not exist.
func TestPreviewObeysTheRuleAtThatMoment(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, stores *storage.Stores) {
		s := newSite(t, stores)
		do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		ann, bob := s.SignUp("ann", "correct horse"), s.User("bob")
		s.Befriend(ann, bob)
		for _, v := range []schema.Visibility{schema.Followers, schema.Mutuals, schema.Private} {
			s.hides(addressOf(s.Post(ann, v)))
		}
		id, post := s.say(ann, feed.Draft{Text: "Low water"})
		_, reply := s.say(bob, feed.Draft{Text: "Aye", ReplyTo: id})
		_, quote := s.say(bob, feed.Draft{Text: "Look", QuoteOf: id})
		reposted, err := s.Feed.Repost(s.Ctx, bob, id, nil)
		require.NoError(t, err)
		repost := addressOf(reposted.ID)
		all := func() {
			t.Helper()
			s.shows(post, "Low water")
			s.shows(repost, "Low water")
			s.shows(reply, "Aye")
			s.shows("/@ann", "ann (@ann)")
		}
		none := func(also ...string) {
			t.Helper()
			s.hides(append(also, post, repost, reply)...)
			s.shows(quote, "Look")
		}

		all()
		do(s.Feed.SetVisibility(s.Ctx, ann, id, schema.Followers))
		none()
		do(s.Feed.SetVisibility(s.Ctx, ann, id, schema.Public))
		all()
		do(s.Feed.HidePost(s.Ctx, id, true, func(*ent.Tx, int64) error { return nil }))
		none()
		do(s.Feed.HidePost(s.Ctx, id, false, func(*ent.Tx, int64) error { return nil }))
		all()
		do(s.Moderation.Suspend(s.Ctx, moderation.Console, ann.ID, "", account.Suspension{}))
		none("/@ann")
		do(s.Moderation.Unsuspend(s.Ctx, moderation.Console, ann.ID, ""))
		all()
		do(s.Login.DeleteAccount(s.Ctx, ann, "correct horse"))
		none("/@ann")
		do(s.Login.LogIn(s.Ctx, "ann", "correct horse"))
		all()
		require.NoError(t, s.Feed.DeletePost(s.Ctx, ann, id))
		none()
	})
}

// A preview costs what the same query of the visitor costs. Beyond the rate the app is served without it, and says itself
// what it is refused.
func TestPreviewsCountAgainstTheAddress(t *testing.T) {
	s := newSite(t, storagetest.Embedded(t), "--rate-cost=1000", "--max-cost=100")
	_, post := s.say(s.User("ann"), feed.Draft{Text: "Low water"})
	begun := time.Now()
	previews := 0
	for strings.Contains(s.read(s.get(post)), "Low water") {
		previews++
		require.Less(t, previews, 5+int(time.Since(begun).Seconds()), "the burst is 333, and 1,000 more come in a minute")
	}
	require.Positive(t, previews)
	response := s.get(post)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "no-cache", response.Header.Get("Cache-Control"))
	require.Eventually(t, func() bool {
		return s.get("/graphql?query="+url.QueryEscape("{viewer{id}}")).StatusCode == http.StatusTooManyRequests
	}, time.Minute, time.Millisecond)
}

// While PostgreSQL is silent, a link soon leads to the app without a preview.
func TestPreviewWhileSQLIsSilent(t *testing.T) {
	cfg := storagetest.Config(storagetest.Real(t))
	u, err := url.Parse(cfg.DatabaseURL)
	require.NoError(t, err)
	proxy := storagetest.StartProxy(t, "tcp", u.Host)
	u.Host = proxy.Addr
	cfg.DatabaseURL = u.String()
	s := newSite(t, storagetest.Open(t, cfg))
	_, post := s.say(s.User("ann"), feed.Draft{Text: "Low water"})
	s.shows(post, "Low water")
	proxy.Silence(true)
	defer proxy.Silence(false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*previewTimeout) // a busy machine needs more time
	defer cancel()
	answered := make(chan *http.Response, 1)
	go func() { answered <- s.get(post) }()
	select {
	case response := <-answered:
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.NotContains(t, s.read(response), "Low water")
	case <-ctx.Done():
		t.Fatal("the page waits for PostgreSQL")
	}
}
