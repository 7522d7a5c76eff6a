package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/cheggaaa/pb/v3"

	"tideline/feed"
	"tideline/graph"
	"tideline/server"
)

type feedsCommand struct {
	Inspect feedsInspect `cmd:"" help:"Show what is known of a user's timeline."`
	Explain feedsExplain `cmd:"" help:"Say in one sentence why a post is or is not in a viewer's timeline."`
	Verify  feedsVerify  `cmd:"" help:"Compare timelines in Redis with SQL; report, and repair if asked to, what is missing or extra."`
	Rebuild feedsRebuild `cmd:"" help:"Make timelines in Redis anew from SQL."`
}

type feedsInspect struct {
	User string `arg:"" help:"Handle of the user."`
}

func (i feedsInspect) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithFeed(ctx, console, func(f *feed.Feed) error {
		u, err := f.User(ctx, i.User)
		if err != nil {
			return err
		}
		in, err := f.Inspect(ctx, u.ID)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "user\t@%s (%d)\n", u.Handle, u.ID)
		fmt.Fprintf(table, "active\t%t\n", in.Active)
		fmt.Fprintf(table, "inbox\t%s, epoch %d\n", in.State, in.Epoch)
		fmt.Fprintf(table, "entries\t%d\n", in.Entries)
		fmt.Fprintf(table, "newest\t%s\n", moment(in.Newest, "none"))
		fmt.Fprintf(table, "complete down to\t%s\n", moment(in.Floor, "the beginning"))
		fmt.Fprintf(table, "follows\t%d, of whom %d are fetched when reading\n", in.Followees, len(in.Merged))
		return table.Flush()
	})
}

// moment is a post's id and time.
func moment(post int64, none string) string {
	if post == 0 {
		return none
	}
	return fmt.Sprintf("%d (%s)", post, feed.TimeOf(post).Format("2006-01-02T15:04:05.000Z07:00"))
}

type feedsExplain struct {
	Viewer string `arg:"" help:"Handle of the viewer."`
	Post   string `arg:"" help:"Id of the post, as the API or the log has it."`
}

func (e feedsExplain) Run(ctx context.Context, c server.Config, console server.Console) error {
	post, err := strconv.ParseInt(e.Post, 10, 64)
	if err != nil {
		if post, err = graph.PostID(e.Post); err != nil {
			return fmt.Errorf("%q is not the id of a post: %w", e.Post, err)
		}
	}
	return c.WithFeed(ctx, console, func(f *feed.Feed) error {
		u, err := f.User(ctx, e.Viewer)
		if err != nil {
			return err
		}
		sentence, err := f.Explain(ctx, u.ID, post)
		if err != nil {
			return err
		}
		fmt.Fprintln(console.Out, sentence)
		return nil
	})
}

// selection is whose timelines a command goes through.
type selection struct {
	Users []string `arg:"" optional:"" name:"user" help:"Handles of the users."`
	All   bool     `env:"-" help:"All users."`
	Limit int      `env:"-" placeholder:"N" help:"With --all, at most this many users, the newest accounts last."`
}

// each calls do for every selected user, under a progress bar.
func (s selection) each(ctx context.Context, f *feed.Feed, progress io.Writer, do func(handle string, user int64) error) error {
	if s.All == (len(s.Users) > 0) {
		return errors.New("name users, or --all of them")
	}
	bar := pb.Full.Start(0).SetWriter(progress)
	defer bar.Finish()
	for _, handle := range s.Users {
		u, err := f.User(ctx, handle)
		if err != nil {
			return fmt.Errorf("@%s: %w", handle, err)
		}
		if err := do(handle, u.ID); err != nil {
			return err
		}
		bar.Increment()
	}
	if !s.All {
		return nil
	}
	total, err := f.CountUsers(ctx)
	if err != nil {
		return err
	}
	if s.Limit > 0 {
		total = min(total, s.Limit)
	}
	bar.SetTotal(int64(total))
	for after, left := int64(0), total; left > 0; {
		ids, err := f.Sample(ctx, after, min(left, 1000))
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := do(strconv.FormatInt(id, 10), id); err != nil {
				return err
			}
			bar.Increment()
		}
		after, left = ids[len(ids)-1], left-len(ids)
	}
	return nil
}

type feedsVerify struct {
	selection
	Repair bool          `env:"-" help:"Rebuild the timelines that differ."`
	Grace  time.Duration `env:"-" default:"30s" help:"Posts younger than this may still be on their way."`
}

// Run fails when timelines differ and were not repaired.
func (v feedsVerify) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithFeed(ctx, console, func(f *feed.Feed) error {
		var users, differing, checked, missing, extra int
		err := v.each(ctx, f, console.Log, func(name string, user int64) error {
			d, err := f.Verify(ctx, user, v.Grace)
			if err != nil {
				return err
			}
			users, checked, missing, extra = users+1, checked+d.Checked, missing+len(d.Missing), extra+len(d.Extra)
			if len(d.Missing)+len(d.Extra) == 0 {
				return nil
			}
			differing++
			fmt.Fprintf(console.Out, "%s: missing %v, extra %v\n", name, d.Missing, d.Extra)
			if v.Repair {
				return f.Rebuild(ctx, user)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%d timelines, %d entries: %d missing, %d extra in %d timelines\n", users, checked, missing, extra, differing)
		if differing > 0 && !v.Repair {
			return errors.New("timelines differ from SQL; --repair rebuilds them")
		}
		return nil
	})
}

type feedsRebuild struct{ selection }

func (r feedsRebuild) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithFeed(ctx, console, func(f *feed.Feed) error {
		n := 0
		err := r.each(ctx, f, console.Log, func(_ string, user int64) error {
			n++
			return f.Rebuild(ctx, user)
		})
		fmt.Fprintf(console.Out, "%d timelines rebuilt\n", n)
		return err
	})
}
