package live

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWireBytes(t *testing.T) {
	// Other versions of the program use the same format, so these bytes must not change.
	msg := encode(Event{Kind: Removed, Post: 300, Author: 7, Reason: "gone"}, []int64{5, 6, 300})
	assert.Equal(t, "\x01\x02\xac\x02\x07\x00\x04gone\x03\x05\x01\xa6\x02", string(msg))

	assert.Equal(t, "\x01\x00\xac\x02", string(encodeProbe(300)))
	mark, ok := decodeProbe("\x01\x00\xac\x02")
	assert.True(t, ok)
	assert.EqualValues(t, 300, mark)
}

func TestWireRefuses(t *testing.T) {
	padding := strings.Repeat("\x80", 20)
	for name, msg := range map[string]string{
		"empty":                   "",
		"version alone":           "\x01",
		"other version":           "\x02\x01\x00\x00\x00\x00\x01\x05",
		"probe without a mark":    "\x01\x00",
		"probe with more":         "\x01\x00\x00\x00",
		"unknown kind":            "\x01\x08\x00\x00\x00\x00\x01\x05",
		"resync":                  "\x01\xff\x00\x00\x00\x00\x01\x05",
		"cut in an id":            "\x01\x01\x80",
		"id too long":             "\x01\x01" + padding,
		"id beyond 63 bits":       "\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x01\x05",
		"padded id":               "\x01\x01\x80\x00\x00\x00\x00\x01\x05",
		"reason too short":        "\x01\x01\x00\x00\x00\x05abc",
		"reason too long":         "\x01\x01\x00\x00\x00\x81\x02" + strings.Repeat("r", 257) + "\x01\x05",
		"nobody":                  "\x01\x01\x00\x00\x00\x00\x00",
		"fewer than counted":      "\x01\x01\x00\x00\x00\x00\x02\x05",
		"count is a lie":          "\x01\x01\x00\x00\x00\x00\xff\xff\xff\xff\x0f\x05",
		"more than counted":       "\x01\x01\x00\x00\x00\x00\x01\x05\x01",
		"user zero":               "\x01\x01\x00\x00\x00\x00\x01\x00",
		"same user again":         "\x01\x01\x00\x00\x00\x00\x02\x05\x00",
		"user beyond 63 bits":     "\x01\x01\x00\x00\x00\x00\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"text, not of our making": "hello",
	} {
		_, _, err := decode(msg, nil)
		assert.ErrorIs(t, err, errMalformed, name)
		_, probe := decodeProbe(msg)
		assert.False(t, probe, name)
	}
}

func TestWireRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64Range(0, math.MaxInt64)
		ev := Event{
			Kind:    Kind(rapid.IntRange(int(Added), int(ConversationChanged)).Draw(t, "kind")),
			Post:    id.Draw(t, "post"),
			Author:  id.Draw(t, "author"),
			Session: id.Draw(t, "session"),
			Reason:  rapid.StringN(0, -1, maxReason).Draw(t, "reason"),
		}
		distinct := rapid.SliceOfNDistinct(rapid.Int64Range(1, math.MaxInt64), 1, 50, rapid.ID[int64]).Draw(t, "users")
		users := slices.Sorted(slices.Values(distinct))
		got, to, err := decode(string(encode(ev, users)), nil)
		require.NoError(t, err)
		assert.Equal(t, ev, got)
		assert.Equal(t, users, to)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(string(encodeProbe(1 << 52)))
	f.Add(string(encode(Event{Kind: Added, Post: 1 << 52, Author: 3}, []int64{1, 2, 1 << 40})))
	f.Add(string(encode(Event{Kind: Invalidated, Reason: "follow"}, []int64{math.MaxInt64})))
	f.Add("\x01\x01\x00\x00\x00\x00\xff\xff\xff\xff\x0f\x05")
	f.Fuzz(func(t *testing.T, msg string) {
		if mark, ok := decodeProbe(msg); ok {
			require.Equal(t, msg, string(encodeProbe(mark)))
			return
		}
		ev, users, err := decode(msg, nil)
		if err != nil {
			return
		}
		require.NoError(t, ev.validate())
		require.NotEmpty(t, users)
		require.Equal(t, msg, string(encode(ev, users)), "one message, one encoding")
	})
}

// Recipients that are not users fit into a message beside users, and are never mistaken for one.
func TestRecipientsOfOtherKinds(t *testing.T) {
	const largest = 1<<53 - 1
	want := []int64{7, largest, Relations(7), Relations(largest), Conversation(7), Conversation(largest)}
	ev := Event{Kind: ConversationChanged, Post: 5, Reason: "E 1 5 7 0 PUBLIC"}
	got, users, err := decode(string(encode(ev, want)), nil)
	require.NoError(t, err)
	assert.Equal(t, ev, got)
	assert.Equal(t, want, users)
	assert.True(t, slices.IsSorted(want))
	assert.Len(t, slices.Compact(slices.Clone(want)), len(want))
}
