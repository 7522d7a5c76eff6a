package command

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"entgo.io/ent/dialect"

	"tideline/feed/transfer"
	"tideline/internal/progress"
	"tideline/server"
	"tideline/server/backend"
	"tideline/storage"
)

const (
	badShown  = 20 // bad lines that are printed without --bad
	saveEvery = time.Second
	// someBad is the exit code of an import with refused lines. interrupted is the exit code that shells
	// expect of a process that SIGINT has stopped.
	someBad, interrupted = 3, 130
)

// exit is an error with its own exit code.
type exit struct {
	code int
	says string
}

func (e exit) Error() string { return e.says }

// ExitCode returns the exit code of the process.
func (e exit) ExitCode() int { return e.code }

// Import imports users, follows, blocks, posts and likes from a file.
type Import struct {
	File   string `arg:"" help:"Lines of JSON, plain or gzip; - is standard input. docs/import.md describes them."`
	Issuer string `env:"-" help:"Whose ids of users the file has: the issuer of your tokens, or as that of your API key."`
	Bad    string `env:"-" placeholder:"FILE" help:"Write the lines that are refused there, each with its number and the reason. Default: the first 20, to standard error."`
}

// Run imports the file. It continues where an import of the same file was interrupted.
func (i Import) Run(ctx context.Context, c server.Config, console server.Console) error {
	in, size, err := i.open()
	if err != nil {
		return err
	}
	defer in.Close()
	from, err := i.saved()
	if err != nil {
		return err
	}
	bad, err := i.badLines(console, from.Lines > 0)
	if err != nil {
		return err
	}
	var state transfer.State
	err = with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		return b.IDs.Hold(ctx, func(ctx context.Context) (err error) {
			state, err = i.run(ctx, b, in, size, from, bad, console)
			return err
		})
	})
	if err != nil {
		if state.Offset > 0 {
			err = errors.Join(err, i.save(state))
		}
	} else if i.File != "-" {
		err = os.RemoveAll(i.stateFile())
	}
	err = errors.Join(err, bad.close())
	if err == nil || state.Lines > 0 {
		fmt.Fprintf(console.Out, "%d lines: %d made, %d changed, %d as they were, %d bad and not imported.\n", state.Lines, state.Created, state.Updated, state.Unchanged, state.Bad)
	}
	switch {
	case ctx.Err() != nil:
		return exit{interrupted, "Interrupted. Run the same command again: " + i.goesOn()}
	case errors.Is(err, transfer.ErrOtherFile):
		return fmt.Errorf("%w: remove %s to import it from the beginning", err, i.stateFile())
	case err != nil && state.Offset == 0 && from.Offset == 0:
		return fmt.Errorf("import %s: %w; nothing was imported", i.File, err)
	case err != nil:
		return fmt.Errorf("import %s: %w; the same command again: %s", i.File, err, i.goesOn())
	case state.Bad > 0:
		return exit{someBad, fmt.Sprintf("%d lines are bad and were not imported", state.Bad)}
	}
	return nil
}

// run imports the lines of in, which begin at from.
func (i Import) run(ctx context.Context, b *backend.Backend, in io.Reader, size int64, from transfer.State, bad *badLines, console server.Console) (transfer.State, error) {
	counted := progress.NewReader(in)
	shown := progress.Start(console.Log, "Importing", size, "lines")
	defer shown.Stop()
	bad.clear = shown.Clear
	last, next := time.Now(), 10_000
	im := &transfer.Import{Bulk: b.Bulk, Issuer: i.Issuer, Bad: bad.tell, Written: func(ctx context.Context, s transfer.State) error {
		shown.At(counted.Bytes(), s.Lines-from.Lines)
		if s.Created >= next { // until then PostgreSQL plans for small tables
			next = 4 * s.Created
			if err := analyze(ctx, b.Stores); err != nil {
				return err
			}
		}
		if time.Since(last) < saveEvery {
			return nil
		}
		last = time.Now()
		return i.save(s)
	}}
	return im.Run(ctx, counted, from)
}

// analyze updates the statistics of PostgreSQL for the tables that an import fills.
func analyze(ctx context.Context, s *storage.Stores) error {
	if s.Dialect != dialect.Postgres {
		return nil
	}
	_, err := s.SQL.ExecContext(ctx, "ANALYZE users, posts, external_posts, follows, follow_requests, blocks, likes")
	return err
}

// goesOn says what the next run does.
func (i Import) goesOn() string {
	if i.File == "-" {
		return "what is there already stays so."
	}
	return "it goes on from here, as " + i.stateFile() + " says."
}

