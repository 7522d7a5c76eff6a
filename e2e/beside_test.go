package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// An operator's commands work next to a running server with embedded stores, and the server
// shows their effects.
func TestCommandsBesideAnEmbeddedServer(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	settings := []string{"TIDELINE_DATA_DIR=" + dir}
	p := start(t, settings, "--addr=127.0.0.1:0")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	ben.follow(t, p, ann)
	ann.post(t, p, "one")
	ben.arrived(t, p, "one")
	command := func(want string, args ...string) string {
		t.Helper()
		code, out := run(t, settings, args...)
		require.Zero(t, code, out)
		require.Contains(t, out, want)
		return out
	}
	out := func(u user) { // waits until the user is signed out; the server notices within seconds
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/graphql", strings.NewReader(`{"query":"{viewer{id}}"}`))
			assert.NoError(c, err)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+u.token)
			response, err := http.DefaultClient.Do(request)
			if assert.NoError(c, err) {
				defer response.Body.Close()
				assert.Equal(c, http.StatusUnauthorized, response.StatusCode)
			}
		}, patience, poll)
	}

	command("@ben has the role moderator", "users", "role", "ben", "moderator")
	var role struct{ Viewer struct{ Role string } }
	ben.call(t, p, `{ viewer { role } }`, nil, &role)
	require.Equal(t, "MODERATOR", role.Viewer.Role)
	command("@ann is suspended", "users", "suspend", "ann")
	require.Empty(t, ben.timeline(t, p))
	out(ann)
	command("@ann is not suspended any more", "users", "unsuspend", "ann")
	ben.arrived(t, p, "one")

	file := filepath.Join(dir, "more.ndjson")
	require.NoError(t, os.WriteFile(file, []byte(`{"type":"user","id":"1","handle":"ada"}
{"type":"post","id":"a","author":"1","text":"from elsewhere","createdAt":"2024-05-01T12:00:00Z"}
`), 0o600))
	command("2 made", "import", file, "--issuer=app")
	var data struct {
		User struct {
			Posts struct{ Nodes []struct{ Text string } }
		}
	}
	ben.call(t, p, `{ user(handle: "ada") { posts { nodes { text } } } }`, nil, &data)
	require.Equal(t, "from elsewhere", data.User.Posts.Nodes[0].Text)

	command("tk_", "keys", "create", "app", "--scopes=read")
	command("tk_", "keys", "list")
	command("", "jobs", "list")
	command("server,workers", "ps")
	command("is drained", "workers", "drain", "--all")
	command("paused", "ps")
	command("takes jobs", "workers", "resume", "--all")
	command("epoch", "feeds", "inspect", "ben")
	command("Kendall's tau 1.000", "feeds", "replay", "ben", "--rank=hot")
	command("", "feeds", "verify", "--all")
	command("0 counters are wrong", "recount", "--repair")
	command("", "seed", "--users=20", "--posts=40")
	var seeded struct {
		Users struct{ Nodes []struct{ Handle string } }
	}
	ben.call(t, p, `{ users(first: 20) { nodes { handle } } }`, nil, &seeded)
	require.Len(t, seeded.Users.Nodes, 20)
	ann.handle = seeded.Users.Nodes[0].Handle
	var followed struct{ User struct{ ID string } }
	ben.call(t, p, `query($h: String!) { user(handle: $h) { id } }`, map[string]any{"h": ann.handle}, &followed)
	ben.follow(t, p, user{id: followed.User.ID})
	command("ann", "users", "export", "ann")
	command("@ben is signed out", "users", "sign-out", ben.id)
	out(ben)
	require.Zero(t, p.stop())
}
