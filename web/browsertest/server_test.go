// Package browsertest drives the app in headless Chromium, on the whole program.
//
// All tests share one Chromium process. Each user in a test has a separate window with
// separate storage. A test fails if one of its pages logs an error on the console or sends a
// request to another host.
package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	// The import makes the test cache depend on the sources of the program that build compiles.
	_ "tideline/server"
	"tideline/storage/storagetest"
)

var (
	program string // the path of the built tideline
	build   = sync.OnceValue(func() error { return storagetest.Build(program, "tideline", false) })
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tideline-browser")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "tideline")
	code := m.Run()
	chromium.stop()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// site is a tideline process with its own database.
type site struct {
	t       *testing.T
	address string // host:port, the same after a restart
	url     string
	admin   string // the URL of the admin page, "" if it is off
	data    string
	// settings are further environment variables.
	settings []string
	cmd      *exec.Cmd
	log      *bytes.Buffer
}

func serve(t *testing.T) *site {
	t.Helper()
	s := prepare(t)
	s.start()
	return s
}

// prepare returns a site that is not started yet.
func prepare(t *testing.T) *site {
	t.Helper()
	storagetest.Chromium(t) // skips the test if there is none
	var ready errgroup.Group
	ready.Go(build)
	browser(t)
	require.NoError(t, ready.Wait())
	s := &site{t: t, address: storagetest.FreeAddress(t), data: t.TempDir()}
	s.url = "http://" + s.address
	t.Cleanup(s.stop)
	return s
}

func (s *site) start() {
	s.t.Helper()
	s.log = &bytes.Buffer{}
	s.cmd = s.command()
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(s.t, s.cmd.Start())
	require.Eventually(s.t, func() bool {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond, "the server is not ready")
}

// command returns a command that runs the program with the settings of the site.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	for _, entry := range os.Environ() {
		// The settings of the developer must not change the tests.
		if !strings.HasPrefix(entry, "TIDELINE_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "TIDELINE_ADDR="+s.address, "TIDELINE_DATA_DIR="+s.data, "TIDELINE_RATE_LIMIT=off",
		"TIDELINE_REQUEST_TIMEOUT=1m", // a busy machine needs more time
		"TIDELINE_MAX_PAGE=20")        // the app must work with the minimum
	cmd.Env = append(cmd.Env, s.settings...)
	if s.admin != "" && len(args) == 0 { // only the server takes the address
		cmd.Env = append(cmd.Env, "TIDELINE_ADMIN_ADDR="+strings.TrimPrefix(s.admin, "http://"))
	}
	return cmd
}

func (s *site) stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	err := s.cmd.Wait()
	s.cmd = nil
	require.NoError(s.t, err, s.log.String())
}

// person is a user of the API. browse opens a browser for the same user.
type person struct {
	s         *site
	token, id string
	session   json.RawMessage // as the app stores it
	agent     string          // the User-Agent header; that of Go if ""
}

const password = "correct horse"

func (s *site) signUp(handle string) *person {
	s.t.Helper()
	var answer struct{ SignUp json.RawMessage }
	p := &person{s: s}
	p.must(`mutation($i: SignUpInput!) { signUp(input: $i) { token user { id handle name defaultVisibility } } }`,
		map[string]any{"handle": handle, "password": password, "name": strings.ToUpper(handle[:1]) + handle[1:]}, &answer)
	p.session = answer.SignUp
	var session struct {
		Token string
		User  struct{ ID string }
	}
	require.NoError(s.t, json.Unmarshal(p.session, &session))
	p.token, p.id = session.Token, session.User.ID
	return p
}

func (p *person) post(text string) string {
	p.s.t.Helper()
	id, err := p.tryPost(text)
	require.NoError(p.s.t, err)
	return id
}

func (p *person) tryPost(text string) (string, error) {
	var answer struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	err := p.ask(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, map[string]any{"text": text}, &answer)
	return answer.CreatePost.Post.ID, err
}

// awaitLikes waits until the server counts n likes of the post.
func (p *person) awaitLikes(post string, n int) {
	p.s.t.Helper()
	require.Eventually(p.s.t, func() bool {
		var answer struct{ Node struct{ LikeCount int } }
		err := p.ask(`query($i: ID!) { node(id: $i) { ... on Post { likeCount } } }`, post, &answer)
		return err == nil && answer.Node.LikeCount == n
	}, time.Minute, 20*time.Millisecond)
}

// relate changes the relation to another person: how is follow, block or another mutation of the API.
func (p *person) relate(how string, other *person) {
	p.s.t.Helper()
	p.must(`mutation($i: UserInput!) { `+how+`(input: $i) { user { id } } }`, map[string]any{"userId": other.id}, nil)
}

func (p *person) must(query string, input map[string]any, result any) {
	p.s.t.Helper()
	require.NoError(p.s.t, p.ask(query, input, result))
}

// ask runs an operation whose only variable is its input i.
func (p *person) ask(query string, input, result any) error {
	body, err := json.Marshal(map[string]any{"query": query, "variables": map[string]any{"i": input}})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, p.s.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if p.agent != "" {
		request.Header.Set("User-Agent", p.agent)
	}
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return errors.New(answer.Errors[0].Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Data, result)
}

// browse opens a browser in which the person is logged in. Only the first page of the browser
// stores the session, so that a log-out lasts.
func (p *person) browse(before ...chromedp.Action[chromedp.Void]) *page {
	p.s.t.Helper()
	keep := `if (location.origin === ` + js(p.s.url) + ` && !sessionStorage['kept']) {
		sessionStorage['kept'] = true
		localStorage['tideline:session'] = ` + js(string(p.session)) + `
	}`
	b := open(p.s.t, p.s.url, append(before, begins(keep))...)
	b.see(live)
	return b
}

// begins runs a script at the start of each page of the browser.
func begins(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// live is an expression that is true while the page has a live subscription, in every language.
const live = `document.querySelector('.live')?.dataset.status === 'live'`
