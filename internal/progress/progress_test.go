package progress

import (
	"bytes"
	"strings"
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
		p := Start(&out, "Counting", 100, "users")
		p.draw()
		shows := func(texts ...string) {
			t.Helper()
			shown, _ := strings.CutPrefix(out.String(), "\r")
			require.NotContains(t, shown, "\n")
			for _, text := range texts {
				require.Contains(t, shown, text)
			}
			out.Reset()
		}
		shows("0%", "Counting 0 users")
		time.Sleep(barEvery)
		p.At(50, 50)
		shows("50%", "Counting 50 users, 250/s, 0s left")
		p.At(60, 60)
		require.Empty(t, out.String(), "not due")
		p.Clear()
		require.Regexp(t, "^\r +\r$", out.String())
		out.Reset()
		time.Sleep(800 * time.Millisecond)
		p.Stop()
		require.Regexp(t, "60%.*Counting 60 users, 60/s, took 1s.*\n$", out.String())
		out.Reset()

		p = Start(&out, "Counting", 100, "users")
		p.draw()
		time.Sleep(time.Second)
		p.At(100, 100)
		p.Stop()
		require.Regexp(t, "100%.*Counting 100 users, 100/s, took 1s.*\n$", out.String())
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
		out.Reset()
		p.draw()
		p.At(251, 21)
		p.Stop()
		require.Contains(t, out.String(), "Importing 21 lines, 4/s, took 5s")
	})
}
