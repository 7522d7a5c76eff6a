package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/ids"
	"tideline/graph"
	"tideline/internal/progress"
	"tideline/server"
	"tideline/server/backend"
	"tideline/timeline"
)

// Feeds examines timelines.
type Feeds struct {
	Inspect feedsInspect `cmd:"" help:"Show what is known of a user's timeline."`
	Explain feedsExplain `cmd:"" help:"Say why a post is or is not in a viewer's timeline, and what rankings make of it."`
	Replay  feedsReplay  `cmd:"" help:"Show a user's timeline by one ranking beside another."`
	Verify  feedsVerify  `cmd:"" help:"Compare timelines and outboxes in Redis with SQL; report, and repair if asked to, what is missing or extra."`
	Rebuild feedsRebuild `cmd:"" help:"Make timelines in Redis anew from SQL."`
}

// withAudit runs a command on the timelines that servers use. Error: there are none, because Redis is embedded and no
// server runs.
func withAudit(ctx context.Context, c server.Config, console server.Console, fn func(*audit.Audit, *account.Directory) error) error {
	return unlessInterrupted(ctx, with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		if b.Stores.Embedded {
			return fmt.Errorf("the feeds live and end with 'tideline serve', which does not run on the data directory %s: start it, or set --redis-url (TIDELINE_REDIS_URL) to the Redis that servers share", c.DataDir)
		}
		return fn(b.Audit, b.Directory)
	}))
}

// unlessInterrupted returns err, or a short error if the command was interrupted.
func unlessInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// userNamed is Directory.Named with the name in the error.
func userNamed(ctx context.Context, people *account.Directory, name string) (*ent.User, error) {
	u, err := people.Named(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return u, nil
}

type feedsInspect struct {
	User string `arg:"" help:"Handle, id or number of the user."`
}

func (i feedsInspect) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withAudit(ctx, c, console, func(audit *audit.Audit, people *account.Directory) error {
		u, err := userNamed(ctx, people, i.User)
		if err != nil {
			return err
		}
		in, err := audit.Inspect(ctx, u.ID)
		if err != nil {
			return err
		}
		complete := "nothing; reads come from SQL"
		if in.State == timeline.Ready {
			complete = moment(in.Floor, "the beginning")
		}
		merged := strconv.Itoa(len(in.Merged))
		if in.AllMerged {
			complete, merged = "does not matter; reads do without", "all"
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "user\t@%s (%d)\n", u.Handle, u.ID)
		fmt.Fprintf(table, "active\t%t\n", in.Active)
		fmt.Fprintf(table, "inbox\t%s, epoch %d\n", in.State, in.Epoch)
		fmt.Fprintf(table, "entries\t%d\n", in.Entries)
		fmt.Fprintf(table, "newest\t%s\n", moment(in.Newest, "none"))
		fmt.Fprintf(table, "complete down to\t%s\n", complete)
		fmt.Fprintf(table, "follows\t%d, of whom %s are fetched when reading\n", in.Followees, merged)
		return table.Flush()
	})
}

// moment formats a post's id with its time. It returns none for post 0.
func moment(post int64, none string) string {
	if post == 0 {
		return none
	}
	return fmt.Sprintf("%d (%s)", post, ids.TimeOf(post).Format("2006-01-02T15:04:05.000Z07:00"))
}

type feedsExplain struct {
	Viewer string `arg:"" help:"Handle, id or number of the viewer."`
	Post   string `arg:"" help:"Id of the post, as the API or the log has it."`
	Rank   string `env:"-" placeholder:"NAME" help:"Say what this ranking makes of the post, not what all of them do."`
	JSON   bool   `env:"-" name:"json" help:"As a JSON object."`
}

func (e feedsExplain) Run(ctx context.Context, c server.Config, console server.Console) error {
	post, err := strconv.ParseInt(e.Post, 10, 64)
	if err != nil {
		if post, err = graph.PostID(e.Post); err != nil {
			return fmt.Errorf("%q is not the id of a post: %w", e.Post, err)
		}
	}
	return withAudit(ctx, c, console, func(audit *audit.Audit, people *account.Directory) error {
		u, err := userNamed(ctx, people, e.Viewer)
		if err != nil {
			return err
		}
		sentence, err := audit.Explain(ctx, u.ID, post)
		if err != nil {
			return err
		}
		scores, err := audit.Scores(ctx, u.ID, post, e.Rank)
		if err != nil {
			return err
		}
		if e.JSON {
			return json.NewEncoder(console.Out).Encode(map[string]any{"viewer": u.Handle, "post": post, "why": sentence, "scores": scores})
		}
		fmt.Fprintf(console.Out, "Post %d. %s\n", post, sentence)
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		for _, s := range scores {
			fmt.Fprintf(table, "\n%s: %s = %s\n", s.Ranking, decimal(s.Score), s.Expression)
			for _, signal := range s.Signals {
				fmt.Fprintf(table, "  %s\t%s\n", signal.Name, decimal(signal.Value))
			}
		}
		return table.Flush()
	})
}

// decimal formats a score or a signal with twelve digits. The JSON output has all digits.
func decimal(x float64) string { return strconv.FormatFloat(x, 'g', 12, 64) }

// selection selects the users whose timelines a command visits.
type selection struct {
	Users []string `arg:"" optional:"" name:"user" help:"Handles, ids or numbers of the users."`
	All   bool     `env:"-" help:"All users."`
	Limit int      `env:"-" placeholder:"N" help:"With --all, at most this many users, the newest accounts last."`
}

