package examples

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// startApp starts Tideline and the example app with "make example", and returns their
// addresses.
func startApp(t *testing.T) (app, tideline string) {
	t.Helper()
	sources, err := filepath.Glob("app/*")
	require.NoError(t, err)
	pages, err := filepath.Glob("app/page/*")
	require.NoError(t, err)
	for _, source := range append(sources, pages...) {
		_, _ = os.ReadFile(source) // go test runs the test again when a file that it has read changes
	}
	tidelineProgram(t) // compile first: it takes longer than what follows

	app, tideline = storagetest.FreeAddress(t), storagetest.FreeAddress(t)
	lines, stop := start(t, []string{"MAKEFLAGS=", "APP_ADDR=" + app, "TIDELINE_ADDR=" + tideline, "TIDELINE_REQUEST_TIMEOUT=1m"},
		"make", "-C", "..", "--no-print-directory", "example")
	app, tideline = "http://"+app, "http://"+tideline
	expect(t, lines, "The app is at "+app+"/, and Tideline at "+tideline+"/graphiql. Ctrl-C stops both.")
	t.Cleanup(func() {
		stop()
		for _, address := range []string{app, tideline} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
			if err == nil {
				conn.Close()
			}
			require.Error(t, err, "%s outlives the script", address)
		}
	})
	return app, tideline
}

// person is a user of the app, with the cookies of a browser.
type person struct {
	*site
	app                   string
	client                http.Client
	token, id, externalID string
}

// signIn signs in at the app, and asks Tideline for the user's ids.
func (s *site) signIn(app, name string) *person {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	p := &person{site: s, app: app, client: http.Client{Jar: jar}}
	require.Equal(s.t, http.StatusNoContent, p.do("/sign-in", map[string]string{"name": name}, nil))
	var pass struct{ Token, GraphQL string }
	require.Equal(s.t, http.StatusOK, p.do("/token", nil, &pass))
	require.Equal(s.t, s.url+"/graphql", pass.GraphQL)
	p.token = pass.Token
	var answer struct {
		Viewer struct{ ID, Name, ExternalID string }
	}
	s.ask(p.token, `{ viewer { id name externalId } }`, nil, &answer)
	require.Equal(s.t, name, answer.Viewer.Name)
	p.id, p.externalID = answer.Viewer.ID, answer.Viewer.ExternalID
	return p
}

// do sends a POST request to the app, as its page does.
func (p *person) do(path string, body, result any) (status int) {
	p.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(p.t, err)
	response, err := p.client.Post(p.app+path, "application/json", bytes.NewReader(text))
	require.NoError(p.t, err)
	defer response.Body.Close()
	if result != nil {
		require.NoError(p.t, json.NewDecoder(response.Body).Decode(result))
	}
	return response.StatusCode
}

// knows reports whether the person finds a user with this external id at Tideline.
func (p *person) knows(externalID string) bool {
	p.t.Helper()
	var answer struct{ UserByExternalID *struct{ ID string } }
	p.ask(p.token, `query ($id: String!) { userByExternalId(externalId: $id) { id } }`, map[string]any{"id": externalID}, &answer)
	return answer.UserByExternalID != nil
}

// timeline returns the texts and the position of the person's timeline.
func (p *person) timeline() (texts []string, position string) {
	p.t.Helper()
	var answer struct {
		Timeline struct {
			Position string
			Nodes    []struct{ Text string }
		}
	}
	p.ask(p.token, `{ timeline { position nodes { text } } }`, nil, &answer)
	for _, post := range answer.Timeline.Nodes {
		texts = append(texts, post.Text)
	}
	return texts, answer.Timeline.Position
}

type liveEvent struct {
	Typename string `json:"__typename"`
	Edge     struct{ Node struct{ Text string } }
}

// listen subscribes to the person's timeline as the app's page does, with the app's origin.
// It returns a function that waits for the next event.
func (p *person) listen(after string) (next func() liveEvent) {
	p.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}
	conn, _, err := dialer.Dial(strings.Replace(p.url, "http", "ws", 1)+"/graphql", http.Header{"Origin": {p.app}})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	require.NoError(p.t, conn.WriteJSON(map[string]any{"type": "connection_init", "payload": map[string]string{"Authorization": "Bearer " + p.token}}))
	require.NoError(p.t, conn.WriteJSON(map[string]any{"id": "1", "type": "subscribe", "payload": map[string]any{
		"query": `subscription ($after: Cursor) { timelineEvents(after: $after) {
			__typename ... on TimelinePostAdded { edge { node { text } } } } }`,
		"variables": map[string]string{"after": after},
	}}))
	return func() liveEvent {
		p.t.Helper()
		require.NoError(p.t, conn.SetReadDeadline(time.Now().Add(patience)))
		for {
			var message struct {
				Type    string
				Payload json.RawMessage
			}
			require.NoError(p.t, conn.ReadJSON(&message))
			switch message.Type {
			case "next":
				var answer struct {
					Data struct{ TimelineEvents liveEvent }
				}
				require.NoError(p.t, json.Unmarshal(message.Payload, &answer))
				return answer.Data.TimelineEvents
			case "error", "complete":
				require.FailNow(p.t, "the subscription ended", "%s", message.Payload)
			}
		}
	}
}

// A post of one user of the example app reaches another user live. A user who deletes the
// account in the app is deleted at Tideline.
func TestApp(t *testing.T) {
	t.Parallel()
	app, tideline := startApp(t)
	s := &site{t: t, url: tideline}
	ada, bob := s.signIn(app, "Ada"), s.signIn(app, "Bob")
	s.ask(ada.token, `mutation ($u: ID!) { follow(input: { userId: $u }) { user { id } } }`, map[string]any{"u": bob.id}, &struct{}{})
	_, position := ada.timeline()
	next := ada.listen(position)

	s.ask(bob.token, `mutation { createPost(input: { text: "High water" }) { post { id } } }`, nil, &struct{}{})
	var texts []string
	for len(texts) == 0 {
		// A server that loses Redis for a moment invalidates the timeline. The post is then on the
		// page that is read again, or comes later.
		if event := next(); event.Typename == "TimelinePostAdded" {
			require.Equal(t, "High water", event.Edge.Node.Text)
		} else {
			require.Equal(t, "TimelineInvalidated", event.Typename)
		}
		texts, _ = ada.timeline()
	}
	require.Equal(t, []string{"High water"}, texts)
	require.True(t, ada.knows(bob.externalID))

	require.Equal(t, http.StatusNoContent, bob.do("/delete-account", nil, nil))
	require.False(t, ada.knows(bob.externalID))
	texts, _ = ada.timeline()
	require.Empty(t, texts)
	event := next()
	for event.Typename == "TimelinePostAdded" {
		event = next() // the post was already on the page
	}
	require.Contains(t, []string{"TimelineInvalidated", "TimelinePostRemoved"}, event.Typename)

	require.Equal(t, http.StatusUnauthorized, bob.do("/token", nil, nil))
	again := s.signIn(app, "Bob")
	require.NotEqual(t, bob.externalID, again.externalID, "the row of the former Bob is still there")

	t.Run("page", func(t *testing.T) { lookAtPage(t, app) })
}
