package peers

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

var (
	rounds      = flag.Int("rounds", 1, "how often each benchmark goes round its servers")
	beside      = flag.String("beside", "", "an older test binary of this package, whose Tideline is also measured")
	connections = flag.String("conns", "1,16,64", "connections of BenchmarkPage")
	pageLength  = flag.Duration("pages", pageTime, "how long BenchmarkPage asks each server")
	subscribers = flag.String("subscribers", "1000,5000", "subscribers of BenchmarkLive and of BenchmarkReconnect")
	livePosts   = flag.Int("posts", 20, "posts of BenchmarkLive, first one after the other and then in one burst")
	deflate     = flag.Bool("deflate", false, "whether live clients and Tideline agree to permessage-deflate")
)

// TestMain runs one of the servers instead of the tests if the environment says so. After
// benchmarks it prints their table.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := serveRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	storagetest.Main(m, func() error { measured.print(os.Stdout); return nil })
}

// TestPeers runs a small part of everything, so that the benchmarks keep working.
func TestPeers(t *testing.T) {
	var r results
	stores := storagetest.Real(t)
	seedPages(t, stores, 100)
	for _, p := range pagePeers() {
		figures := measurePages(t, stores, p, 2, warmUpOnce, pageTime/100)
		require.Positive(t, value(figures, "requests/s"))
		r.add("page", "2", p.name, figures)
	}
	for _, p := range livePeers() {
		figures := measureLive(t, p, 20, 2, 0)
		require.Positive(t, value(figures, "last ms"))
		require.LessOrEqual(t, value(figures, "first ms"), value(figures, "median ms"))
		r.add("live", "20", p.name, figures)
	}
	tideline := livePeers()[0]
	require.Positive(t, value(measureReconnect(t, tideline, 20), "reconnects/s"))
	require.Positive(t, value(measureResync(t, tideline, 20, 0), "resync s"))
	require.Positive(t, value(measureAbuse(t, tideline, 0, pace), "p50 ms"))
	for _, a := range []fieldAbuse{fieldAbuses[0], fieldAbuses[len(fieldAbuses)-1]} {
		require.Positive(t, value(measureFieldAbuse(t, tideline, a, 0, pace), "p50 ms"))
	}
	var table strings.Builder
	r.print(&table)
	for _, line := range []string{"\n| page | server | requests/s |", "\n| 2 | gqlgen |", "\n| live | server | first ms |", "\n| 20 | centrifuge |"} {
		require.Contains(t, table.String(), line)
	}
}

func TestTableHasTheMediansOfAllRounds(t *testing.T) {
	var r results
	for _, v := range []float64{3, 1, 200} {
		r.add("page", "16", "tideline", []figure{{"requests/s", v}, {"server µs", v / 100}})
		r.add("page", "16", "floor", []figure{{"requests/s", 2 * v}, {"server µs", 0}})
	}
	r.add("page", "64", "floor", []figure{{"requests/s", 1234.5}, {"server µs", 12.34}})
	var table strings.Builder
	r.print(&table)
	require.Equal(t, `
| page | server | requests/s | server µs |
| --- | --- | --- | --- |
| 16 | tideline | 3.00 | 0.03 |
| 16 | floor | 6.00 | 0.00 |
| 64 | floor | 1234 | 12.3 |
`, table.String())
}

// figure is one measured value.
type figure struct {
	name  string
	value float64
}

func value(figures []figure, name string) float64 {
	return figures[slices.IndexFunc(figures, func(f figure) bool { return f.name == name })].value
}

// measured has the figures of this run's benchmarks.
var measured results

// results has the rows of the tables, in the order of their first measurement.
type results struct{ rows []*row }

// row is one server at one size, with the figures of each round.
type row struct {
	table, size, server string
	rounds              [][]figure
}

func (r *results) add(table, size, server string, figures []figure) {
	i := slices.IndexFunc(r.rows, func(w *row) bool { return w.table == table && w.size == size && w.server == server })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &row{table: table, size: size, server: server})
	}
	r.rows[i].rounds = append(r.rows[i].rounds, figures)
}

// report adds a row, and reports its figures as metrics of the benchmark.
func (r *results) report(b *testing.B, table, size, server string, figures []figure) {
	r.add(table, size, server, figures)
	for _, f := range figures {
		b.ReportMetric(f.value, strings.ReplaceAll(f.name, " ", "-"))
	}
	b.ReportMetric(0, "ns/op")
}

// print writes the tables as Markdown, with the medians of the rounds.
func (r *results) print(out io.Writer) {
	table := ""
	for _, w := range r.rows {
		if w.table != table {
			table = w.table
			fmt.Fprintf(out, "\n| %s | server |", table)
			for _, f := range w.rounds[0] {
				fmt.Fprintf(out, " %s |", f.name)
			}
			fmt.Fprintf(out, "\n|%s\n", strings.Repeat(" --- |", 2+len(w.rounds[0])))
		}
		fmt.Fprintf(out, "| %s | %s |", w.size, w.server)
		for i := range w.rounds[0] {
			all := make([]float64, len(w.rounds))
			for round, figures := range w.rounds {
				all[round] = figures[i].value
			}
			slices.Sort(all)
			fmt.Fprintf(out, " %s |", digits(all[len(all)/2]))
		}
		fmt.Fprintln(out)
	}
}

// digits formats a number with three significant digits, and all digits before the point.
func digits(v float64) string {
	decimals := 2
	for limit := v; limit >= 10 && decimals > 0; limit /= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// sizes parses a flag with numbers separated by commas.
func sizes(tb testing.TB, list string) (all []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		require.NoError(tb, err)
		all = append(all, n)
	}
	return all
}
