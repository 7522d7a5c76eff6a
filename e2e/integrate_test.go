package e2e

import (
	"context"
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
)

// blocks are those of a page in Markdown, with their language.
var blocks = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")

// The commands of docs/integrate.md do what it says: the commands of a section are one
// script, and the JSON after the last of them is what that one prints.
func TestIntegrate(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "openssl", "curl", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	page, err := os.ReadFile("../docs/integrate.md")
	require.NoError(t, err)
	ran := 0
	for section := range strings.SplitSeq(string(page), "\n## ") {
		var script []string
		last, want := "", ""
		for _, block := range blocks.FindAllStringSubmatch(section, -1) {
			switch language, text := block[1], block[2]; {
			case language == "sh":
				script = append(script, text)
			case language == "json" && last == "sh":
				want = text
			}
			last = block[1]
		}
		if len(script) == 0 {
			continue
		}
		ran++
		title, _, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, want, "the section does not say what its commands print")
			require.JSONEq(t, want, runScript(t, script))
		})
	}
	require.Equal(t, 4, ran)
}

// runScript runs commands of a page and returns what the last block prints. Addresses of
// the page become free ones.
func runScript(t *testing.T, commands []string) string {
	t.Helper()
	dir := t.TempDir()
	tideline, err := filepath.Abs(binary)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(tideline, filepath.Join(dir, "tideline")))
	addresses := strings.NewReplacer("127.0.0.1:8080", freeAddress(t), "127.0.0.1:9000", freeAddress(t))
	text := strings.Join(commands[:len(commands)-1], "\n") + "\necho THE LAST BLOCK\n" + commands[len(commands)-1]
	text = addresses.Replace(text)
	text = regexp.MustCompile(`http\.server 9000 `).ReplaceAllString(text, "http.server "+portOf(addresses.Replace("127.0.0.1:9000"))+" ")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TIDELINE_ADDR=" + addresses.Replace("127.0.0.1:8080"), "TIDELINE_LOG_LEVEL=warn"})
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-eo", "pipefail"}
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its servers end with it
	file, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	require.NoError(t, cmd.Start())
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	printed, unread := os.ReadFile(file.Name())
	require.NoError(t, unread)
	require.NoError(t, err, string(printed))
	_, answer, found := strings.Cut(string(printed), "THE LAST BLOCK\n")
	require.True(t, found, string(printed))
	return answer
}

// freeAddress is one of this machine that nobody listens on now.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return fmt.Sprint(listener.Addr())
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
