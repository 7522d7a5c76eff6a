package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The load generator measures a real server, and no event is missing.
func TestBench(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0")
	load := command(t.Context(), nil, "bench", "--json", "--url="+p.url+"/graphql", "--duration=2s",
		"--users=6", "--followers=5", "--subscribers=9", "--posts-per-second=5")
	load.Stderr = t.Output()
	out, err := load.Output()
	require.NoError(t, err, "%s", out)
	var report struct {
		Subscribers, Missing, Doubled, Strays int
		Posts, Deliveries, Reads              struct{ Count int }
		DeliveryFloor, ReadFloor              struct{ Count int }
		Errors                                map[string]int
	}
	require.NoError(t, json.Unmarshal(out, &report))
	require.Equal(t, 9, report.Subscribers)
	require.Zero(t, report.Missing+report.Doubled+report.Strays)
	require.Empty(t, report.Errors)
	require.Positive(t, report.Posts.Count)
	require.Greater(t, report.Deliveries.Count, report.Posts.Count)
	require.Positive(t, report.Reads.Count)
	require.Positive(t, report.DeliveryFloor.Count)
	require.Positive(t, report.ReadFloor.Count)
}
