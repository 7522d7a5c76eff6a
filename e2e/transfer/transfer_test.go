package transfer

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

const (
	secret = "a secret of the tests, of 32 bytes and more"
	sample = 50
	// patience bounds the wait until the jobs of the import are done.
	patience = 10 * time.Minute
)

// Users, posts and follows are imported while a sample of the users reads. Then the export
// equals the imported data, and the timelines of the sample equal the model's.
func TestTransfer(t *testing.T) {
	stores := storagetest.Real(t)
	settings := []string{
		"TIDELINE_DATABASE_URL=" + storagetest.Config(stores).DatabaseURL, "TIDELINE_REDIS_URL=" + storagetest.Config(stores).RedisURL,
		"TIDELINE_LOG_LEVEL=warn", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=1m", "TEST_SECRET=" + secret,
		`TIDELINE_ISSUERS=[{"issuer": "app", "audience": "tideline", "secret_env": "TEST_SECRET"}]`,
	}
	server := worldtest.NewProcess(t, binary, settings, "--addr", "serve")
	random := rand.New(rand.NewPCG(1, 2))
	m := newModel(int(100_000**size), int(1_000_000**size), int(300_000**size), random)
	var readers []int
	for range sample {
		readers = append(readers, random.IntN(m.users))
	}

	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name+".ndjson") }
	lines, err := m.files(at("users"), at("posts"), at("follows"))
	require.NoError(t, err)
	tell := func(what string, lines int, begun time.Time) {
		took := time.Since(begun)
		t.Logf("%-16s %9d lines in %6.1f s, %7.0f a second", what, lines, took.Seconds(), float64(lines)/took.Seconds())
	}
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	var reads errgroup.Group
	for i, name := range []string{"users", "posts", "follows"} {
		begun := time.Now()
		run(t, settings, "import", at(name), "--issuer=app")
		tell("import "+name, lines[at(name)], begun)
		if i == 0 {
			// The users exist now. They read while posts and follows are imported.
			reads.Go(func() error { return readOn(reading, server, readers) })
		}
	}
	stop()
	require.NoError(t, reads.Wait())

	begun := time.Now()
	run(t, settings, "export", at("all"), "--issuer=app")
	tell("export", len(m.posts)+len(m.follows)+m.users, begun)
	same(t, at("all"), at("users"), at("posts"), at("follows"))

	begun = time.Now()
	require.Eventually(t, func() bool {
		var jobs int
		require.NoError(t, stores.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM jobs WHERE kind NOT LIKE 'canary%'`).Scan(&jobs))
		return jobs == 0
	}, patience, 100*time.Millisecond, "jobs are left")
	t.Logf("the last job ended %.1f s after the export", time.Since(begun).Seconds())
	entries := 0
	for _, user := range readers {
		want := m.timeline(user)
		got, err := timeline(t.Context(), server, user)
		require.NoError(t, err)
		require.Equal(t, want, got, "the timeline of user %d", user)
		entries += len(want)
	}
	require.NotZero(t, entries)
	t.Logf("the timelines of %d users have the model's %d posts", sample, entries)
}

// run runs a command of the binary and waits for it.
func run(t *testing.T, settings []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "TIDELINE_") }), settings...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out[max(0, len(out)-2000):])
}

// readOn makes the users read the first page of their timelines, one after the other, until
// the context ends. The timelines that these reads build must also get the posts imported
// later.
func readOn(ctx context.Context, server *worldtest.Process, users []int) error {
	for again := time.NewTicker(50 * time.Millisecond); ; {
		for _, user := range users {
			select {
			case <-ctx.Done():
				return nil
			case <-again.C:
			}
			if _, _, err := page(ctx, server, user, nil); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// timeline returns the texts of a user's whole timeline.
func timeline(ctx context.Context, server *worldtest.Process, user int) (texts []string, err error) {
	var after *string
	for {
		list, next, err := page(ctx, server, user, after)
		if err != nil {
			return nil, err
		}
		texts = append(texts, list...)
		if after = next; after == nil {
			return texts, nil
		}
	}
}

// page returns the texts of a page of a user's timeline and the cursor of the next page, or
// nil if there is none.
func page(ctx context.Context, server *worldtest.Process, user int, after *string) (texts []string, next *string, err error) {
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "app", "aud": "tideline", "sub": strconv.Itoa(user), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}).SignedString([]byte(secret))
	if err != nil {
		return nil, nil, err
	}
	var answer struct {
		Timeline struct {
			Nodes    []struct{ Text string }
			PageInfo struct {
				HasNextPage bool
				EndCursor   *string
			}
		}
	}
	err = server.Call(ctx, token, `query ($after: Cursor) { timeline(first: 100, after: $after) { nodes { text } pageInfo { hasNextPage endCursor } } }`,
		map[string]any{"after": after}, &answer)
	if err != nil {
		return nil, nil, fmt.Errorf("read the timeline of user %d: %w", user, err)
	}
	for _, post := range answer.Timeline.Nodes {
		texts = append(texts, post.Text)
	}
	if answer.Timeline.PageInfo.HasNextPage {
		next = answer.Timeline.PageInfo.EndCursor
	}
	return texts, next, nil
}

// same checks that one file contains the same lines as the other files together, in any
// order.
func same(t *testing.T, one string, others ...string) {
	t.Helper()
	count := map[string]int{}
	for _, other := range others {
		eachLine(t, other, func(line string) { count[line]++ })
	}
	var differences []string
	eachLine(t, one, func(line string) {
		if count[line]--; count[line] < 0 {
			differences = append(differences, "only exported: "+line)
		}
	})
	for line, times := range count {
		if times > 0 {
			differences = append(differences, "only imported: "+line)
		}
	}
	require.Empty(t, differences[:min(10, len(differences))], "%d lines differ", len(differences))
}

func eachLine(t *testing.T, name string, do func(line string)) {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		do(lines.Text())
	}
	require.NoError(t, lines.Err())
}
