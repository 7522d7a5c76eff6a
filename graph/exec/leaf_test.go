package exec

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type color string

func (c color) String() string { return "a " + string(c) }

func TestLeaves(t *testing.T) {
	text, number := "text", 7
	moment := time.Date(2024, 2, 29, 23, 59, 59, 999_999_999, time.FixedZone("", -3600))
	for _, tc := range []struct {
		field string
		value any
		want  string // empty: an error
	}{
		{"int", 5, `5`}, {"int", int64(-5), `-5`}, {"int", int8(5), `5`}, {"int", uint16(5), `5`}, {"int", &number, `7`},
		{"int", math.MaxInt32, `2147483647`}, {"int", math.MaxInt32 + 1, ``}, {"int", uint64(math.MaxUint64), ``},
		{"int", 1.0, ``}, {"int", "1", ``}, {"int", true, ``}, {"int", []int{1}, ``}, {"int", struct{}{}, ``}, {"int", nil, `null`},
		{"int", (*int)(nil), `null`}, {"int", moment, ``},
		{"float", 1.5, `1.5`}, {"float", 3, `3`}, {"float", float32(0.5), `0.5`}, {"float", 1e-9, `1e-09`}, {"float", 1e21, `1e+21`},
		{"float", 0.0, `0`}, {"float", math.NaN(), ``}, {"float", math.Inf(1), ``}, {"float", "1", ``},
		{"string", "x", `"x"`}, {"string", visibility("v"), `"v"`}, {"string", color("red"), `"a red"`}, {"string", &text, `"text"`},
		{"string", 5, ``}, {"string", []byte("x"), ``}, {"string", map[string]int{}, ``},
		{"bool", true, `true`}, {"bool", 1, ``},
		{"id", "x", `"x"`}, {"id", int64(math.MaxInt64), `"9223372036854775807"`}, {"id", 1.5, ``},
		{"enum", "PUBLIC", `"PUBLIC"`}, {"enum", visibility("OLD"), `"OLD"`}, {"enum", "public", ``},
		{"time", moment, `"2024-03-01T00:59:59.999Z"`}, {"time", &moment, `"2024-03-01T00:59:59.999Z"`}, {"time", (*time.Time)(nil), `null`},
		{"time", "opaque", `"opaque"`}, {"time", 5, `5`}, {"time", false, `false`}, {"time", 0.25, `0.25`}, {"time", time.Time{}.AddDate(10000, 0, 0), ``},
	} {
		f := &fixture{kinds: map[string]any{"k": tc.value}}
		got := run(t, f.engine(t), Request{Query: `{ leaf(kind: "k") { ` + tc.field + ` } }`})
		if tc.want == "" {
			require.Contains(t, got, `"code":"INTERNAL"`, "%s %v", tc.field, tc.value)
			require.Contains(t, got, `"data":{"leaf":{"`+tc.field+`":null}}`, "%s %v", tc.field, tc.value)
		} else {
			require.Equal(t, `{"data":{"leaf":{"`+tc.field+`":`+tc.want+`}}}`, got)
		}
	}
}

func TestStrings(t *testing.T) {
	require.Equal(t, `"\"\\\n\r\t\u0000\u001f<&>é`+"\u2028\x7f"+`😀"`, string(appendString(nil, "\"\\\n\r\t\x00\x1f<&>é\u2028\x7f😀")))
	require.Equal(t, "\"a\ufffdb\ufffd\ufffd\ufffd\"", string(appendString(nil, "a\xffb\xed\xa0\x80")))
	require.Equal(t, "\"\ufffd\"", string(appendString(nil, "\ufffd")))
}

func FuzzStrings(f *testing.F) {
	f.Add("plain")
	f.Add("\"\\\x00\xff\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		require.NoError(t, json.Unmarshal(appendString(nil, s), &back))
		require.Equal(t, strings.ToValidUTF8(s, "\ufffd") == s, back == s)
		valid, err := json.Marshal(s)
		require.NoError(t, err)
		var want string
		require.NoError(t, json.Unmarshal(valid, &want))
		require.Equal(t, want, back)
	})
}

func FuzzTimes(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(1735689599999))
	f.Fuzz(func(t *testing.T, ms int64) {
		v := time.UnixMilli(ms % 253402300800000)
		w := &writer{}
		if w.time(&typeRef{leaf: leafCustom}, v) == nil {
			require.Equal(t, v.UTC().Format(`"2006-01-02T15:04:05.000Z"`), string(w.buf))
		}
	})
}
