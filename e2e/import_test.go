package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// A file with a bad line is imported without that line, and the exit code is 3. An export can be
// imported elsewhere, and the export from there is identical.
func TestImportAndExport(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	here, there := []string{"TIDELINE_DATA_DIR=" + at("here")}, []string{"TIDELINE_DATA_DIR=" + at("there")}
	file := `{"type":"user","id":"1","handle":"ada","createdAt":"2019-05-01T12:00:00Z"}
{"type":"user","id":"2","handle":"grace","createdAt":"2019-05-01T12:00:00Z"}
{"type":"post","id":"a","author":"1","text":"old","createdAt":"2024-05-01T12:00:00Z"}
{"type":"follow","follower":"2","followee":"7"}
{"type":"follow","follower":"2","followee":"1"}
{"type":"like","user":"2","post":"a"}
`
	require.NoError(t, os.WriteFile(at("in"), []byte(file), 0o600))
	for _, settings := range [][]string{here, there} {
		code, out := run(t, settings, "migrate")
		require.Zero(t, code, out)
	}
	code, out := run(t, here, "import", at("in"), "--issuer=app", "--bad="+at("bad"))
	require.Equal(t, 3, code, out)
	require.Contains(t, out, "6 lines: 5 made, 0 changed, 0 as they were, 1 bad")
	bad, err := os.ReadFile(at("bad"))
	require.NoError(t, err)
	require.Regexp(t, `^line 4: follow: .*no such user.*\n$`, string(bad))
	require.NoFileExists(t, at("in.progress"))
	code, out = run(t, here, "export", at("out"), "--issuer=app", "--gzip")
	require.Zero(t, code, out)
	code, out = run(t, there, "import", at("out"), "--issuer=app")
	require.Zero(t, code, out)
	code, out = run(t, there, "import", at("out"), "--issuer=app")
	require.Zero(t, code, out)
	require.Contains(t, out, "5 lines: 0 made, 0 changed, 5 as they were")
	code, out = run(t, there, "export", at("again"), "--issuer=app", "--gzip")
	require.Zero(t, code, out)
	first, err := os.ReadFile(at("out"))
	require.NoError(t, err)
	second, err := os.ReadFile(at("again"))
	require.NoError(t, err)
	require.Equal(t, first, second)

	require.NoError(t, os.WriteFile(at("in.progress"), []byte(`{"offset":9,"sha256":"00"}`), 0o600))
	code, out = run(t, here, "import", at("in"), "--issuer=app")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "remove "+at("in.progress"))
}
