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
	// Failed are the errors that ended its subscription.
	Failed               []any
	Resumed, Invalidated int
	// Beat is when it was told something, a heartbeat at least: Unix milliseconds.
	Beat int64
	// Server is which of the servers it went to last, or always when it is steady.
	Server int
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
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("..", "worldtest", "crowd.mjs"))
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
	setup, err := json.Marshal(map[string]any{"urls": urls, "tokens": tokens, "steady": steady})
	require.NoError(t, err)
	var answer struct{ Ready bool }
	require.NoError(t, c.ask(string(setup), &answer))
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
	return answer.Clients, err
}

// Told returns what each client was told so far, in its order.
func (c *Crowd) Told() ([][]Told, error) {
	var answer struct{ Told [][]Told }
	err := c.ask("told", &answer)
	return answer.Told, err
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
