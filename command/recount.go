package command

import (
	"context"
	"errors"
	"fmt"

	"tideline/feed/audit"
	"tideline/server"
	"tideline/server/backend"
)

// Recount compares the counters of users and posts with the rows that they count, and the
// tags of posts with their texts.
type Recount struct {
	Repair bool `env:"-" help:"Correct wrong counters and tags."`
}

// recountPage is the number of rows that one statement compares.
const recountPage = 500

// Run fails if counters are wrong and were not repaired.
func (r Recount) Run(ctx context.Context, c server.Config, console server.Console) error {
	return unlessInterrupted(ctx, with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		checked, wrong, mistagged, err := r.all(ctx, audit.NewRecounter(b.Stores.DB), console)
		if err == nil || checked > 0 {
			does := "is wrong"
			if wrong != 1 {
				does = "are wrong"
			}
			if r.Repair {
				does += " and set right"
			}
			fmt.Fprintf(console.Out, "%s, %s %s\n", count(checked, "row", "rows"), count(wrong, "counter", "counters"), does)
			if mistagged > 0 {
				fmt.Fprintf(console.Out, "%s had wrong tags\n", count(mistagged, "post", "posts"))
			}
		}
		if err == nil && wrong+mistagged > 0 && !r.Repair {
			return errors.New("counters differ from what they count, or tags from texts; --repair sets them")
		}
		return err
	}))
}

// all checks all users and posts.
func (r Recount) all(ctx context.Context, recounter *audit.Recounter, console server.Console) (checked, wrong, mistagged int, err error) {
	total, err := recounter.Count(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	p := startBar(console, "Counters", total, "rows")
	defer p.stop()
	for _, of := range []struct {
		what string
		page func(ctx context.Context, after int64, n int, repair bool) (audit.Recounted, error)
	}{{"user", recounter.Users}, {"post", recounter.Posts}} {
		for after := int64(0); ; {
			page, err := of.page(ctx, after, recountPage, r.Repair)
			for _, w := range page.Wrong {
				p.say("%s %d: %s is %d, should be %d", of.what, w.ID, w.Column, w.Stored, w.Correct)
			}
			checked, wrong, mistagged = checked+page.Rows, wrong+len(page.Wrong), mistagged+page.Mistagged
			if err != nil {
				return checked, wrong, mistagged, err
			}
			if page.Rows == 0 {
				break
			}
			p.step(page.Rows)
			after = page.Last
		}
	}
	return checked, wrong, mistagged, nil
}
