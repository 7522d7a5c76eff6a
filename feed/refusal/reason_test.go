package refusal

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document lists every reason, in the words of the code.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	require.NoError(t, err)
	table := "| `reason` | `code` | when |\n| --- | --- | --- |\n"
	seen := map[string]bool{}
	for _, r := range Reasons() {
		require.Regexp(t, regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`), r.Name)
		require.False(t, seen[r.Name], "two reasons are %s", r.Name)
		seen[r.Name] = true
		table += fmt.Sprintf("| `%s` | `%s` | %s |\n", r.Name, r.Code, r.When)
	}
	require.True(t, strings.Contains(string(page), "\n"+table+"\n"), "docs/errors.md must have this table:\n\n%s", table)
}
