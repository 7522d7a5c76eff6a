// Package examples contains example programs: clients of the API, and an app. The tests run
// each of them against a real Tideline.
package examples

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
	// The tests build the server, so they must run again when it changes.
	_ "tideline/server"
	"tideline/storage/storagetest"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	storagetest.RunEveryTime()
	os.Exit(m.Run())
}

// start starts a program, which is stopped at the end of the test, and returns its output
// line by line.
func start(t *testing.T, env []string, name string, args ...string) (lines <-chan string, stop func()) {
	t.Helper()
	return run(t, exec.Command(name, args...), env)
}

// run is start with a prepared command.
func run(t *testing.T, cmd *exec.Cmd, env []string) (lines <-chan string, stop func()) {
	t.Helper()
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TIDELINE_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := make(chan string, 1000)
	go func() {
		defer close(c)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			c <- scanner.Text()
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return c, stop
}

// expect reads lines until it finds a wanted one.
func expect(t *testing.T, lines <-chan string, wanted ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-lines:
			require.True(t, ok, "it ended before it said %q", wanted)
			if slices.Contains(wanted, line) {
				return
			}
		case <-timeout:
			require.FailNow(t, "never said", "%q", wanted)
		}
	}
}

type site struct {
	t             *testing.T
	program, url  string
	address, data string
	stop          func()
	ada, bob      string // tokens
}

func (s *site) start() {
	s.t.Helper()
	_, s.stop = start(s.t, []string{"TIDELINE_ADDR=" + s.address, "TIDELINE_DATA_DIR=" + s.data, "TIDELINE_LOG_LEVEL=error"}, s.program)
	require.Eventually(s.t, func() bool {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
}

// ask runs an operation and decodes its data into result.
func (s *site) ask(token, query string, variables map[string]any, result any) {
	s.t.Helper()
	client := tideline.Client{URL: s.url + "/graphql"}
	if token != "" {
		client.Token = tideline.Fixed(token)
	}
	require.NoError(s.t, client.Query(s.t.Context(), query, variables, result))
}

func (s *site) signUp(handle string) (token, id string) {
	s.t.Helper()
	var answer struct {
		SignUp struct {
			Token string
			User  struct{ ID string }
		}
	}
	s.ask("", `mutation($h: String!) { signUp(input: { handle: $h, password: "correct horse" }) { token user { id } } }`,
		map[string]any{"h": handle}, &answer)
	return answer.SignUp.Token, answer.SignUp.User.ID
}

// follow makes ada follow the user.
func (s *site) follow(id string) {
	s.t.Helper()
	s.ask(s.ada, `mutation($u: ID!) { follow(input: { userId: $u }) { user { id } } }`, map[string]any{"u": id}, &struct{}{})
}

func (s *site) post(text string) (id string) {
	s.t.Helper()
	var answer struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	s.ask(s.bob, `mutation($t: String!) { createPost(input: { text: $t }) { post { id } } }`, map[string]any{"t": text}, &answer)
	return answer.CreatePost.Post.ID
}

// tidelineProgram builds the program with "make build", once for all tests, and returns its path.
func tidelineProgram(t *testing.T) string {
	t.Helper()
	require.NoError(t, makeBuild())
	return "../bin/tideline"
}

var makeBuild = sync.OnceValue(func() error {
	cmd := exec.Command("make", "-C", "..", "build")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w\n%s", err, out)
	}
	return nil
})

// build compiles a program of the repository.
func build(t *testing.T, pkg string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	require.NoError(t, storagetest.Build(program, pkg, false))
	return program
}

// newSite starts a new Tideline with two users, ada and bob, and returns bob's id. ada follows
// bob.
func newSite(t *testing.T, program string) (s *site, bob string) {
	t.Helper()
	s = &site{t: t, program: program, address: storagetest.FreeAddress(t), data: t.TempDir()}
	s.url = "http://" + s.address
	s.start()
	s.ada, _ = s.signUp("ada")
	s.bob, bob = s.signUp("bob")
	s.follow(bob)
	return s, bob
}

// TestExamples starts each client on ada's timeline while bob posts and deletes, and restarts
// the server in between.
func TestExamples(t *testing.T) {
	t.Parallel()
	program, goExample := tidelineProgram(t), build(t, "tideline/examples/go")
	for name, command := range map[string][]string{
		"go":     {goExample},
		"urql":   {"node", "typescript/build/urql.js"},
		"apollo": {"node", "typescript/build/apollo.js"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if command[0] == "node" {
				compileTypeScript(t, "typescript")
			}
			s, _ := newSite(t, program)
			for _, text := range []string{"one", "two", "three", "four", "five"} {
				s.post(text)
			}

			lines, stop := start(t, []string{"TIDELINE_URL=" + s.url, "TIDELINE_TOKEN=" + s.ada}, command[0], command[1:]...)
			defer stop() // before the server
			for _, text := range []string{"five", "four", "three", "two", "one"} {
				expect(t, lines, "@bob: "+text)
			}
			expect(t, lines, "listening")
			id := s.post("six")
			expect(t, lines, "new from @bob: six")
			s.ask(s.bob, `mutation($p: ID!) { deletePost(input: { postId: $p }) { deletedPostId } }`, map[string]any{"p": id}, &struct{}{})
			expect(t, lines, "gone: "+id)

			s.stop()
			s.start()
			s.post("seven")
			// The restart may have lost the embedded Redis; the client then reads the timeline again.
			expect(t, lines, "new from @bob: seven", "@bob: seven")
			s.post("eight")
			expect(t, lines, "new from @bob: eight")
		})
	}
}

// compile has a function for each folder that compiles its programs once.
var compile = map[string]func() error{"typescript": compiling("typescript"), "caches": compiling("caches")}

func compiling(folder string) func() error {
	return sync.OnceValue(func() error {
		out, err := exec.Command("npm", "--prefix", folder, "run", "build").CombinedOutput()
		if err != nil {
			return fmt.Errorf("npm run build: %w\n%s", err, out)
		}
		return nil
	})
}

const kit = "../clients/typescript"

// compileTypeScript compiles the programs of the folder. It skips the test if npm ci has not
// run, unless TIDELINE_TEST_REQUIRE_REAL is set.
func compileTypeScript(t *testing.T, folder string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(folder, "*.ts"))
	require.NoError(t, err)
	needs := []string{folder}
	if folder == "caches" {
		needs = append(needs, kit)
		more, err := filepath.Glob(filepath.Join(kit, "src", "*.ts"))
		require.NoError(t, err)
		sources = append(sources, more...)
	}
	for _, need := range needs {
		if _, err := os.Stat(filepath.Join(need, "node_modules")); err != nil {
			missing := "npm ci has not run in " + need + ": the TypeScript examples are NOT tested"
			require.Empty(t, os.Getenv("TIDELINE_TEST_REQUIRE_REAL"), missing)
			t.Skip(missing)
		}
	}
	for _, source := range sources {
		// go test runs the test again when a file that it has read changes.
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	require.NoError(t, compile[folder]())
}
