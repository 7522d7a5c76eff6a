package sizes_test

import (
	"math"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"tideline/internal/fleet"
	"tideline/server"
	"tideline/server/sizes"
)

// A running process takes what a process takes at its start, and refuses it alike.
func TestBoundsAreThoseOfTheSettings(t *testing.T) {
	for _, s := range fleet.Sizes {
		for _, n := range []int{math.MinInt32, 0, math.MaxInt32} {
			err := sizes.Check(s, n)
			require.Error(t, err)
			name, _, _ := strings.Cut(err.Error(), " ")
			var c server.Config
			parser, parses := kong.New(&c, kong.DefaultEnvars(server.EnvPrefix), kong.Vars(server.Vars()))
			require.NoError(t, parses)
			_, parses = parser.Parse([]string{name + "=" + map[int]string{math.MinInt32: "-2147483648", 0: "0", math.MaxInt32: "2147483647"}[n]})
			require.ErrorContains(t, parses, err.Error())
		}
	}
	require.NoError(t, sizes.Check(fleet.SmallWorkers, 1024))
	require.NoError(t, sizes.Check(fleet.FanOutPage, 100))
}
