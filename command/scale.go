package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tideline/ent"
	"tideline/feed/moderation"
	"tideline/internal/fleet"
	"tideline/server"
	"tideline/server/sizes"
	"tideline/storage"
)

type workersScale struct {
	chosen
	Small     *int          `env:"-" placeholder:"N" help:"Ordinary jobs that run at once, 1 to 1024; as --small-workers at the start."`
	Large     *int          `env:"-" placeholder:"N" help:"Fan-outs to large audiences that run at once, 1 to 1024; as --large-workers."`
	Relations *int          `env:"-" placeholder:"N" help:"Changes of relations that run at once, 1 to 1024; as --relation-workers."`
	Page      *int          `env:"-" placeholder:"N" help:"Followers that a fan-out reads and pushes to at a time, 100 to 30000; as --fan-out-page."`
	LargeFrom *int          `env:"-" placeholder:"N" help:"Followers from which fan-outs are large, 1 to 1000000000; as --large-audience. Servers decide it."`
	Reset     bool          `env:"-" help:"Go back to what each process is configured with."`
	Wait      time.Duration `env:"-" default:"30s" help:"How long to wait until the processes have done it."`
}

// Help is the end of the command's help.
func (workersScale) Help() string {
	return "It holds until a process ends. To have it stay, set TIDELINE_SMALL_WORKERS, TIDELINE_LARGE_WORKERS, TIDELINE_RELATION_WORKERS, " +
		"TIDELINE_FAN_OUT_PAGE or TIDELINE_LARGE_AUDIENCE where it is started: a process that starts later has its configuration."
}

// sizes are those that are given, as far as they are in bounds.
func (w workersScale) sizes() (map[fleet.Size]int, error) {
	to := map[fleet.Size]int{}
	var errs []error
	for i, n := range []*int{w.Small, w.Large, w.Relations, w.Page, w.LargeFrom} {
		if n == nil {
			continue
		}
		size := fleet.Sizes[i]
		to[size] = *n
		err := sizes.Check(size, *n)
		if err != nil && *n == 0 && i < 3 {
			err = fmt.Errorf("%w; 'tideline workers pause' has a process take no jobs", err)
		}
		errs = append(errs, err)
	}
	switch {
	case w.Reset && len(to) > 0:
		errs = append(errs, errors.New("--reset goes without sizes: it is for all of them"))
	case !w.Reset && len(to) == 0:
		errs = append(errs, errors.New("which size? Give one of --small, --large, --relations, --page and --large-from, or --reset"))
	}
	return to, errors.Join(errs...)
}

func (w workersScale) Run(ctx context.Context, c server.Config, console server.Console) error {
	to, err := w.sizes()
	if err != nil {
		return err
	}
	room := storage.Config{DataDir: c.DataDir, DatabaseURL: c.DatabaseURL, RedisURL: c.RedisURL}.Connections()
	of := func(p *ent.Process) map[fleet.Size]int {
		if !w.All {
			return to
		}
		some := map[fleet.Size]int{}
		for size, n := range to {
			if fleet.Has(p, size) {
				some[size] = n
			}
		}
		return some
	}
	return w.act(ctx, c, console, deed{
		wait: w.Wait, nobody: "There is no process that has such a size.",
		concerns: func(p *ent.Process) bool { return p.Sizes == nil || w.Reset || len(of(p)) > 0 },
		tell: func(ctx context.Context, f *fleet.Fleet, id int64, p *ent.Process) (bool, error) {
			_, changed, err := f.Scale(ctx, moderation.Console, id, of(p), w.Note)
			return changed, err
		},
		reached: func(p *ent.Process) (string, bool) {
			for size := range p.Sizes {
				if p.Sizes[size].Now != fleet.WantedOf(p, size) {
					return "", false
				}
			}
			text := "has " + sizesOf(p)
			if at := p.Sizes[fleet.SmallWorkers].Now + p.Sizes[fleet.LargeWorkers].Now + p.Sizes[fleet.RelationWorkers].Now; room > 0 && at > room {
				text += fmt.Sprintf(". Its %d jobs at once share %d connections to PostgreSQL", at, room)
			}
			return text, true
		},
	})
}

// sizesOf says in words which sizes a process has.
func sizesOf(p *ent.Process) string {
	words := map[fleet.Size]string{
		fleet.SmallWorkers: "%d small workers", fleet.LargeWorkers: "%d large workers", fleet.RelationWorkers: "%d relation workers",
		fleet.FanOutPage: "pages of %d followers", fleet.LargeAudience: "large fan-outs from %d followers",
	}
	var said []string
	for _, size := range fleet.Sizes {
		if !fleet.Has(p, size) {
			continue
		}
		text := fmt.Sprintf(words[size], p.Sizes[size].Now)
		if configured := p.Sizes[size].Configured; configured != p.Sizes[size].Now {
			text += fmt.Sprintf(" (configured: %d)", configured)
		}
		said = append(said, text)
	}
	return strings.Join(said, ", ")
}

func listSizes(p *ent.Process) map[fleet.Size]listedSize {
	list := map[fleet.Size]listedSize{}
	for name, size := range p.Sizes {
		list[name] = listedSize{size.Now, size.Configured, fleet.WantedOf(p, name)}
	}
	return list
}

// showSizes shows sizes of a process, as 8/2/4, or 8→16/2/4 until it has heard of a change.
func showSizes(p *ent.Process, sizes ...fleet.Size) string {
	var shown []string
	for _, size := range sizes {
		if !fleet.Has(p, size) {
			return "-"
		}
		text := strconv.Itoa(p.Sizes[size].Now)
		if wanted := fleet.WantedOf(p, size); wanted != p.Sizes[size].Now {
			text += "→" + strconv.Itoa(wanted)
		}
		shown = append(shown, text)
	}
	return strings.Join(shown, "/")
}
