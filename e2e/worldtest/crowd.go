package worldtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
)

// Crowd is a running crowd.mjs or kit.mjs: a Node process with clients that follow
// timelines. Its methods are safe for concurrent use.
type Crowd struct {
	turn  sync.Mutex // held during a request and its answer
	in    io.WriteCloser
	lines *bufio.Scanner
	ended func() error
}

// Client is the reported state of a client: the posts it holds and a summary of its
// history.
type Client struct {
	// Held are the ids of the posts that the client holds. Twice are the ids of posts
	// that were added again while the client already held them.
	Held, Twice []string
	// Texts are the texts of the held posts, in the order of Held. Only clients of the kit
	// and Go clients report them.
	Texts []string
	// Failed are the errors that ended the subscription, and the posts that the client
	// received although their text marks them as secret.
	Failed               []any
	Resumed, Invalidated int
	// Beat is the time of the last event, heartbeats included, in Unix milliseconds.
	Beat int64
	// Behind says that the client knows that it has not read everything yet. Only clients
	// of the kit and Go clients report it.
	Behind bool
	// Server is the index of the server that the client connected to last. A steady client
	// always connects to the same server.
	Server int
	// Story returns what the client received about a post, one line per message. Only
	// clients of the kit have it; it is nil for others.
	Story func(post string) string
}

// Told is an event that a client received: a post was added, a post was removed, or the
// timeline was invalidated.
type Told struct {
	At   int64 // Unix milliseconds
	Kind string
	Post string
}

// Time returns when the client received the event.
func (e Told) Time() time.Time { return time.UnixMilli(e.At) }

// NewCrowd starts one client per user and returns when all are connected. The first
// steady clients never break their connections and always reconnect to the same server.
// The others break their connections now and then and reconnect to another server. The
// crowd ends with the test. NewCrowd skips the test as [NeedNode] does.
func NewCrowd(t *testing.T, users []User, steady int, servers ...*Process) *Crowd {
	t.Helper()
	NeedNode(t)
	return startCrowd(t, "crowd.mjs", map[string]any{"steady": steady}, users, servers)
}

// NewKitCrowd is like [NewCrowd], but its clients use the TypeScript client kit instead
// of graphql-ws, and all of them break their connections. It compiles the kit.
func NewKitCrowd(t *testing.T, users []User, servers ...*Process) *Crowd {
	t.Helper()
	NeedNode(t)
	needKit(t)
	var viewers []string
	for _, u := range users {
		viewers = append(viewers, GlobalID("User", u.ID))
	}
	return startCrowd(t, "kit.mjs", map[string]any{"viewers": viewers}, users, servers)
}

func startCrowd(t *testing.T, script string, setup map[string]any, users []User, servers []*Process) *Crowd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("..", "worldtest", script))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	c := &Crowd{in: in, lines: bufio.NewScanner(out), ended: sync.OnceValue(cmd.Wait)}
	t.Cleanup(func() { _ = c.Close() }) // the test's context has already killed the process
	var urls, tokens []string
	for _, s := range servers {
		urls = append(urls, s.URL+"/graphql")
	}
	for _, u := range users {
		tokens = append(tokens, u.Token)
	}
	c.lines.Buffer(nil, 64<<20)
	setup["urls"], setup["tokens"] = urls, tokens
	line, err := json.Marshal(setup)
	require.NoError(t, err)
	var answer struct{ Ready bool }
	require.NoError(t, c.ask(string(line), &answer))
	require.True(t, answer.Ready)
	return c
}

// Close ends the clients. It may be called more than once.
func (c *Crowd) Close() error {
	_ = c.in.Close()
	return c.ended()
}

// ask sends a line and decodes the line that the process answers.
func (c *Crowd) ask(line string, answer any) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		return errors.Join(err, c.Close())
	}
	if !c.lines.Scan() {
		return errors.Join(errors.New("the crowd has ended"), c.lines.Err(), c.Close())
	}
	return json.Unmarshal(c.lines.Bytes(), answer)
}

