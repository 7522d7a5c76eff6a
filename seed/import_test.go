package seed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/user"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// write creates a follow file for a test.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "follows.txt")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// seedFile imports a file and returns the output.
func seedFile(t *testing.T, s *storage.Stores, path string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), s, options(path), &out, io.Discard))
	return out.String()
}

func options(follows string) Options {
	return Options{Users: 200, Posts: 2000, Seed: 1, Follows: follows}
}

// graph returns the follows as "a b", and the counters as "a followers following".
func graph(t *testing.T, db *ent.Client) (follows, counters []string) {
	t.Helper()
	users, err := db.User.Query().Order(user.ByHandle()).All(t.Context())
	require.NoError(t, err)
	handles := map[int64]string{}
	for _, u := range users {
		handles[u.ID] = u.Handle
		counters = append(counters, fmt.Sprint(u.Handle, u.FollowerCount, u.FollowingCount))
	}
	edges, err := db.Follow.Query().Order(follow.ByID()).All(t.Context())
	require.NoError(t, err)
	for _, f := range edges {
		follows = append(follows, handles[f.FollowerID]+" "+handles[f.FolloweeID])
	}
	return follows, counters
}

// requireCounted compares all counters with a recount.
func requireCounted(t *testing.T, s *storage.Stores) {
	t.Helper()
	postsOf := func(visibility string) string {
		return `SELECT count(*) FROM users u WHERE ` + strings.ToLower(visibility) +
			`_post_count <> (SELECT count(*) FROM posts WHERE author_id = u.id AND parent_id IS NULL AND repost_of IS NULL AND visibility = '` + visibility + `')`
	}
	for what, query := range map[string]string{
		"followers":        `SELECT count(*) FROM users u WHERE follower_count <> (SELECT count(*) FROM follows WHERE followee_id = u.id)`,
		"following":        `SELECT count(*) FROM users u WHERE following_count <> (SELECT count(*) FROM follows WHERE follower_id = u.id)`,
		"posts":            `SELECT count(*) FROM users u WHERE post_count <> (SELECT count(*) FROM posts WHERE author_id = u.id AND parent_id IS NULL AND repost_of IS NULL)`,
		"public":           postsOf("PUBLIC"),
		"followers' posts": postsOf("FOLLOWERS"),
		"mutuals' posts":   postsOf("MUTUALS"),
		"last post":        `SELECT count(*) FROM users u WHERE last_post_id <> (SELECT coalesce(max(id), 0) FROM posts WHERE author_id = u.id)`,
		"replies":          `SELECT count(*) FROM posts p WHERE reply_count <> (SELECT count(*) FROM posts WHERE parent_id = p.id)`,
		"reposts":          `SELECT count(*) FROM posts p WHERE repost_count <> (SELECT count(*) FROM posts WHERE repost_of = p.id)`,
		"quotes":           `SELECT count(*) FROM posts p WHERE quote_count <> (SELECT count(*) FROM posts WHERE quote_of = p.id)`,
		"likes":            `SELECT count(*) FROM posts p WHERE like_count <> (SELECT count(*) FROM likes WHERE post_id = p.id)`,
	} {
		var wrong int
		require.NoError(t, s.SQL.QueryRowContext(t.Context(), query).Scan(&wrong))
		require.Zero(t, wrong, "counters of %s that differ from a recount", what)
	}
}

// bigFile returns a file of several chunks that contains bad lines, comments and repetitions, and its follows
// in the order of their first lines.
func bigFile() (content string, follows []string) {
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	seen := map[string]bool{}
	for i := range 7500 {
		from, to := r.IntN(900), int(r.ExpFloat64()*60)
		line := fmt.Sprintf("u%d u%d", from, to)
		switch {
		case i%500 == 499:
			b.WriteString("# a comment\n")
		case i%97 == 0:
			b.WriteString("bad\n")
		default:
			fmt.Fprintf(&b, "%d\t%d\n", from, to)
			if from != to && !seen[line] {
				seen[line] = true
				follows = append(follows, line)
			}
		}
	}
	return b.String(), follows
}

func TestImport(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		content, want := bigFile()
		path := write(t, content)
		out := seedFile(t, s, path)

		got, counters := graph(t, s.DB)
		assert.Equal(t, want, got, "newest follow has the highest id")
		requireCounted(t, s)
		assert.Equal(t, 20, strings.Count(out, "\nline ")+1, "bad lines in full")
		assert.Contains(t, out, "line 1: expected 2 names, found 1: \"bad\"\n")
		assert.Contains(t, out, " more bad lines\n")
		assert.Contains(t, out, fmt.Sprintf("Follows: %d added, ", len(want)))
		assert.Contains(t, out, fmt.Sprintf("Users: %d, of whom %d have been made.", len(counters), len(counters)))

		out = seedFile(t, s, path)
		assert.Contains(t, out, "Follows: 0 added, ")
		assert.Contains(t, out, "of whom 0 have been made.")
		again, countersAgain := graph(t, s.DB)
		assert.Equal(t, got, again)
		assert.Equal(t, counters, countersAgain)

		zip := filepath.Join(t.TempDir(), "no-matter-what.txt")
		require.NoError(t, os.WriteFile(zip, zipped(t, content+"\nu1 newcomer\n"), 0o600))
		assert.Contains(t, seedFile(t, s, zip), "Follows: 1 added, ")
		requireCounted(t, s)
	})
}

