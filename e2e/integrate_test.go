package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// blocks matches the code blocks of a Markdown page, with their language and text.
var blocks = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")

// step is a block of commands and the JSON that they must print. want is "" if no JSON block
// follows the commands.
type step struct{ commands, want string }

// The commands on the pages in docs/integrate work. The commands of a section are run as one
// script. A JSON block after commands is their expected output.
func TestIntegrate(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "openssl", "curl", "python3", "node", "psql", "sqlite3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	pages, err := filepath.Glob("../docs/integrate/*.md")
	require.NoError(t, err)
	ran := 0
	for _, file := range pages {
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		for section := range strings.SplitSeq(string(page), "\n## ") {
			var script []step
			last := ""
			for _, block := range blocks.FindAllStringSubmatch(section, -1) {
				switch language, text := block[1], block[2]; {
				case language == "sh":
					script = append(script, step{commands: text})
				case language == "json" && last == "sh":
					script[len(script)-1].want = text
				}
				last = block[1]
			}
			if len(script) == 0 {
				continue
			}
			ran++
			title, _, _ := strings.Cut(section, "\n")
			t.Run(filepath.Base(file)+": "+title, func(t *testing.T) {
				t.Parallel()
				require.NotEmpty(t, script[len(script)-1].want, "the section does not say what its last commands print")
				runScript(t, script)
			})
		}
	}
	require.Equal(t, 7, ran)
}

// runScript runs the commands of a section. It replaces the addresses on the page with free ones.
func runScript(t *testing.T, script []step) {
	t.Helper()
	dir := t.TempDir()
	tideline, err := filepath.Abs(binary)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(tideline, filepath.Join(dir, "tideline")))
	webhooks, err := os.ReadFile("../docs/webhooks.md")
	require.NoError(t, err)
	receiver := regexp.MustCompile("(?ms)^```js\n(.*?)^```").FindSubmatch(webhooks)[1]
	require.NoError(t, os.WriteFile(filepath.Join(dir, "receiver.mjs"), receiver, 0o600))

	address, other := storagetest.FreeAddress(t), storagetest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(other)
	text := ""
	for i, s := range script {
		text += fmt.Sprintf("exec >printed%d\n%s\n", i, s.commands)
	}
	text = strings.NewReplacer("127.0.0.1:8080", address, "127.0.0.1:9000", other,
		"http.server 9000 ", "http.server "+port+" ", "PORT=9000 ", "PORT="+port+" ").Replace(text)
	settings := []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TIDELINE_ADDR=" + address, "TIDELINE_LOG_LEVEL=warn"}
	if strings.Contains(text, "$APP_DATABASE") {
		settings = append(settings, "APP_DATABASE="+storagetest.EmptyPostgresURL(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, settings)
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-eo", "pipefail"}
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its servers can be killed with it
	file, err := os.Create(filepath.Join(dir, "complaints"))
	require.NoError(t, err)
	defer file.Close()
	cmd.Stderr = file
	require.NoError(t, cmd.Start())
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	complaints, unread := os.ReadFile(file.Name())
	require.NoError(t, unread)
	require.NoError(t, err, string(complaints))
	for i, s := range script {
		if s.want == "" {
			continue
		}
		printed, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("printed%d", i)))
		require.NoError(t, err)
		var want, got any
		require.NoError(t, json.Unmarshal([]byte(s.want), &want))
		require.NoError(t, json.Unmarshal(printed, &got), "%s\nprinted:\n%s\n%s", s.commands, printed, complaints)
		require.Equal(t, want, blank(want, got), "%s\nprinted:\n%s\n%s", s.commands, printed, complaints)
	}
}

// blank returns the printed value, with "…" wherever the page has "…". The page uses "…" for
// values that differ each time.
func blank(want, got any) any {
	switch want := want.(type) {
	case string:
		if _, text := got.(string); text && want == "…" {
			return want
		}
	case []any:
		if got, list := got.([]any); list && len(got) == len(want) {
			for i := range want {
				got[i] = blank(want[i], got[i])
			}
		}
	case map[string]any:
		if got, object := got.(map[string]any); object {
			for key, value := range want {
				if _, there := got[key]; there {
					got[key] = blank(value, got[key])
				}
			}
		}
	}
	return got
}