func (i Import) open() (in io.ReadCloser, size int64, err error) {
	if i.File == "-" {
		return io.NopCloser(os.Stdin), 0, nil
	}
	file, err := os.Open(i.File)
	if err != nil {
		return nil, 0, err
	}
	if info, err := file.Stat(); err == nil {
		size = info.Size()
	}
	return file, size, nil
}

func (i Import) stateFile() string { return i.File + ".progress" }

// saved returns the progress of an interrupted import of the file.
func (i Import) saved() (s transfer.State, err error) {
	if i.File == "-" {
		return s, nil
	}
	data, err := os.ReadFile(i.stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s, remove it to begin anew: %w", i.stateFile(), err)
	}
	return s, nil
}

// save records the progress. If the process dies while writing, the previous record stays.
func (i Import) save(s transfer.State) error {
	if i.File == "-" {
		return nil
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(i.stateFile()+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(i.stateFile()+".new", i.stateFile())
	}
	return err
}

// badLines reports refused lines.
type badLines struct {
	file  *os.File // nil if they are printed to the log
	to    *bufio.Writer
	left  int // how many more are printed to the log
	clear func()
}

func (i Import) badLines(console server.Console, goesOn bool) (*badLines, error) {
	if i.Bad == "" {
		return &badLines{to: bufio.NewWriterSize(console.Log, 0), left: badShown}, nil
	}
	how := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if goesOn {
		how = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	file, err := os.OpenFile(i.Bad, how, 0o600)
	if err != nil {
		return nil, err
	}
	return &badLines{file: file, to: bufio.NewWriter(file)}, nil
}

func (b *badLines) tell(line int, reason string) {
	if b.file != nil {
		fmt.Fprintf(b.to, "line %d: %s\n", line, reason)
		return
	}
	if b.left--; b.left < 0 {
		return
	}
	b.clear()
	fmt.Fprintf(b.to, "line %d: %s\n", line, reason)
	if b.left == 0 {
		fmt.Fprintln(b.to, "More bad lines are counted only; --bad FILE has them all.")
	}
	_ = b.to.Flush()
}

func (b *badLines) close() error {
	err := b.to.Flush()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
	}
	return err
}

// Export writes the file that Import takes.
type Export struct {
	File           string `arg:"" optional:"" default:"-" help:"Where to; - is standard output."`
	Issuer         string `env:"-" help:"Whose users: those of this issuer, and those with accounts made here."`
	Gzip           bool   `env:"-" help:"Compress it."`
	PasswordHashes bool   `env:"-" help:"With the hashes of passwords. Keep the file as you keep the database."`
}

// Run exports. The file appears only when it is complete.
func (e Export) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQLAnySchema, func(b *backend.Backend) error {
		out, name := console.Out, ""
		if e.File != "-" {
			name = e.File + ".new"
			file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
			if err != nil {
				return err
			}
			defer file.Close()
			out = file
		}
		done, err := e.write(ctx, b.Stores, out, console)
		if err != nil {
			if name != "" {
				_ = os.Remove(name)
			}
			if ctx.Err() != nil {
				return exit{interrupted, "Interrupted: nothing is exported."}
			}
			return err
		}
		if name != "" {
			if err := os.Rename(name, e.File); err != nil {
				return err
			}
		}
		fmt.Fprintf(console.Log, "%d users, %d posts, %d follows, %d blocks, %d likes.\n", done.Users, done.Posts, done.Follows, done.Blocks, done.Likes)
		if done.Left > 0 {
			fmt.Fprintf(console.Log, "%d rows are not in it: they are of users of other issuers, or about them.\n", done.Left)
		}
		if done.Leaving > 0 {
			fmt.Fprintf(console.Log, "%d rows are not in it: they are of users who are leaving or being deleted, or about them.\n", done.Leaving)
		}
		if done.Alone > 0 {
			fmt.Fprintf(console.Log, "%d posts are not in it: they are replies and reposts whose conversation or original is not in it.\n", done.Alone)
		}
		return nil
	})
}

func (e Export) write(ctx context.Context, stores *storage.Stores, out io.Writer, console server.Console) (done transfer.Exported, err error) {
	if e.Gzip {
		zipped := gzip.NewWriter(out)
		defer func() { err = errors.Join(err, zipped.Close()) }()
		out = zipped
	}
	shown := progress.Start(console.Log, "Exporting", 0, "lines")
	defer shown.Stop()
	export := &transfer.Export{DB: stores.DB, Dialect: stores.Dialect, Issuer: e.Issuer, PasswordHashes: e.PasswordHashes,
		Step: func(d transfer.Exported) { shown.At(int64(d.Lines()), d.Lines()) }}
	return export.Run(ctx, out)
}
