package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
)

const (
	// patience bounds the wait for healthy processes after the last fault, and then the
	// wait for an empty queue.
	patience = 6 * time.Minute
	// healing then bounds the wait for correct timelines and clients.
	healing = time.Minute
	// lines is the maximum number of findings printed. The file contains all of them.
	lines = 100
)

func TestChaos(t *testing.T) {
	worldtest.NeedNode(t)
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	t.Logf("seed %d, for %v", *seed, *length)
	stores, processes := chosen(storeFaults), chosen(processFaults)
	require.NotEmpty(t, append(stores, processes...), "no fault has a name with -only=%s", *only)
	w := newWorld(t, options{binary: *binary, people: *people, servers: 2, workers: 2}, rand.New(rand.NewPCG(*seed, 0)))
	ctx := t.Context()

	var acting, probing sync.WaitGroup
	stopActing := make(chan struct{})
	acting.Go(func() { w.load.live(ctx, stopActing, *seed) })
	probes, stopProbing := context.WithCancel(ctx)
	for _, p := range w.probers {
		probing.Go(func() { p.run(probes) })
	}

	p := pace{2 * time.Second, 5 * time.Second, 8 * time.Second, 8 * time.Second}
	if *length >= 3*time.Minute {
		p = pace{3 * time.Second, 8 * time.Second, 12 * time.Second, 150 * time.Second}
	}
	end := w.began.Add(*length)
	var lanes sync.WaitGroup
	for i, kinds := range [][]kind{stores, processes} {
		lanes.Go(func() { w.suffer(ctx, kinds, end, p, rand.New(rand.NewPCG(*seed, uint64(i+1)))) })
	}
	lanes.Wait()
	time.Sleep(time.Until(end))
	w.lift(ctx)
	close(stopActing)
	require.NoError(t, w.crowd.Calm())
	acting.Wait()
	within := patience
	if limit, ok := t.Deadline(); ok {
		within = min(within, (time.Until(limit)-2*healing)/2)
	}
	settled := w.settle(ctx, within)
	stopProbing()
	probing.Wait()
	settled = errors.Join(settled, w.settleQueue(ctx, within))

	wrong := w.wrong(ctx, settled)
	t.Logf("%d actions, %d posts accepted\n%s", w.load.actions, len(w.load.accepted), w.table())
	if len(w.load.failed) > 0 {
		t.Logf("%d actions were refused for good, such as %s", len(w.load.failed), w.load.failed[0])
	}
	if len(wrong) == 0 {
		t.Log("nothing was lost, nothing leaked, nothing was doubled")
		return
	}
	w.fail(wrong)
}

// chosen returns the kinds that the flag -only selects.
func chosen(kinds []kind) (list []kind) {
	for _, k := range kinds {
		if slices.ContainsFunc(strings.Split(*only, ","), func(part string) bool { return strings.Contains(k.name, part) }) {
			list = append(list, k)
		}
	}
	return list
}

// lift undoes what a failed fault may have left behind.
func (w *world) lift(ctx context.Context) {
	for _, n := range w.cluster.nodes {
		n.Thaw()
		if err := n.client.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
			w.t.Errorf("%s: %v", n.name, err)
		}
	}
	if err := w.cluster.awaitWhole(ctx); err != nil {
		w.t.Error(err)
	}
}

// wrong returns all violations. It is called after the last fault, when the queue is empty.
// settled is the error of waiting for that state.
func (w *world) wrong(ctx context.Context, settled error) (all []string) {
	if settled != nil {
		all = append(all, "IT DID NOT SETTLE: "+settled.Error())
	}
	var found []finding
	err := eventually(ctx, healing, func() (err error) {
		if found, err = w.compare(ctx); err == nil && len(found) > 0 {
			err = fmt.Errorf("%d differences", len(found))
		}
		return err
	})
	if err != nil && len(found) == 0 {
		all = append(all, "COULD NOT BE READ: "+err.Error())
	}
	for _, check := range []func() ([]string, error){
		func() ([]string, error) { return w.inSQL(ctx) },
		func() ([]string, error) { return w.deadJobs(ctx) },
		w.clientFaults,
		w.leaks,
		func() ([]string, error) { return w.histories(found) },
	} {
		lines, err := check()
		if err != nil {
			all = append(all, "COULD NOT BE CHECKED: "+err.Error())
		}
		all = append(all, lines...)
	}
	for _, p := range w.probers {
		for _, line := range p.unread {
			all = append(all, "OWN POST: "+line)
		}
	}
	all = append(all, w.faults.losses...)
	if len(found) > 0 {
		w.t.Log("findings by fault:\n" + w.summary(found))
	}
	return append(all, w.report(found)...)
}

// fail fails the test. It prints the violations and the command that repeats the run.
func (w *world) fail(wrong []string) {
	file := filepath.Join("..", "..", ".test", "chaos-findings.txt")
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Join(wrong, "\n")+"\n"), 0o600)
	}
	if err != nil {
		w.t.Log("the findings were not kept:", err)
	}
	for i, line := range wrong {
		if i == lines {
			w.t.Logf("and %d more, in %s", len(wrong)-i, file)
			break
		}
		w.t.Log(line)
	}
	w.t.Errorf("%d things are wrong; again: make chaos SEED=%d FOR=%v%s", len(wrong), *seed, *length, onlyAgain())
}

func onlyAgain() string {
	if *only == "" {
		return ""
	}
	return fmt.Sprintf(" ONLY='%s'", *only)
}
