// Package seed fills a database to try Tideline with: it generates a demo network, or imports a
// follow graph from a file. It writes rows in bulk, and bypasses package feed, which enforces
// its rules on single requests.
//
// # Guarantees
//
// When Run returns nil:
//
//   - Every counter of the users and posts it touched equals a recount.
//   - The rows are possible results of requests: nobody follows themselves, or a user with whom there is a
//     block; the author of a like may see the post; no follow request exists beside a follow.
//   - Running it again creates nothing twice.
//
// The demo network is one transaction. An import commits as it proceeds, so it can be interrupted or killed
// at any point and run again. The last step of each run sets the counters.
//
// Seeding enqueues no jobs and publishes no live events. Feeds in Redis are built from SQL when they are
// first read, so they show the seeded posts. There is one exception: if an import names an account that is
// already in use, its inbox gets the older posts of new followees only when it is next rebuilt.
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

// Options says what to seed. Its tags define flags of the command line.
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

// Run seeds the migrated database of s. It writes its report to out and its progress to progress: as a bar on
// a terminal, otherwise as an occasional line. Errors: options that are not allowed; a demo network that
// exists already; a file that cannot be read to its end (the lines before that are imported); bad lines, if
// Options.Strict is set; [Interrupted] if ctx ends.
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
