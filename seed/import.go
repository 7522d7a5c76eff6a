package seed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"tideline/feed/ids"
	"tideline/feed/password"
	"tideline/internal/progress"
	"tideline/storage"
)

// badShown is how many bad lines are reported individually.
const badShown = 20

// imported counts the results of an import.
type imported struct {
	lines   int // read
	users   int // in the file
	made    int // accounts created for them
	follows int // added
	there   int // follows of the file that existed already
	blocked int // not added because of a block
	bad     int // lines
	first   []badLine
}

// importer imports a follow file into the tables.
//
// Only the tables record the progress: each statement omits rows that exist, so a second run passes
// quickly over the rows of the first. It needs memory for every name in the file, about 100 bytes
// each, and for one chunk of lines.
type importer struct {
	writer
	sql  *sql.DB
	ids  *ids.Generator
	hash string // password hash of the accounts it creates
	now  func() time.Time

	known map[string]int64 // ids of accounts that certainly exist, by handle
	done  imported
}

func runImport(ctx context.Context, s *storage.Stores, o Options, out, bar io.Writer) error {
	hash := "" // no password matches the empty hash
	if o.Password != "" {
		var err error
		if hash, err = password.Hash(o.Password); err != nil {
			return fmt.Errorf("--password: %w", err)
		}
	}
	file, err := os.Open(o.Follows)
	if err != nil {
		return fmt.Errorf("follow file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("follow file: %w", err)
	}
	im := newImporter(s, hash)
	err = im.run(ctx, file, info.Size(), bar)
	im.done.users = len(im.known)
	im.done.print(out, o.Follows)
	switch {
	case ctx.Err() != nil:
		return Interrupted{what: "Interrupted. Run the same command again: it goes on from here, and only its end sets the follower counts."}
	case err != nil:
		return fmt.Errorf("import %s: %w", o.Follows, err)
	case o.Strict && im.done.bad > 0:
		return fmt.Errorf("%s has %d bad lines", o.Follows, im.done.bad)
	}
	return nil
}

func newImporter(s *storage.Stores, hash string) *importer {
	return &importer{
		writer: writer{dialect: s.Dialect, db: s.SQL}, sql: s.SQL,
		ids: ids.New(ids.Config{DB: s.DB}), hash: hash, now: time.Now, known: map[string]int64{},
	}
}

// run imports r, which has size bytes, or 0 if the size is unknown. If reading r fails, it still imports and
// counts the lines before the failure.
func (im *importer) run(ctx context.Context, r io.Reader, size int64, out io.Writer) error {
	return im.ids.Hold(ctx, func(ctx context.Context) error {
		counted := progress.NewReader(r)
		p := progress.Start(out, "Importing", size, "lines")
		step := func() { p.At(counted.Bytes(), im.done.lines) }
		unread, err := im.readAll(ctx, counted, step)
		step()
		p.Stop()
		if err != nil {
			return err
		}
		return errors.Join(unread, im.settle(ctx, out))
	})
}

// readAll adds the follows of the file. unread is the error if the file could not be read to its end. err
// is the error of a failed statement.
func (im *importer) readAll(ctx context.Context, r io.Reader, step func()) (unread, err error) {
	lines, err := newLineReader(r)
	if err != nil {
		return err, nil
	}
	pairs := make([][2]string, 0, chunk)
	for n := 1; ; n++ {
		follower, followee, err := lines.next()
		im.done.lines = lines.number
		bad := (*badLine)(nil)
		switch {
		case err == nil:
			pairs = append(pairs, [2]string{follower, followee})
		case errors.As(err, &bad):
			im.refuse(bad)
		case errors.Is(err, io.EOF):
			err = nil
			if im.done.bad > 0 && len(im.known)+len(pairs) == 0 {
				err = errors.New("no line of it is a follow")
			}
			return err, im.add(ctx, pairs)
		default:
			return fmt.Errorf("after line %d: %w", lines.number, err), im.add(ctx, pairs)
		}
		if n%chunk == 0 {
			if err := im.add(ctx, pairs); err != nil {
				return nil, err
			}
			pairs = pairs[:0]
			step()
		}
	}
}

func (im *importer) refuse(bad *badLine) {
	im.done.bad++
	if len(im.done.first) < badShown {
		im.done.first = append(im.done.first, *bad)
	}
}

// add adds at most chunk follows, and the accounts that they need.
func (im *importer) add(ctx context.Context, pairs [][2]string) error {
	if err := ctx.Err(); err != nil || len(pairs) == 0 {
		return err
	}
	if err := im.addUsers(ctx, pairs); err != nil {
		return err
	}
	now := im.now().UTC().Truncate(time.Millisecond)
	rows := make([][]any, len(pairs))
	for i, pair := range pairs {
		rows[i] = []any{im.known[pair[0]], im.known[pair[1]], now}
	}
	added, err := im.insert(ctx, "follows", []string{"follower_id", "followee_id", "created_at"}, rows,
		"follower_id", "followee_id")
	im.done.follows += added
	if err != nil {
		return err
	}
	im.done.there += len(pairs) - added
	return nil
}

// addUsers creates the missing accounts of all names in pairs, and adds all of them to known.
func (im *importer) addUsers(ctx context.Context, pairs [][2]string) error {
	var unknown []string
	for _, pair := range pairs {
		for _, handle := range pair {
			if _, ok := im.known[handle]; !ok {
				unknown = append(unknown, handle)
			}
		}
	}
	// Sorted, so that two imports do not deadlock.
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	for len(unknown) > 0 {
		found, err := handlesIn(ctx, im.sql, im.dialect, unknown)
		if err != nil {
			return err
		}
		for handle, id := range found {
			im.known[handle] = id
		}
		unknown = slices.DeleteFunc(unknown, func(handle string) bool { _, ok := found[handle]; return ok })
		if unknown, err = im.makeUsers(ctx, unknown); err != nil {
			return err
		}
	}
	return nil
}

// makeUsers creates accounts. It returns the handles that must be looked up again, because another
// process took one of them meanwhile.
func (im *importer) makeUsers(ctx context.Context, handles []string) ([]string, error) {
	now := im.now().UTC().Truncate(time.Millisecond)
	rows := make([][]any, len(handles))
	ids := make([]int64, len(handles))
	for i, handle := range handles {
		var err error
		if ids[i], err = im.ids.Next(); err != nil {
			return nil, err
		}
		rows[i] = []any{ids[i], handle, handle, im.hash, now}
	}
	added, err := im.insert(ctx, "users", []string{"id", "handle", "name", "password_hash", "created_at"}, rows, "handle")
	im.done.made += added
	if err != nil {
		return nil, err
	}
	if added < len(handles) {
		return handles, nil
	}
	for i, handle := range handles {
		im.known[handle] = ids[i]
	}
	return nil, nil
}

// settle makes the other tables consistent with the follows. It deletes follows that a block forbids and
// requests that were granted, then sets the counters. A second call changes nothing.
func (im *importer) settle(ctx context.Context, out io.Writer) error {
	result, err := im.sql.ExecContext(ctx, `DELETE FROM follows WHERE id IN (
		SELECT f.id FROM blocks b JOIN follows f ON f.follower_id = b.blocker_id AND f.followee_id = b.blocked_id
		UNION ALL
		SELECT f.id FROM blocks b JOIN follows f ON f.follower_id = b.blocked_id AND f.followee_id = b.blocker_id)`)
	if err != nil {
		return fmt.Errorf("take out follows that a block forbids: %w", err)
	}
	blocked, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("take out follows that a block forbids: %w", err)
	}
	im.done.blocked = int(blocked)
	im.done.follows -= int(blocked)
	_, err = im.sql.ExecContext(ctx, `DELETE FROM follow_requests WHERE EXISTS (SELECT 1 FROM follows
		WHERE follower_id = requester_id AND followee_id = target_id)`)
	if err != nil {
		return fmt.Errorf("take out granted requests: %w", err)
	}

	if im.dialect == dialect.Postgres {
		// PostgreSQL plans for empty tables until it analyzes them.
		if _, err := im.sql.ExecContext(ctx, "ANALYZE users, follows"); err != nil {
			return fmt.Errorf("analyze: %w", err)
		}
	}
	users := make([]int64, 0, len(im.known))
	for _, id := range im.known {
		users = append(users, id)
	}
	slices.Sort(users)
	p := progress.Start(out, "Counting", int64(len(users)), "users")
	defer p.Stop()
	for i := 0; i < len(users); i += chunk {
		end := min(i+chunk, len(users))
		if err := im.count(ctx, users[i:end]); err != nil {
			return fmt.Errorf("count follows: %w", err)
		}
		p.At(int64(end), end)
	}
	return nil
}

