package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"tideline/ent/auditentry"
	"tideline/feed/job"
	"tideline/feed/moderation"
	"tideline/queue"
	"tideline/server"
	"tideline/server/backend"
)

// Jobs lists jobs, and retries or discards dead jobs. A dead job has been given up and is not tried again.
type Jobs struct {
	List    jobsList    `cmd:"" help:"List jobs, oldest first."`
	Retry   jobsRetry   `cmd:"" help:"Run dead jobs again, with a full set of attempts."`
	Discard jobsDiscard `cmd:"" help:"Delete dead jobs that cannot be done. This deletes all of the named jobs, or none."`
}

type jobsList struct {
	Dead  bool   `env:"-" help:"List only dead jobs, which have been given up."`
	Kind  string `env:"-" help:"List only jobs of this kind."`
	After int64  `env:"-" help:"List only jobs with a higher id, for the next page."`
	Limit int    `env:"-" default:"100" help:"List at most this many jobs, 1 to 1000."`
	JSON  bool   `env:"-" name:"json" help:"Print one JSON object per line."`
}

func (l jobsList) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		jobs, err := b.Queue.List(ctx, queue.ListOptions{Dead: l.Dead, Kind: l.Kind, After: l.After, Limit: l.Limit})
		if err != nil {
			return err
		}
		if l.JSON {
			out := json.NewEncoder(console.Out)
			for _, job := range jobs {
				if err := out.Encode(job); err != nil {
					return fmt.Errorf("print job %d: %w", job.ID, err)
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tKIND\tPOOL\tDEAD\tATTEMPTS\tCREATED\tPAYLOAD\tLAST ERROR")
		for _, job := range jobs {
			fmt.Fprintf(table, "%d\t%s\t%s\t%t\t%d\t%s\t%s\t%s\n", job.ID, job.Kind, job.Pool, job.Dead, job.Attempts,
				job.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), job.Payload, job.LastError)
		}
		return table.Flush()
	})
}

type jobsRetry struct {
	IDs  []int64 `arg:"" optional:"" name:"id" help:"Ids of the jobs. Without ids, all dead jobs are retried. If an id has no job, the others are retried and the command fails."`
	Note string  `env:"-" help:"A note for the audit log."`
}

func (r jobsRetry) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		ids := r.IDs
		if len(ids) == 0 {
			var err error
			if ids, err = b.Queue.DeadIDs(ctx); err != nil {
				return err
			}
		}
		if len(ids) == 0 {
			fmt.Fprintln(console.Out, "0 jobs will be tried again.")
			return nil
		}
		var found []int64
		err := b.Moderation.Operate(ctx, moderation.Console, moderation.OfJobs(auditentry.ActionRETRY_JOBS, ids, r.Note),
			func(ctx context.Context) (err error) {
				found, err = b.Queue.Retry(ctx, ids...)
				return err
			})
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%s will be tried again.\n", count(len(found), "job", "jobs"))
		if len(r.IDs) == 0 {
			return nil
		}
		var missing []string
		for _, id := range ids {
			if !slices.Contains(found, id) {
				missing = append(missing, strconv.FormatInt(id, 10))
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("there is no job %s: it is done, or never was", strings.Join(missing, ", "))
		}
		return nil
	})
}

type jobsDiscard struct {
	IDs  []int64 `arg:"" name:"id" help:"Ids of dead jobs. Their kinds must be such that another job can repair the loss."`
	Note string  `env:"-" help:"A note for the audit log."`
}

func (d jobsDiscard) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		var enqueued []string
		err := b.Moderation.Operate(ctx, moderation.Console, moderation.OfJobs(auditentry.ActionDISCARD_JOBS, d.IDs, d.Note),
			func(ctx context.Context) (err error) {
				enqueued, err = b.Queue.Discard(ctx, job.Replacement, d.IDs...)
				return err
			})
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%s discarded.\n", count(len(d.IDs), "job is", "jobs are"))
		if len(enqueued) > 0 {
			fmt.Fprintf(console.Out, "The jobs do not say whose feeds lack posts, so all feeds will be read from SQL again: %s is enqueued.\n", strings.Join(enqueued, ", "))
		}
		return nil
	})
}
