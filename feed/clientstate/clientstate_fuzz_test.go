package clientstate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/timeline"
)

// Decode accepts any tail without harm, and every state that it finds has one encoding.
func FuzzTail(f *testing.F) {
	state := State{Position: timeline.Position{Epoch: 5, Offset: 2}, low: 3, recent: []int64{7, 9}}
	f.Add(string(state.appendTail(nil)))
	f.Add("")
	state.Settle(5, Settled{Under: 4, Merged: 6, Low: 3, High: 5})
	f.Add(string(state.appendTail(nil)))
	f.Fuzz(func(t *testing.T, tail string) {
		if c, ok := Decode(tail); ok && len(c.appendTail(nil)) > 0 {
			again, ok := Decode(string(c.appendTail(nil)))
			require.True(t, ok)
			require.Equal(t, c.appendTail(nil), again.appendTail(nil))
		}
	})
}
