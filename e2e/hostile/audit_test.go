package hostile

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every check of the audit passes: MUST, SHOULD and MAY.
func TestGraphQLOverHTTPAudit(t *testing.T) {
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("node_modules/graphql-http")
	}
	if err != nil {
		if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
			t.Fatalf("the audit is required here (npm ci in e2e/hostile): %v", err)
		}
		t.Skipf("SKIPPED, GRAPHQL OVER HTTP NOT AUDITED (npm ci in e2e/hostile): %v", err)
	}
	p := start(t)
	out, err := exec.CommandContext(t.Context(), "node", "audit.mjs", p.url+"/graphql").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s", out)
	require.Regexp(t, `^\{"total":(\d+),"ok":\d+\}\n$`, string(out))
}
