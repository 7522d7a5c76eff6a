// Package seed makes a network to try Tideline on: a generated one, or one whose
// follows a file lists. It hides how rows get into the tables in bulk, past the
// rules that package feed applies to one request at a time.
//
// When Run returns nil:
//
//   - Every counter of the users and posts it touched equals a recount.
//   - Requests could have made the rows: nobody follows themselves or, with a block
//     between the two, each other; the author of a like may see the post; a request
//     to follow has no follow beside it.
//   - Running it again makes nothing twice.
//
// The demo network is one transaction. An import is not: it commits as it goes, so
// that it can be interrupted, even killed, at any point and run again. Its last
// step sets the counters, and so does that of a second run.
//
// It enqueues no jobs and publishes no live events. Feeds in Redis are built from
// SQL when they are first read, so they show the seeded posts. The one exception is
// an import that names accounts which are in use already: an inbox of one of them
// gets the older posts of its new followees when it is next rebuilt.
package seed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tideline/storage"
)

// Options says what to seed; the tags make flags of the command line.
type Options struct {
	Users int    `env:"-" default:"200" help:"Demo network: this many people, 10 to 10000."`
	Posts int    `env:"-" default:"2000" help:"Demo network: this many posts, 0 to 100000."`
	Seed  uint64 `env:"-" default:"1" help:"Demo network: the same number makes the same people, follows and texts again."`

	Follows  string `env:"-" placeholder:"FILE" help:"Import a follow graph instead: lines of 'follower followee', plain or gzip, comments with #. The number N becomes the handle uN, other names are handles. Accounts are made as needed and used as they are when they exist. May be interrupted and run again. Timelines in use show older posts of whom they now follow when they are next rebuilt."`
	Password string `env:"-" help:"Import: password of all the accounts it makes. Default: none, nobody can log in as one of them."`
	Strict   bool   `env:"-" help:"Import: fail when there were bad lines. The good ones are imported all the same."`
}

// Validate names every option that is not allowed, with its bounds.
func (o Options) Validate() error {
	var errs []error
	if o.Users < 10 || o.Users > 10_000 {
		errs = append(errs, fmt.Errorf("--users is %d: it must be 10 to 10000", o.Users))
	}
	if o.Posts < 0 || o.Posts > 100_000 {
		errs = append(errs, fmt.Errorf("--posts is %d: it must be 0 to 100000", o.Posts))
	}
	if o.Follows == "" && (o.Password != "" || o.Strict) {
		errs = append(errs, errors.New("--password and --strict belong to an import: give --follows too"))
	}
	return errors.Join(errs...)
}

// Run seeds the migrated database of s. It reports on out, and shows its progress
// on progress: as a bar on a terminal, otherwise as a line now and then. Errors:
// options that are not allowed; a demo network that exists already; a file that
// cannot be read to its end (the lines before that are imported); with
// Options.Strict, bad lines; [Interrupted] when ctx ends.
func Run(ctx context.Context, s *storage.Stores, o Options, out, progress io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Follows != "" {
		return runImport(ctx, s, o, out, progress)
	}
	made, err := makeDemo(ctx, s, o, time.Now())
	if ctx.Err() != nil {
		return Interrupted{what: "Interrupted: nothing was made."}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `Made a demo network of %d people: %d follows, %d requests to follow, %d posts, %d likes, %d blocks, %d mutes.
Log in as %s, or as any of them, with the password %s
More handles: %s
Everybody can know this password: do not do this to a server that strangers can reach.
`, len(made.people), len(made.follows), len(made.requests), len(made.posts), len(made.likes), len(made.blocks), len(made.mutes),
		DemoHandle, DemoPassword, strings.Join(made.celebrities(5), ", "))
	return nil
}

// Interrupted is the error of a run whose context ended early.
type Interrupted struct{ what string }

func (i Interrupted) Error() string { return i.what }

// Unwrap returns context.Canceled.
func (Interrupted) Unwrap() error { return context.Canceled }

// ExitCode returns the code that shells expect of a process that SIGINT stopped.
func (Interrupted) ExitCode() int { return 130 }
