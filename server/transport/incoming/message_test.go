package incoming

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"tideline/server/limit"
)

// endless decompresses to zeros without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

// At most one byte beyond the bound is decompressed, and the whole budget is released.
func TestReadMessageStopsAtItsBound(t *testing.T) {
	t.Parallel()
	budget := semaphore.NewWeighted(1 << 20)
	for _, most := range []int{1, 511, 512, 4096, 100_000} {
		bomb := new(endless)
		_, release, err := ReadMessage(bomb, most, budget, 4096)
		require.ErrorIs(t, err, ErrInflated)
		require.Equal(t, most+1, bomb.read)
		release()
		require.True(t, budget.TryAcquire(1<<20))
		budget.Release(1 << 20)

		data, release, err := ReadMessage(bytes.NewReader(make([]byte, most)), most, budget, 4096)
		require.NoError(t, err)
		require.Len(t, data, most)
		release()
	}
	_, _, err := ReadMessage(io.LimitReader(new(endless), 2<<20), 4<<20, budget, 4096)
	require.ErrorIs(t, err, limit.ErrBusy)
}

func TestOffersDeflate(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"permessage-deflate; client_max_window_bits": true, "x-other, permessage-deflate": true, "": false, "x-webkit-deflate-frame": false,
	} {
		require.Equal(t, want, OffersDeflate(http.Header{"Sec-Websocket-Extensions": {value}}), value)
	}
}