func (s selection) check() error {
	switch {
	case s.All == (len(s.Users) > 0):
		return errors.New("name users, or --all of them")
	case s.Limit != 0 && !s.All:
		return errors.New("--limit goes with --all")
	case s.Limit < 0:
		return fmt.Errorf("--limit is %d: it must be 1 or more", s.Limit)
	}
	return nil
}

// each calls do for every selected user. If a named user does not exist, it fails before the first call.
func (s selection) each(ctx context.Context, people *account.Directory, console server.Console, do func(name string, user int64, p *bar) error) error {
	var named []int64
	for _, name := range s.Users {
		u, err := userNamed(ctx, people, name)
		if err != nil {
			return err
		}
		named = append(named, u.ID)
	}
	total := len(named)
	if s.All {
		var err error
		if total, err = people.Count(ctx); err != nil {
			return err
		}
		if s.Limit > 0 {
			total = min(total, s.Limit)
		}
	}
	p := startBar(console, "Timelines", total, "users")
	defer p.stop()
	step := func(name string, user int64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer p.step(1)
		return do(name, user, p)
	}
	for i, user := range named {
		if err := step(s.Users[i], user); err != nil {
			return err
		}
	}
	if !s.All {
		return nil
	}
	for after, left := int64(0), total; left > 0; {
		ids, err := people.UserIDsAfter(ctx, after, min(left, 1000))
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := step(strconv.FormatInt(id, 10), id); err != nil {
				return err
			}
		}
		after, left = ids[len(ids)-1], left-len(ids)
	}
	return nil
}

// bar shows the progress of a command on a terminal. Otherwise it shows nothing, since the totals
// at the end are enough for a file.
type bar struct {
	shown   *progress.Progress // nil if the log is not a terminal
	done    int
	console server.Console
}

func startBar(console server.Console, what string, total int, unit string) *bar {
	b := &bar{console: console}
	if progress.OnTerminal(console.Log) {
		b.shown = progress.Start(console.Log, what, int64(total), unit)
	}
	return b
}

// step advances the bar by n units.
func (b *bar) step(n int) {
	if b.done += n; b.shown != nil {
		b.shown.At(int64(b.done), b.done)
	}
}

// say prints a line above the bar.
func (b *bar) say(format string, args ...any) {
	if b.shown != nil {
		b.shown.Clear()
	}
	fmt.Fprintf(b.console.Out, format+"\n", args...)
}

func (b *bar) stop() {
	if b.shown != nil {
		b.shown.Stop()
	}
}

// count formats a number with its noun in the singular or the plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

type feedsVerify struct {
	selection
	Repair bool          `env:"-" help:"Rebuild the timelines and outboxes that differ."`
	Grace  time.Duration `env:"-" default:"30s" help:"Posts younger than this may still be on their way."`
}

// Run fails if timelines or outboxes differ and were not repaired.
func (v feedsVerify) Run(ctx context.Context, c server.Config, console server.Console) error {
	if err := v.check(); err != nil {
		return err
	}
	return withAudit(ctx, c, console, func(audit *audit.Audit, people *account.Directory) error {
		var users, differing, checked, missing, extra, outboxes int
		err := v.each(ctx, people, console, func(name string, user int64, p *bar) error {
			posts, err := audit.VerifyOutbox(ctx, user, v.Grace)
			if err != nil {
				return err
			}
			if len(posts.Missing)+len(posts.Extra) > 0 {
				outboxes++
				p.say("outbox of %s: missing %v, extra %v", name, posts.Missing, posts.Extra)
				if v.Repair {
					if err := audit.RebuildOutbox(ctx, user); err != nil {
						return err
					}
				}
			}
			d, err := audit.Verify(ctx, user, v.Grace)
			if err != nil {
				return err
			}
			users, checked, missing, extra = users+1, checked+d.Checked, missing+len(d.Missing), extra+len(d.Extra)
			if len(d.Missing)+len(d.Extra) == 0 {
				return nil
			}
			differing++
			p.say("%s: missing %v, extra %v", name, d.Missing, d.Extra)
			if v.Repair {
				_, err = audit.Rebuild(ctx, user)
			}
			return err
		})
		if err == nil || users > 0 || ctx.Err() != nil {
			fmt.Fprintf(console.Out, "%s, %s: %d missing, %d extra in %s\n", count(users, "timeline", "timelines"),
				count(checked, "entry", "entries"), missing, extra, count(differing, "timeline", "timelines"))
			if outboxes > 0 {
				fmt.Fprintf(console.Out, "%s from what was posted\n", count(outboxes, "outbox differs", "outboxes differ"))
			}
		}
		if err == nil && differing+outboxes > 0 && !v.Repair {
			return errors.New("timelines or outboxes differ from SQL; --repair rebuilds them")
		}
		return err
	})
}

type feedsRebuild struct{ selection }

func (r feedsRebuild) Run(ctx context.Context, c server.Config, console server.Console) error {
	if err := r.check(); err != nil {
		return err
	}
	return withAudit(ctx, c, console, func(audit *audit.Audit, people *account.Directory) error {
		rebuilt, away := 0, 0
		err := r.each(ctx, people, console, func(_ string, user int64, _ *bar) error {
			built, err := audit.Rebuild(ctx, user)
			switch {
			case err != nil:
				return err
			case built:
				rebuilt++
			default:
				away++
			}
			return nil
		})
		if err == nil || rebuilt+away > 0 || ctx.Err() != nil {
			report := count(rebuilt, "timeline", "timelines") + " rebuilt"
			if away > 0 {
				report += "; " + count(away, "user is", "users are") + " away: a timeline is built on return"
			}
			fmt.Fprintln(console.Out, report)
		}
		return err
	})
}
