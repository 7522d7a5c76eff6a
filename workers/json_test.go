package workers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job's state must survive being written and read.
func TestProgressIsKept(t *testing.T) {
	p := progress{
		place:  place{Before: 1, Latest: true, Ahead: 5, ByActivity: true, From: 2, Until: 3},
		Fanout: Fanout{Pushed: 4, FirstLag: time.Second},
	}
	raw, err := json.Marshal(p)
	require.NoError(t, err)
	var got progress
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, p, got)
}