// count sets the follow counters of the users. Their ids must ascend.
func (im *importer) count(ctx context.Context, users []int64) error {
	tx, err := im.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	these := entsql.In("id", values(users)...)
	if im.dialect == dialect.Postgres {
		// Compiling the statement takes longer than running it.
		if _, err := tx.ExecContext(ctx, "SET LOCAL jit = off"); err != nil {
			return err
		}
		// Every transaction that changes a counter's column takes this lock; others append
		// deltas. The lock must be taken before the counting statement begins, so that the
		// statement sees everything committed before.
		query, args := entsql.Dialect(im.dialect).Select("id").From(entsql.Table("users")).Where(these).
			OrderBy("id").For(entsql.LockUpdate, entsql.WithLockClause("FOR NO KEY UPDATE")).Query()
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
	}
	query, args := entsql.Dialect(im.dialect).Update("users").
		Set("follower_count", entsql.Expr("(SELECT count(*) FROM follows WHERE followee_id = users.id) - (SELECT coalesce(sum(followers), 0) FROM user_delta WHERE user_id = users.id)")).
		Set("following_count", entsql.Expr("(SELECT count(*) FROM follows WHERE follower_id = users.id) - (SELECT coalesce(sum(following), 0) FROM user_delta WHERE user_id = users.id)")).
		Where(these).Query()
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return err
	}
	return tx.Commit()
}

func (d imported) print(out io.Writer, file string) {
	for _, bad := range d.first {
		fmt.Fprintln(out, bad.Error())
	}
	if more := d.bad - len(d.first); more > 0 {
		fmt.Fprintf(out, "… and %d more bad lines\n", more)
	}
	fmt.Fprintf(out, "%s: %d lines read, %d not imported because they are bad.\n", file, d.lines, d.bad)
	fmt.Fprintf(out, "Users: %d, of whom %d have been made.\n", d.users, d.made)
	fmt.Fprintf(out, "Follows: %d added, %d were there already or are repeated in the file, %d refused because of a block.\n",
		d.follows, d.there, d.blocked)
}
