package workers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
)

// A newer version may go on with an interrupted job: the names in its stored state
// stay as they are.
func TestStoredStatesKeepTheirNames(t *testing.T) {
	p := progress{
		Of:             schema.Public,
		rosterPosition: rosterPosition{Before: 1, RecentDone: true, RecentLeft: 5, Seen: 6, ByActivity: true, From: 2, Until: 3},
		FanOutReport: FanOutReport{
			Kind: "post.created", Post: 7, Followers: 8, Pushed: 4, Pulled: 9, Live: 10,
			Duration: 11, FirstLag: time.Second, MedianLag: 12, LastLag: 13,
		},
	}
	requireStored(t, p, `{"Of":"PUBLIC","Before":1,"Latest":true,"Ahead":5,"Seen":6,"ByActivity":true,"From":2,"Until":3,
		"Kind":"post.created","Post":7,"Followers":8,"Pushed":4,"Pulled":9,"Live":10,
		"Duration":11,"FirstLag":1000000000,"MedianLag":12,"LastLag":13}`)
	requireStored(t, returnProgress{Before: 14}, `{"Before":14}`)
}

func requireStored[T any](t *testing.T, state T, want string) {
	t.Helper()
	raw, err := json.Marshal(state)
	require.NoError(t, err)
	require.JSONEq(t, want, string(raw))
	var got T
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, state, got)
}