// cancelAfter cancels a context after a number of bytes were read.
type cancelAfter struct {
	r      io.Reader
	left   int
	cancel context.CancelFunc
}

func (c *cancelAfter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b[:min(len(b), 512)])
	if c.left -= n; c.left < 0 {
		c.cancel()
	}
	return n, err
}

func TestImportGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		content, want := bigFile()
		r := rand.New(rand.NewPCG(uint64(len(s.Dialect)), 1))
		stops := 0
		for range 4 {
			im := newImporter(s, "")
			ctx, cancel := context.WithCancel(t.Context())
			in := &cancelAfter{r: strings.NewReader(content), left: r.IntN(len(content)), cancel: cancel}
			if err := im.run(ctx, in, 0, io.Discard); err != nil {
				require.ErrorIs(t, err, context.Canceled)
				stops++
			}
			cancel()
		}
		require.Positive(t, stops)
		// A kill -9 can happen between two statements of the last step: some chunks of users
		// are counted, others are not.
		_, err := s.SQL.ExecContext(t.Context(), "UPDATE users SET follower_count = 77 WHERE id % 2 = 0")
		require.NoError(t, err)

		seedFile(t, s, write(t, content))
		got, counters := graph(t, s.DB)
		assert.ElementsMatch(t, want, got)
		requireCounted(t, s)
		assert.Len(t, counters, usersOf(want))
	})
}

func usersOf(follows []string) int {
	users := map[string]bool{}
	for _, f := range follows {
		for _, handle := range strings.Fields(f) {
			users[handle] = true
		}
	}
	return len(users)
}

func TestInterruptedImportSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, s, options(write(t, "1 2\n")), io.Discard, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "Run the same command again")
	assert.Equal(t, 130, err.(interface{ ExitCode() int }).ExitCode())
}

func TestImportUsesAccountsThatAreThere(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		ctx := t.Context()
		for i, handle := range []string{"ann", "bob", "cat", "dan"} {
			s.DB.User.Create().SetID(int64(i + 1)).SetHandle(handle).SetName(handle).SetPasswordHash("hers").ExecX(ctx)
		}
		s.DB.Block.Create().SetBlockerID(1).SetBlockedID(2).ExecX(ctx)
		s.DB.FollowRequest.Create().SetRequesterID(3).SetTargetID(4).ExecX(ctx)
		s.DB.FollowRequest.Create().SetRequesterID(4).SetTargetID(3).ExecX(ctx)

		o := options(write(t, "ann bob\nbob ann\nCAT dan\nann new\n"))
		o.Password = "a good password"
		var out bytes.Buffer
		require.NoError(t, Run(ctx, s, o, &out, io.Discard))

		follows, _ := graph(t, s.DB)
		assert.Equal(t, []string{"cat dan", "ann new"}, follows)
		requireCounted(t, s)
		assert.Contains(t, out.String(), "Follows: 2 added, 0 were there already or are repeated in the file, 2 refused because of a block.")
		assert.Contains(t, out.String(), "Users: 5, of whom 1 have been made.")
		assert.Equal(t, 1, s.DB.FollowRequest.Query().CountX(ctx), "a granted request has served its purpose")
		ann := s.DB.User.Query().Where(user.Handle("ann")).OnlyX(ctx)
		assert.Equal(t, "hers", ann.PasswordHash)
		made := s.DB.User.Query().Where(user.Handle("new")).OnlyX(ctx)
		assert.True(t, strings.HasPrefix(made.PasswordHash, "$argon2id$"))
	})
}

func TestImportFails(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	run := func(o Options) error { return Run(t.Context(), s, o, io.Discard, io.Discard) }

	assert.ErrorIs(t, run(options("/no/such/file")), os.ErrNotExist)
	assert.ErrorContains(t, run(options(t.TempDir())), "directory")
	assert.ErrorContains(t, run(options(write(t, "{\n  \"json\": 1\n}\n"))), "no line of it is a follow")
	assert.NoError(t, run(options(write(t, "# nobody\n"))))

	short := options(write(t, "1 2\n"))
	short.Password = "short"
	assert.ErrorContains(t, run(short), "--password: A password has 8 to 200 characters.")

	strict := options(write(t, "1 2\n3 3\n"))
	require.NoError(t, run(strict))
	strict.Strict = true
	assert.ErrorContains(t, run(strict), "1 bad lines")

	content, want := bigFile()
	whole := zipped(t, content)
	require.Error(t, run(options(write(t, string(whole[:len(whole)/2])))))
	got, _ := graph(t, s.DB)
	assert.Greater(t, len(got), len(want)/4, "what could be read of a damaged file is imported")
	requireCounted(t, s)
}

func TestProgressElsewhereThanOnATerminalIsLines(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	content, _ := bigFile()
	var progress bytes.Buffer
	require.NoError(t, Run(t.Context(), s, options(write(t, content)), io.Discard, &progress))
	assert.Regexp(t, `(?m)^Importing 100%, 7500 lines, \d+/s, took .*s$`, progress.String())
	assert.NotContains(t, progress.String(), "\r")
}
