package workers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigIsRefusedWithWhatIsAllowed(t *testing.T) {
	_, err := New(Config{PageSize: -1, TrimEvery: -time.Second})
	require.EqualError(t, err, "workers: DB, Visibility, Home, Feed, Sessions, Accounts, Timelines, Queue and Publisher are required\n"+
		"workers: PageSize is -1: it must be at least 1\n"+
		"workers: TrimEvery is -1s: it must be above 0")
}
