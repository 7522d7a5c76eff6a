package workers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/ids"
)

// Each user is in exactly one part. Users who signed up one at a time have ids with the same twelve
// lowest bits, and are still spread over all parts.
func TestActiveFollowersSpreadOverParts(t *testing.T) {
	const users = 3_200
	for _, step := range []time.Duration{time.Millisecond, time.Second, 32 * time.Minute} {
		for _, of := range []int{2, 5, maxFollowerParts} {
			had := make([]int, of)
			for i := range users {
				user := ids.At(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * step))
				for n := range had {
					if (followerPart{Number: n + 1, Of: of, Start: scanPosition{ByActivity: true}}).has(user) {
						had[n]++
					}
				}
			}
			sum := 0
			for n, part := range had {
				require.InDelta(t, users/of, part, float64(users/of)/2, "part %d of %d, a user each %v", n+1, of, step)
				sum += part
			}
			require.Equal(t, users, sum)
		}
	}
}
