package paging

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/refusal"
)

// A cursor is refused, or belongs to its list and owner and has one spelling.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		Cursor{Score: 1.5, ID: 7}.Encode(Latest, 1), Cursor{Score: math.NaN(), ID: -1}.Encode(Ranked, 1), Cursor{}.Encode(Users, 0),
		Cursor{Score: 1.5, ID: 7}.Encode(Latest, 2), "",
		Cursor{Score: 1.5, ID: 7, Tail: "\x03\xff\xff\x03\x04\x02"}.Encode(Latest, 1), "x", "AQE", Cursor{Score: 1.5, ID: 7}.Encode(Latest, 1) + "=", "\x00",
	} {
		f.Add(text, byte(Latest), int64(1))
	}
	f.Fuzz(func(t *testing.T, text string, l byte, owner int64) {
		c, err := Decode(text, List(l), owner)
		if err != nil {
			require.Equal(t, refusal.BadInput, refusal.CodeOf(err))
			require.Zero(t, c)
			return
		}
		require.Equal(t, text, c.Encode(List(l), owner))
		_, err = Decode(text, List(l)+1, owner)
		require.Error(t, err)
		_, err = Decode(text, List(l), owner+1)
		require.Error(t, err)
	})
}
