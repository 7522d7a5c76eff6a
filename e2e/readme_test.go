package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's commands work if they are pasted into a shell at once. Their last output is the
// live event of the post.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## The same with curl\n")
	require.True(t, found)
	commands := blocks.FindStringSubmatch(section)[2]
	require.NotRegexp(t, `(?m)(^|\s)#\s`, commands, "a zsh into which one pastes knows no comments")
	for _, shell := range []string{"bash", "zsh", "dash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("there is no %s here", shell)
			}
			s := start(t, nil, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, shell)
			cmd.Stdin = strings.NewReader(strings.ReplaceAll(commands, "http://127.0.0.1:8080", s.url))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // curl ends with the shell
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			var printed []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				line := lines.Text()
				if line != "" && line != ":" { // the stream sends ":" lines to keep the connection alive
					printed = append(printed, line)
				}
				if strings.HasPrefix(line, "data: ") {
					break
				}
			}
			cancel()
			_ = cmd.Wait()
			all := strings.Join(printed, "\n")
			require.Len(t, printed, 5, all)
			require.Equal(t, `{"data":{"follow":{"relationship":{"following":true}}}}`, printed[0])
			require.Contains(t, printed[1], `"post":{"id":"`)
			require.Contains(t, printed[2], `{"data":{"timeline":{"unreadCount":`) // on a slow machine the post may not have arrived yet
			require.Equal(t, "event: next", printed[3])
			require.Contains(t, printed[4], `"TimelinePostAdded","edge":{"node":{"text":"Hello, tide!"}}`)
		})
	}
}
