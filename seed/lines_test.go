package seed

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readLines reads a whole follow file. It returns the follows, the bad lines, and the error
// that ended it, or nil for io.EOF.
func readLines(t *testing.T, r io.Reader) (pairs [][2]string, bad []string, end error) {
	t.Helper()
	lines, err := newLineReader(r)
	if err != nil {
		return nil, nil, err
	}
	for {
		from, to, err := lines.next()
		wrong := (*badLine)(nil)
		switch {
		case err == nil:
			pairs = append(pairs, [2]string{from, to})
		case errors.As(err, &wrong):
			bad = append(bad, wrong.Error())
		case errors.Is(err, io.EOF):
			return pairs, bad, nil
		default:
			return pairs, bad, err
		}
	}
}

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestLinesAreFollowsOrBad(t *testing.T) {
	long := strings.Repeat("x", 9000)
	file := "\uFEFF# nodes: 5\n" +
		"1 2\r\n" +
		"\n" +
		"3\t \t4\n" +
		"   # " + long + "\n" +
		"Alice  @bob_7 \n" +
		"5 5\n" + // 7
		"u6 6\n" + // 8: the same account twice
		"1 2 3\n" + // 9
		"alone\n" + // 10
		"mé 1\n" + // 11
		"1 " + strings.Repeat("9", 29) + "\n" +
		"1 " + strings.Repeat("9", 30) + "\n" + // 13
		"1 " + long + "\n" + // 14
		"\x00\x1b[31m \xff\n" + // 15
		" \t\r\n" +
		"8 9" // no line end
	pairs, bad, err := readLines(t, strings.NewReader(file))
	require.NoError(t, err)
	assert.Equal(t, [][2]string{
		{"u1", "u2"}, {"u3", "u4"}, {"alice", "bob_7"}, {"u1", "u" + strings.Repeat("9", 29)}, {"u8", "u9"},
	}, pairs)
	require.Len(t, bad, 8)
	assert.Equal(t, "line 7: u5 follows itself", bad[0])
	assert.Equal(t, "line 8: u6 follows itself", bad[1])
	assert.Equal(t, `line 9: expected 2 names, found 3: "1 2 3"`, bad[2])
	assert.Equal(t, `line 10: expected 2 names, found 1: "alone"`, bad[3])
	assert.Equal(t, `line 11: no handle can be made of "mé": 1 to 30 of a-z, 0-9 and _`, bad[4])
	assert.Contains(t, bad[5], "line 13: no handle")
	assert.Equal(t, "line 14: longer than 4096 bytes", bad[6])
	assert.Contains(t, bad[7], `line 15: no handle can be made of "\x00\x1b[31m"`)

	again, badAgain, err := readLines(t, bytes.NewReader(zipped(t, file)))
	require.NoError(t, err)
	assert.Equal(t, pairs, again)
	assert.Equal(t, bad, badAgain)

	// Concatenated gzip parts, as after log rotation.
	parts := append(zipped(t, "1 2\n"), zipped(t, "3 4\n")...)
	pairs, bad, err = readLines(t, bytes.NewReader(parts))
	require.NoError(t, err)
	assert.Empty(t, bad)
	assert.Equal(t, [][2]string{{"u1", "u2"}, {"u3", "u4"}}, pairs)
}

func TestDamagedGzipIsAnError(t *testing.T) {
	var file strings.Builder
	for i := range 5000 {
		file.WriteString(strings.Repeat(string(rune('a'+i%26)), 1+i%20) + " x\n")
	}
	whole := zipped(t, file.String())
	for _, size := range []int{3, 10, len(whole) / 2, len(whole) - 9, len(whole) - 1} {
		_, bad, err := readLines(t, bytes.NewReader(whole[:size]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut to %d of %d bytes", size, len(whole))
		assert.Empty(t, bad, "half a line is no line")
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1
	_, _, err := readLines(t, bytes.NewReader(flipped))
	assert.ErrorIs(t, err, gzip.ErrChecksum)
}

func TestEmptyFiles(t *testing.T) {
	for _, file := range []string{"", "\n", "#", "\x1f"} {
		pairs, _, err := readLines(t, strings.NewReader(file))
		assert.NoError(t, err)
		assert.Empty(t, pairs)
	}
}
