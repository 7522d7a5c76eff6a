package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"tideline/ent"
	"tideline/ent/process"
	"tideline/feed/moderation"
	"tideline/internal/fleet"
	"tideline/server"
	"tideline/server/backend"
)

// Ps lists the processes that share the database.
type Ps struct {
	JSON bool `env:"-" name:"json" help:"One JSON object per line."`
}

// listed is a process in the JSON output.
type listed struct {
	ID            int64       `json:"id"`
	Host          string      `json:"host"`
	PID           int         `json:"pid"`
	Version       string      `json:"version"`
	Roles         string      `json:"roles"`
	StartedAt     time.Time   `json:"startedAt"`
	SeenAt        time.Time   `json:"seenAt"`
	Subscriptions int         `json:"subscriptions"`
	Jobs          int         `json:"jobs"`
	State         fleet.State `json:"state"`
}

// Run lists the processes in the order of their start.
func (p Ps) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		f := fleet.New(b.Stores.DB, time.Now)
		list, err := f.List(ctx)
		if err != nil {
			return err
		}
		if p.JSON {
			out := json.NewEncoder(console.Out)
			for _, p := range list {
				if err := out.Encode(listed{
					ID: p.ID, Host: p.Host, PID: p.Pid, Version: p.Version,
					Roles: p.Roles, StartedAt: p.StartedAt, SeenAt: p.SeenAt, Subscriptions: p.Subscriptions,
					Jobs: p.Jobs, State: f.State(p),
				}); err != nil {
					return err
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tHOST\tPID\tVERSION\tROLES\tSTARTED\tLAST SEEN\tSUBSCRIPTIONS\tJOBS\tSTATE")
		for _, p := range list {
			fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", p.ID, p.Host, p.Pid, p.Version, p.Roles,
				ifEver(&p.StartedAt), ifEver(&p.SeenAt), p.Subscriptions, p.Jobs, f.State(p))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		stats, err := b.Queue.Stats(ctx)
		if err != nil {
			return err
		}
		outstanding, oldest := 0, time.Duration(0)
		for _, of := range stats.Pools {
			outstanding, oldest = outstanding+of.Depth, max(oldest, of.Oldest)
		}
		_, err = fmt.Fprintf(console.Out, "Jobs outstanding: %d, the oldest for %s.\nDatabase: %s.\n", outstanding, oldest.Round(time.Second), c.Database())
		return err
	})
}

// Workers pauses and resumes the workers of running processes.
type Workers struct {
	Pause  workersPause  `cmd:"" help:"Have processes take no new job. They finish those under way. Other processes go on."`
	Drain  workersDrain  `cmd:"" help:"Pause processes, and wait until no job is under way in them."`
	Resume workersResume `cmd:"" help:"End a pause."`
}

// target says on which processes with workers a command acts.
type target struct {
	IDs  []int64 `arg:"" optional:"" name:"id" help:"Ids of processes, as 'tideline ps' lists them. If one is not there, the command acts on the others and then fails."`
	All  bool    `env:"-" help:"All live processes with workers."`
	Note string  `env:"-" help:"For the audit log."`
}

type workersPause struct {
	target
	Wait time.Duration `env:"-" default:"30s" help:"How long to wait until the processes have confirmed it."`
}

func (w workersPause) Run(ctx context.Context, c server.Config, console server.Console) error {
	return w.want(ctx, c, console, process.WantedPause, w.Wait, func(p *ent.Process) (string, bool) {
		if !p.Paused {
			return "", false
		}
		return fmt.Sprintf("takes no new job; %d under way", p.Jobs), true
	})
}

type workersDrain struct {
	target
	Wait time.Duration `env:"-" default:"5m" help:"How long to wait for the jobs under way. If jobs still run then, the workers stay paused."`
}

func (w workersDrain) Run(ctx context.Context, c server.Config, console server.Console) error {
	return w.want(ctx, c, console, process.WantedPause, w.Wait, func(p *ent.Process) (string, bool) {
		switch {
		case !p.Paused:
			return "", false
		case p.Jobs > 0:
			return fmt.Sprintf("takes no new job; %d under way", p.Jobs), false
		}
		return "is drained", true
	})
}

type workersResume struct {
	target
	Wait time.Duration `env:"-" default:"30s" help:"How long to wait until the processes have confirmed it."`
}

func (w workersResume) Run(ctx context.Context, c server.Config, console server.Console) error {
	return w.want(ctx, c, console, process.WantedRun, w.Wait, func(p *ent.Process) (string, bool) {
		if p.Paused {
			return "", false
		}
		return "takes jobs", true
	})
}

// want asks the target processes to pause or resume their workers, and waits until each has reached that, has
// ended or is gone. reached describes the state of a process, and reports whether it has; its text is printed
// whenever it changes.
func (t target) want(ctx context.Context, config server.Config, console server.Console, wanted process.Wanted, wait time.Duration,
	reached func(*ent.Process) (string, bool),
) error {
	if t.All == (len(t.IDs) > 0) {
		return errors.New("give either ids (see 'tideline ps') or --all")
	}
	return with(ctx, config, console, server.SQL, func(b *backend.Backend) error {
		f := fleet.New(b.Stores.DB, time.Now)
		ids := t.IDs
		if t.All {
			list, err := f.List(ctx)
			if err != nil {
				return err
			}
			for _, p := range list {
				if fleet.HasWorkers(p) && f.State(p) != fleet.Gone {
					ids = append(ids, p.ID)
				}
			}
		}
		var refused error
		var asked []int64
		for _, id := range ids {
			_, changed, err := f.Want(ctx, moderation.Console, id, wanted, t.Note)
			switch {
			case errors.Is(err, fleet.ErrNoProcess) && t.All: // the process has just ended
			case err != nil:
				refused = errors.Join(refused, err)
			default:
				if !changed {
					fmt.Fprintf(console.Out, "Process %d: nothing to change.\n", id)
				}
				asked = append(asked, id)
			}
		}
		if t.All && len(asked) == 0 {
			fmt.Fprintln(console.Out, "No process with workers was reached.")
		}
		return errors.Join(refused, awaitWorkers(ctx, console.Out, f, asked, wait, reached))
	})
}

// awaitWorkers waits until each process has reached the action, has ended or is gone, and prints the texts of
// reached. Gone processes are an error.
func awaitWorkers(ctx context.Context, out io.Writer, f *fleet.Fleet, ids []int64, wait time.Duration, reached func(*ent.Process) (string, bool)) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	said := map[int64]string{}
	say := func(id int64, host, text string) {
		if text != "" && said[id] != text {
			said[id] = text
			fmt.Fprintf(out, "Process %d%s %s.\n", id, host, text)
		}
	}
	var left, lost []int64
	err := f.Await(ctx, ids, func(list []*ent.Process) bool {
		lost = nil
		left = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
			i := slices.IndexFunc(list, func(p *ent.Process) bool { return p.ID == id })
			if i < 0 {
				say(id, "", "has ended")
				return true
			}
			text, done := reached(list[i])
			if f.State(list[i]) == fleet.Gone {
				text, done = "gives no sign of life any more", true
				lost = append(lost, id)
			}
			say(id, " on "+list[i].Host, text)
			return done
		})
		return len(left) == 0
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not done after %s: processes %v; the order stays, see 'tideline ps'", wait, left)
	}
	if err == nil && len(lost) > 0 {
		return fmt.Errorf("processes %v are gone; others take over their jobs", lost)
	}
	return err
}