// Calm makes the clients keep their connections from now on.
func (c *Crowd) Calm() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if _, err := fmt.Fprintln(c.in, "calm"); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// Report returns the clients in the order of the users. It waits until no client is
// reading its timeline again.
func (c *Crowd) Report() ([]Client, error) {
	var answer struct{ Clients []Client }
	err := c.ask("report", &answer)
	for i := range answer.Clients {
		if answer.Clients[i].Texts != nil {
			answer.Clients[i].Story = func(post string) string { return c.story(i, post) }
		}
	}
	return answer.Clients, err
}

// Told returns the events that each client has received so far, in order.
func (c *Crowd) Told() ([][]Told, error) {
	var answer struct{ Told [][]Told }
	err := c.ask("told", &answer)
	return answer.Told, err
}

// story asks a client of the kit what it received about a post.
func (c *Crowd) story(client int, post string) string {
	var answer struct{ Story []string }
	if err := c.ask(fmt.Sprintf("story %d %s", client, post), &answer); err != nil {
		return err.Error()
	}
	return strings.Join(answer.Story, "\n") + "\n"
}

// NeedNode skips the test if node or the npm packages are missing. With
// TIDELINE_TEST_REQUIRE_REAL=1 the test fails instead.
func NeedNode(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join("..", "node_modules", "graphql-ws"))
	}
	if err == nil {
		return
	}
	if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("the npm clients are required here (npm ci in e2e): %v", err)
	}
	t.Skipf("SKIPPED, RESUMING NOT TESTED WITH THE NPM CLIENT (npm ci in e2e): %v", err)
}

var compileKit = sync.OnceValue(func() error {
	kit := filepath.Join("..", "..", "clients", "typescript")
	out, err := exec.Command("node", filepath.Join(kit, "node_modules", "typescript", "bin", "tsc"), "--project", kit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile the kit: %w\n%s", err, out)
	}
	return nil
})

// needKit compiles the kit, or skips the test if the kit's npm packages are missing.
// With TIDELINE_TEST_REQUIRE_REAL=1 the test fails instead.
func needKit(t *testing.T) {
	t.Helper()
	kit := filepath.Join("..", "..", "clients", "typescript")
	if _, err := os.Stat(filepath.Join(kit, "node_modules", "graphql-ws")); err != nil {
		const missing = "npm ci has not run in clients/typescript: the kit is NOT tested"
		require.Empty(t, os.Getenv("TIDELINE_TEST_REQUIRE_REAL"), missing)
		t.Skip(missing)
	}
	sources, err := filepath.Glob(filepath.Join(kit, "src", "*.ts"))
	require.NoError(t, err)
	for _, source := range sources {
		// The go command caches test results and tracks the files that a test reads. This
		// read makes it run the test again after a change of the kit.
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	require.NoError(t, compileKit())
}

// NewUser writes a user with a session directly into the database. Signing up would be
// slower, because password hashes are slow by design.
func NewUser(ctx context.Context, s *storage.Stores, id int64, handle string) (User, error) {
	u := User{ID: id, Handle: handle, Token: "token of " + handle}
	if err := s.DB.User.Create().SetID(id).SetHandle(handle).SetPasswordHash("-").Exec(ctx); err != nil {
		return u, err
	}
	hash := sha256.Sum256([]byte(u.Token))
	return u, s.DB.Session.Create().SetUserID(id).SetTokenHash(hash[:]).
		SetExpiresAt(time.Now().UTC().Add(12 * time.Hour)).Exec(ctx)
}

// Follow makes one user follow another, in the database.
func Follow(ctx context.Context, s *storage.Stores, follower, followee User) error {
	return errors.Join(
		s.DB.Follow.Create().SetFollowerID(follower.ID).SetFolloweeID(followee.ID).Exec(ctx),
		s.DB.User.UpdateOneID(follower.ID).AddFollowingCount(1).Exec(ctx),
		s.DB.User.UpdateOneID(followee.ID).AddFollowerCount(1).Exec(ctx))
}
