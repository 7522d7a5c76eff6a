package oracle

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// mostSteps is the largest number of steps of a run.
var mostSteps = setting("TIDELINE_ORACLE_STEPS", 60, strconv.Atoi)

// ordinary is how long each engine is tested, unless -rapid.checks sets a number of runs.
var ordinary = setting("TIDELINE_ORACLE_FOR", 16*time.Second, time.ParseDuration)

func setting[T any](name string, standard T, parse func(string) (T, error)) T {
	text, ok := os.LookupEnv(name)
	if !ok {
		return standard
	}
	v, err := parse(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return v
}

// TestOracle compares random histories with the model, on every engine.
func TestOracle(t *testing.T) {
	// The steps are printed because a race may not recur with the same seed.
	require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	if _, set := os.LookupEnv("TIDELINE_ORACLE_FOR"); testing.Short() && !set {
		ordinary = 4 * time.Second
	}
	counted := false
	flag.Visit(func(f *flag.Flag) { counted = counted || f.Name == "rapid.checks" })
	if counted {
		ordinary = 24 * time.Hour
	} else {
		require.NoError(t, flag.Set("rapid.checks", "100000"))
	}
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) { try(t, s, ordinary) })
	t.Run("postgres+cluster", func(t *testing.T) {
		s := storagetest.Open(t, storage.Config{DatabaseURL: storagetest.PostgresURL(t), RedisURL: storagetest.ClusterURL(t)})
		try(t, s, ordinary/2)
	})
}

// try executes runs for a limited time.
func try(t *testing.T, s *storage.Stores, limit time.Duration) {
	o := &oracle{engine: newEngine(t, s), until: time.Now().Add(limit)}
	defer o.tell(t)
	rapid.Check(t, func(rt *rapid.T) {
		if o.over() {
			return
		}
		p := plans.Draw(rt, "plan")
		if o.fails(p) {
			rt.Fatal("what is shown is not what the rules say")
		}
	})
}

// oracle keeps the shortest failing plan. A race does not recur every time, so the last run of
// rapid may succeed.
type oracle struct {
	*engine
	until       time.Time
	runs, steps int
	shortest    []string
}

// over reports whether the time is up. It allows rapid extra time to reduce a failure.
func (o *oracle) over() bool {
	return o.shortest == nil && time.Now().After(o.until)
}

// fails executes a plan and reports whether it fails. After the first failure, each plan is
// executed up to three times.
func (o *oracle) fails(p plan) bool {
	for range 3 {
		told, err := o.play(p, o.over)
		if err != nil {
			if told = append(told, "=> "+err.Error()); o.shortest == nil || len(told) < len(o.shortest) {
				o.shortest = told
			}
			return true
		}
		if o.runs, o.steps = o.runs+1, o.steps+len(p.steps); o.shortest == nil {
			return false
		}
	}
	return false
}

func (o *oracle) tell(t *testing.T) {
	t.Logf("%d times workers came to inboxes for one job, %d times for several, who were stopped %d times",
		o.gate.alone.Load(), o.gate.company.Load(), o.gate.stopped.Load())
	t.Logf("%d histories, %d steps; clients got %d events, resumed %d times and were told %d times to read again",
		o.runs, o.steps, o.seen.events, o.seen.resumed, o.seen.invalidated)
	if o.shortest != nil {
		t.Errorf("the shortest history that fails:\n  %s", strings.Join(o.shortest, "\n  "))
	}
}
