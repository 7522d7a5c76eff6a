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

// Crowd is a running crowd.mjs: clients that follow timelines. Its methods may be
// called concurrently.
type Crowd struct {
	turn  sync.Mutex // of those who ask
	in    io.WriteCloser
	lines *bufio.Scanner
	ended func() error
}

// Client is what a client of a crowd holds, and what it went through.
type Client struct {
	// Held are the posts that it shows; Twice are those that it was told of while
	// it held them.
	Held, Twice []string
	// Texts are what a client of the kit, or in Go, shows of the posts that it holds, in their order.
	Texts []string
	// Failed are the errors that ended its subscription, and the posts that it was
	// shown though their text says that nobody may see them.
	Failed               []any
	Resumed, Invalidated int
	// Beat is when it was told something, a heartbeat at least: Unix milliseconds.
	Beat int64
	// Behind says that such a client has yet to read what it knows it lacks.
	Behind bool
	// Server is which of the servers it went to last, or always when it is steady.
	Server int
	// Story is of a client of the kit: what it was told and read of a post, a line each.
	Story func(post string) string
}

// Told is an event that a client got: a post was added or removed, or the timeline
// invalidated.
type Told struct {
	At   int64 // Unix milliseconds
	Kind string
	Post string
}

// Time returns when the client got the event.
func (e Told) Time() time.Time { return time.UnixMilli(e.At) }

// NewCrowd starts a client for each of the users at the servers. The first ones, as
// many as steady says, keep their connection as long as it lasts, and return to the
// same server; the others break theirs now and then, and go to any server. It returns when all are connected. The crowd ends with the
// test, which is skipped when [NeedNode] finds no Node.
func NewCrowd(t *testing.T, users []User, steady int, servers ...*Process) *Crowd {
	t.Helper()
	NeedNode(t)
	return startCrowd(t, "crowd.mjs", map[string]any{"steady": steady}, users, servers)
}

// NewKitCrowd starts a client of the TypeScript kit for each of the users, as
// [NewCrowd] does clients of graphql-ws; all are restless. It compiles the kit.
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
	t.Cleanup(func() { _ = c.Close() }) // the context has killed it already
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

// Close ends the clients. A crowd may be closed again.
func (c *Crowd) Close() error {
	_ = c.in.Close()
	return c.ended()
}

// ask says a line and reads one.
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

// Report returns the clients, in the order of the users. It waits for those that
// are reading their timeline again.
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

// Told returns what each client was told so far, in its order.
func (c *Crowd) Told() ([][]Told, error) {
	var answer struct{ Told [][]Told }
	err := c.ask("told", &answer)
	return answer.Told, err
}

// story asks what a client of the kit was told and read of a post.
func (c *Crowd) story(client int, post string) string {
	var answer struct{ Story []string }
	if err := c.ask(fmt.Sprintf("story %d %s", client, post), &answer); err != nil {
		return err.Error()
	}
	return strings.Join(answer.Story, "\n") + "\n"
}

// NeedNode skips the test where node or the npm packages are missing. With
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

// needKit compiles the kit, or skips the test where its npm packages are missing.
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
		// What the test has read is what it is run again for.
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	require.NoError(t, compileKit())
}

// NewUser writes a user with a session into the database, because password hashes
// are slow by design.
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
