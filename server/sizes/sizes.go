// Package sizes is which sizes of a running process may be changed, within which bounds.
package sizes

import (
	"fmt"
	"strings"

	"tideline/feed"
	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/workers"
)

// The bounds of a fan-out's page, and of what is a large audience.
const (
	LeastPage         = 100
	MostPage          = 30_000
	MostLargeAudience = 1_000_000_000
)

// Check is an error where a process may not have the size. It names the setting.
func Check(s fleet.Size, n int) error {
	flag, least, most := "", 1, queue.MaxWorkers
	switch s {
	case fleet.SmallWorkers:
		flag = "small-workers"
	case fleet.LargeWorkers:
		flag = "large-workers"
	case fleet.RelationWorkers:
		flag = "relation-workers"
	case fleet.FanOutPage:
		flag, least, most = "fan-out-page", LeastPage, MostPage
	case fleet.LargeAudience:
		flag, most = "large-audience", MostLargeAudience
	}
	if n < least || n > most {
		return fmt.Errorf("--%s (TIDELINE_%s) is %d: it must be %d to %d", flag, strings.ToUpper(strings.ReplaceAll(flag, "-", "_")), n, least, most)
	}
	return nil
}

func adjuster(s fleet.Size, now func() int, set func(int) error) fleet.Adjuster {
	return fleet.Adjuster{Now: now, Set: func(n int) error {
		if err := Check(s, n); err != nil {
			return err
		}
		return set(n)
	}}
}

// OfWorkers are the sizes of a process with workers.
func OfWorkers(q *queue.Queue, w *workers.Workers) map[fleet.Size]fleet.Adjuster {
	sizes := map[fleet.Size]fleet.Adjuster{fleet.FanOutPage: adjuster(fleet.FanOutPage, w.PageSize, w.SetPageSize)}
	for size, pool := range map[fleet.Size]queue.Pool{
		fleet.SmallWorkers: queue.Small, fleet.LargeWorkers: queue.Large, fleet.RelationWorkers: queue.Relations,
	} {
		sizes[size] = adjuster(size, func() int { return q.Size(pool) }, func(n int) error { return q.Resize(pool, n) })
	}
	return sizes
}

// OfFeed is the size of a process that takes posts.
func OfFeed(f *feed.Feed) fleet.Adjuster {
	return adjuster(fleet.LargeAudience, f.LargeAudience, f.SetLargeAudience)
}
