package server

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The dashboard uses metrics that exist and shows each of Tideline's own. No panel covers another.
func TestDashboardShowsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/tideline.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	metrics := exported()
	metric := regexp.MustCompile(`\b(?:tideline|process|go)_\w+`)
	shown := map[string]bool{}
	type cell struct{ x, y int }
	taken, numbers := map[cell]string{}, map[int]bool{}
	for _, p := range board.Panels {
		assert.False(t, numbers[p.ID], "two panels have the number %d", p.ID)
		numbers[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := cell{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s covers it", p.Title)
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			for _, name := range metric.FindAllString(target.Expr, -1) {
				name = strings.TrimSuffix(name, "_bucket")
				assert.Contains(t, metrics, name, p.Title)
				shown[name] = true
			}
		}
	}
	for _, name := range metrics {
		assert.True(t, shown[name] || !strings.HasPrefix(name, "tideline_"), "nothing shows %s", name)
	}
}
