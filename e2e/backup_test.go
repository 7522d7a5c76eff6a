package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// A backup is taken while a user posts, and restored into an empty directory. It contains
// every post that was acknowledged before it began, without gaps. Timelines are rebuilt, and
// posting works.
func TestBackupUnderLoadIsRestored(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "backup.db")
	settings := []string{"TIDELINE_DATA_DIR=" + data, "TIDELINE_RATE_LIMIT=off"}
	p := start(t, settings, "--addr=127.0.0.1:0")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	ben.follow(t, p, ann)
	var posted []string
	post := func() {
		text := fmt.Sprintf("post %d", len(posted)+1)
		ann.post(t, p, text)
		posted = append(posted, text)
	}
	for range 20 {
		post()
	}
	acknowledged := len(posted)
	backup := command(t.Context(), settings, "backup", file)
	out := &bytes.Buffer{}
	backup.Stdout, backup.Stderr = out, out
	require.NoError(t, backup.Start())
	ended := make(chan error, 1)
	go func() { ended <- backup.Wait() }()
	for taken := false; !taken; post() {
		select {
		case err := <-ended:
			require.NoError(t, err, out)
			taken = true
		default:
		}
	}
	require.Contains(t, out.String(), "has a copy of the database: ")
	require.Zero(t, p.stop())

	place := t.TempDir()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(place, "tideline.db"), text, 0o600))
	p = start(t, []string{"TIDELINE_DATA_DIR=" + place}, "--addr=127.0.0.1:0")
	kept := ben.timeline(t, p)
	require.GreaterOrEqual(t, len(kept), acknowledged)
	slices.Reverse(kept)
	require.Equal(t, posted[:len(kept)], kept, "no hole")
	posted = kept
	post()
	newest := slices.Clone(posted)
	slices.Reverse(newest)
	ben.arrived(t, p, newest...)
	require.Zero(t, p.stop())

	code, said := run(t, settings, "backup", file)
	require.NotZero(t, code, said)
	require.Contains(t, said, "is there already")
	code, said = run(t, []string{"TIDELINE_DATA_DIR=" + filepath.Join(place, "none")}, "backup", file+"2")
	require.NotZero(t, code, said)
	require.NoFileExists(t, file+"2")
}
