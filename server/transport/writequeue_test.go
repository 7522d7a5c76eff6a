package transport

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A clipped reason fits into a close frame and stays valid Unicode.
func TestReasonsAreClipped(t *testing.T) {
	require.LessOrEqual(t, len(clip(strings.Repeat("é", 100))), 123)
	require.True(t, utf8.ValidString(clip("x"+strings.Repeat("é", 100))))
}
