package examples

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cachedPost is a post with the fields that the programs in caches select.
type cachedPost struct {
	ID, Text string
	EditedAt *time.Time
	Author   struct{ ID, Handle string }
}

type cachedProfile struct {
	ID, Handle   string
	Relationship struct {
		ID                          string
		Following, Muting, Blocking bool
	}
	Posts struct{ Nodes []*cachedPost }
}

// cached is the content of a program's cache as the program prints it, or as the server expects it.
type cached struct {
	Timeline []*cachedPost
	Profile  *cachedProfile
	// Cached has the ids of all posts in the cache: exactly the posts of Timeline and Profile.
	Cached []string
}

// serverHas returns the content that the cache should have: the newest posts of ada's
// timeline, at most most of them, and bob's profile.
func (s *site) serverHas(most int) cached {
	s.t.Helper()
	const post = `id text editedAt author { id handle }`
	var answer struct {
		Timeline struct{ Nodes []*cachedPost }
		User     *cachedProfile
	}
	s.ask(s.ada, `query($first: Int!) {
		timeline(first: $first) { nodes { `+post+` } }
		user(handle: "bob") { id handle relationship { id following muting blocking } posts(first: 3) { nodes { `+post+` } } }
	}`, map[string]any{"first": most}, &answer)
	var ids []string
	for _, post := range slices.Concat(answer.Timeline.Nodes, answer.User.Posts.Nodes) {
		ids = append(ids, post.ID)
	}
	slices.Sort(ids)
	return cached{Timeline: answer.Timeline.Nodes, Profile: answer.User, Cached: slices.Compact(ids)}
}

func (c cached) texts() string {
	var texts []string
	for _, post := range c.Timeline {
		texts = append(texts, post.Text)
	}
	return strings.Join(texts, " ")
}

func (c cached) bob() string {
	r := c.Profile.Relationship
	return fmt.Sprintf("following %t, muting %t, blocking %t, posts %d", r.Following, r.Muting, r.Blocking, len(c.Profile.Posts.Nodes))
}

// cacheApp is a running program of caches that shows ada's timeline and bob's profile.
type cacheApp struct {
	*site
	commands io.Writer
	lines    <-chan string
	has      cached
}

func (a *cacheApp) do(command string) {
	a.t.Helper()
	_, err := io.WriteString(a.commands, command+"\n")
	require.NoError(a.t, err)
}

// settles waits until the timeline at the server begins with these texts, ada's relationship
// to bob is as given, and the program's cache agrees with the server.
func (a *cacheApp) settles(step, texts, bob string) {
	a.t.Helper()
	timeout := time.After(2 * patience)
	// The server may reach the expected state later than the program does.
	again := time.NewTicker(patience / 200)
	defer again.Stop()
	for {
		server := a.serverHas(len(strings.Fields(texts)))
		if server.texts() == texts && server.bob() == bob && assert.ObjectsAreEqual(server, a.has) {
			return
		}
		select {
		case line, ok := <-a.lines:
			require.True(a.t, ok, "%s: it ended", step)
			a.has = cached{}
			require.NoError(a.t, json.Unmarshal([]byte(line), &a.has))
		case <-again.C:
		case <-timeout:
			require.Equal(a.t, texts, server.texts(), "%s: the timeline at the server", step)
			require.Equal(a.t, bob, server.bob(), "%s: bob at the server", step)
			require.Equal(a.t, server, a.has, "%s: what the cache has is not what the server has", step)
		}
	}
}

// TestCaches runs each program of caches, which pages, posts, edits, mutes and blocks while
// other users post, edit and delete, and the server restarts. After each step the program's
// normalised cache agrees with the server and has no other posts.
func TestCaches(t *testing.T) {
	t.Parallel()
	program := tidelineProgram(t)
	for _, name := range []string{"apollo", "urql", "relay"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compileTypeScript(t, "caches")
			s, _ := newSite(t, program)
			carol, carolID := s.signUp("carol")
			s.follow(carolID)
			post := func(token, text string) (id string) {
				var answer struct {
					CreatePost struct{ Post struct{ ID string } }
				}
				s.ask(token, `mutation($t: String!) { createPost(input: { text: $t }) { post { id } } }`, map[string]any{"t": text}, &answer)
				return answer.CreatePost.Post.ID
			}
			edit := func(token, id, text string) {
				s.ask(token, `mutation($p: ID!, $t: String!) { updatePost(input: { postId: $p, text: $t }) { post { id } } }`,
					map[string]any{"p": id, "t": text}, &struct{}{})
			}
			one := post(s.bob, "one")
			post(carol, "two")
			for _, text := range []string{"three", "four", "five", "six", "seven"} {
				post(s.bob, text)
			}

			cmd := exec.Command("node", "caches/build/"+name+".js", "bob")
			commands, err := cmd.StdinPipe()
			require.NoError(t, err)
			lines, stop := run(t, cmd, []string{"TIDELINE_URL=" + s.url, "TIDELINE_TOKEN=" + s.ada})
			defer stop() // before the server
			a := &cacheApp{site: s, commands: commands, lines: lines}
			const bob = "following true, muting false, blocking false, posts 3"
			a.settles("a page", "seven six five four three", bob)
			a.do("more")
			a.settles("an older page", "seven six five four three two one", bob)
			eight := post(s.bob, "eight")
			a.settles("a post", "eight seven six five four three two one", bob)
			edit(s.bob, one, "one!")
			a.settles("an edit", "eight seven six five four three two one!", bob)
			a.do("post nine")
			a.settles("an own post", "nine eight seven six five four three two one!", bob)
			a.do("edit " + a.has.Timeline[0].ID + " nine!")
			a.settles("an edit of it", "nine! eight seven six five four three two one!", bob)
			s.ask(s.bob, `mutation($p: ID!) { deletePost(input: { postId: $p }) { deletedPostId } }`, map[string]any{"p": eight}, &struct{}{})
			a.settles("a deletion", "nine! seven six five four three two one!", bob)

			s.stop()
			s.start()
			a.settles("a restart", "nine! seven six five four three two one!", bob)
			ten := post(carol, "ten")
			a.settles("a post after it", "ten nine! seven six five four three two one!", bob)

			a.do("mute")
			a.settles("a mute", "ten nine! two", "following true, muting true, blocking false, posts 3")
			a.do("block")
			blocked := "following false, muting true, blocking true, posts 0"
			a.settles("a block", "ten nine! two", blocked)
			s.stop()
			s.start()
			a.settles("another restart", "ten nine! two", blocked)
			edit(carol, ten, "ten!")
			a.settles("an edit after it", "ten! nine! two", blocked)
		})
	}
}
