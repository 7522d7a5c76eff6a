package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLinesElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := Start(&out, "Importing", 1000, "lines")
		require.False(t, OnTerminal(&out))
		p.Clear()
		time.Sleep(lineEvery - time.Second)
		p.At(100, 10)
		require.Empty(t, out.String(), "not due")
		time.Sleep(time.Second)
		p.At(250, 20)
		p.At(300, 25)
		time.Sleep(15 * time.Second)
		p.At(1000, 80)
		p.Stop()
		require.Equal(t, "Importing 25%, 20 lines, 4/s, 15s left\nImporting 100%, 80 lines, 4/s\nImporting 100%, 80 lines, 4/s, took 20s\n", out.String())
	})
}

func TestBarOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		width := 50
		p := Start(&out, "Counting", 100, "users")
		p.width = func() int { return width }
		shows := func(want string) {
			t.Helper()
			require.Equal(t, want, out.String())
			out.Reset()
		}
		time.Sleep(barEvery)
		p.At(50, 50)
		shows("\r[====    ] Counting 50%, 50 users, 250/s, 0s left")
		p.At(60, 60)
		shows("")
		p.Clear()
		shows("\r" + "                                                 " + "\r")
		width = 20
		time.Sleep(barEvery)
		p.At(60, 60)
		shows("\rCounting 60%, 60 us")
		width = 60
		time.Sleep(600 * time.Millisecond)
		p.At(100, 100)
		p.Stop()
		require.Contains(t, out.String(), "] Counting 100%, 100 users, 100/s, took 1s")
		require.Equal(t, byte('\n'), out.Bytes()[out.Len()-1])
	})
}

func TestUnknownTotal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := Start(&out, "Importing", 0, "lines")
		time.Sleep(lineEvery)
		p.At(250, 20)
		require.Equal(t, "Importing 20 lines, 4/s\n", out.String())
	})
}
