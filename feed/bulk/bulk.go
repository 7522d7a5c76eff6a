// Package bulk accepts many rows of one kind from another server in one call: users, follows,
// blocks, posts or likes.
//
// Invariants:
//
//   - A row is named by ids of the server that sends it. It may arrive any number of times:
//     a repetition changes nothing.
//   - Each row has a result, in order. A refused row does not stop the others.
//   - Rows are written in transactions of many rows, by few statements each, together with
//     the job that brings the feeds in line. Nobody is notified before the commit.
//   - The sender decides: followers need no approval.
//   - Rows about suspended users are accepted, and hidden like the users. About users who
//     are being deleted, or will be, only blocks are accepted.
//
// The package does not check permissions: package graph asks for an API key with the scope.
package bulk

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/sqlgraph"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/queue"
	"tideline/timeline"
)

const (
	// MaxRows is the largest number of rows of one call.
	MaxRows = 2000
	// perTx is the largest number of rows that one transaction writes.
	perTx = 1000
)

// Status is the outcome of a row.
type Status string

// The outcomes.
const (
	Created   Status = "CREATED"
	Updated   Status = "UPDATED"
	Unchanged Status = "UNCHANGED"
	Refused   Status = "REFUSED"
	Deleted   Status = "DELETED"
)

// Result is the result of one row.
type Result struct {
	Status Status
	// User and Post are the id of the user, or of the post, that the row describes, unless it was
	// refused.
	User, Post int64
	suspend    bool // the user exists, is not hidden, and must be suspended after the transaction
	// Err is the refusal of a refused row.
	Err error
}

// Code returns the code of the refusal, or nil if the row was not refused.
func (r *Result) Code() *string {
	if r.Err == nil {
		return nil
	}
	return new(string(refusal.CodeOf(r.Err)))
}

// Reason returns the name of the refusal's reason, or nil if the row was not refused.
func (r *Result) Reason() *string {
	var no *refusal.Error
	if !errors.As(r.Err, &no) {
		return nil
	}
	return &no.Reason.Name
}

// Message returns the message of the refusal, or nil if the row was not refused.
func (r *Result) Message() *string {
	if r.Err == nil {
		return nil
	}
	return new(r.Err.Error())
}

// NodeID returns the global id of the user or post of the row, or nil if there is none.
func (r *Result) NodeID() *string {
	var id string
	switch {
	case r.User != 0:
		id = ent.NodeID("User", r.User)
	case r.Post != 0:
		id = ent.NodeID("Post", r.Post)
	default:
		return nil
	}
	return &id
}

// Config configures Bulk. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Dialect    string // dialect.SQLite or dialect.Postgres
	Visibility *visibility.Reader
	Timelines  *timeline.Store
	Queue      *queue.Queue
	IDs        *ids.Generator
	Accounts   *account.Accounts
	MaxText    int // characters of a post
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Bulk writes many rows in one call. It is safe for concurrent use.
type Bulk struct{ cfg Config }

// New returns a Bulk. It fails when a required field is missing.
func New(cfg Config) (*Bulk, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Visibility == nil || cfg.Timelines == nil || cfg.Queue == nil || cfg.IDs == nil || cfg.Accounts == nil || cfg.MaxText == 0 {
		return nil, errors.New("bulk: DB, Dialect, Visibility, Timelines, Queue, IDs, Accounts and MaxText are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Bulk{cfg}, nil
}

// attempts is how often a transaction is tried if another transaction writes one of its rows at the
// same time, or if it ends in a deadlock.
const attempts = 5

// take calls write for the rows, in transactions of at most perTx rows. It repeats a transaction that
// fails because of a concurrent one.
func take[T any](ctx context.Context, b *Bulk, list []T, write func(ctx context.Context, tx *ent.Tx, list []T, results []*Result) error) ([]*Result, error) {
	if len(list) > MaxRows {
		return nil, refusal.New(refusal.TooMany, "At most %d rows at a time, not %d.", MaxRows, len(list)).Beyond("rows", MaxRows, len(list))
	}
	results := make([]*Result, len(list))
	for from := 0; from < len(list); from += perTx {
		to := min(from+perTx, len(list))
		var err error
		for range attempts {
			err = rows.InTx(ctx, b.cfg.DB, func(tx *ent.Tx) error {
				clear(results[from:to])
				if err := b.byIndex(ctx, tx); err != nil {
					return err
				}
				return write(ctx, tx, list[from:to], results[from:to])
			})
			if !ent.IsConstraintError(err) && !sqlgraph.IsConstraintError(err) && !rows.Undone(err) {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("take rows %d to %d: %w", from, to, err)
		}
	}
	return results, nil
}

// byIndex makes all look-ups of the transaction use indexes. For a thousand keys PostgreSQL prefers
// to scan a table of some 100,000 rows, which is ten times as expensive if the index is in memory.
func (b *Bulk) byIndex(ctx context.Context, tx *ent.Tx) error {
	if b.cfg.Dialect != dialect.Postgres {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
	return errs.Wrap(err, "set how statements are planned")
}

// refused returns the result of a refused row.
func refused(err error) *Result { return &Result{Status: Refused, Err: err} }

// checkID refuses a text that cannot be an id at another server.
func checkID(id string) error {
	if id == "" || len(id) > identity.MaxExternalID {
		return refusal.New(refusal.TooLong, "An external id has 1 to %d bytes.", identity.MaxExternalID).In("externalId")
	}
	return nil
}

// knownUser is a user of the issuer, with the state of HiddenUser, or "" if the user is not hidden.
type knownUser struct {
	ent.User
	state hiddenuser.State
}

// acceptedUsersOf returns the users that rows may name: visible users, and hidden users in one of the
// given states. Rows about a suspended user are accepted because they stay hidden like the user, and
// appear after the suspension.
func (b *Bulk) acceptedUsersOf(ctx context.Context, tx *ent.Tx, issuer string, externalIDs []string, hiddenStates ...hiddenuser.State) (map[string]*knownUser, error) {
	found, err := b.usersOf(ctx, tx, issuer, externalIDs)
	maps.DeleteFunc(found, func(_ string, u *knownUser) bool { return u.state != "" && !slices.Contains(hiddenStates, u.state) })
	return found, err
}

// usersOf returns the users with the external ids at the issuer, by external id.
func (b *Bulk) usersOf(ctx context.Context, tx *ent.Tx, issuer string, externalIDs []string) (map[string]*knownUser, error) {
	byID := make(map[string]*knownUser, len(externalIDs))
	err := b.named(ctx, tx, "SELECT t.external_id, t.id, t.handle, t.name, t.bio, t.default_visibility, t.approves_followers, t.password_hash, coalesce(h.state, ''), t.avatar_url, t.links, t.home_replies, coalesce(d.data, '"+ent.NoData+"') FROM ", "users", " LEFT JOIN user_data d ON d.user_id = t.id LEFT JOIN hidden_users h ON h.id = t.id",
		issuer, externalIDs, func(row *sql.Rows) error {
			u := &knownUser{User: ent.User{Data: new(string)}}
			err := row.Scan(&u.ExternalID, &u.ID, &u.Handle, &u.Name, &u.Bio, &u.DefaultVisibility, &u.ApprovesFollowers, &u.PasswordHash, &u.state, &u.AvatarURL, &u.Links, &u.HomeReplies, u.Data)
			byID[string(u.ExternalID)] = u
			return err
		})
	return byID, errs.Wrap(err, "find users")
}

// named calls scan for each row t of the table that has one of the external ids at the issuer. All
// ids are one parameter, as in rows.Among. Each is looked up by index: for a thousand ids
// PostgreSQL may prefer to scan the table, or all rows of the issuer, until it has statistics.
func (b *Bulk) named(ctx context.Context, tx *ent.Tx, selectFrom, table, join, issuer string, externalIDs []string, scan func(row *sql.Rows) error) error {
	slices.Sort(externalIDs)
	externalIDs = slices.Compact(externalIDs)
	list := rows.Map(externalIDs, func(id string) string { return hex.EncodeToString([]byte(id)) })
	from := "json_each($1) r CROSS JOIN " + table + " t ON t.issuer = $2 AND t.external_id = unhex(r.value)"
	if b.cfg.Dialect == dialect.Postgres {
		from = "unnest(CAST($1 AS text[])) AS r(value) CROSS JOIN LATERAL (SELECT * FROM " + table + " WHERE issuer = $2 AND external_id = decode(r.value, 'hex') LIMIT 1) t"
	}
	var ids any = list
	if b.cfg.Dialect != dialect.Postgres {
		ids = rows.JSON(list)
	}
	found, err := tx.QueryContext(ctx, selectFrom+from+join, ids, issuer)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found); err != nil {
			return err
		}
	}
	return found.Err()
}

// lock locks the users in the order of ids, as every transaction does, so that two transactions cannot
// deadlock.
func lock(ctx context.Context, tx *ent.Tx, users []int64) error {
	_, err := tx.User.Query().Where(rows.Among(user.FieldID, users)).Order(user.ByID()).Modify(rows.ForUpdate).Select(user.FieldID).Ints(ctx)
	return errs.Wrap(err, "lock users")
}

// table returns a table r that is made of one parameter, $1, a JSON array of objects. A column is a
// name and a PostgreSQL type.
func (b *Bulk) table(columns ...string) string {
	if b.cfg.Dialect == dialect.Postgres {
		return "json_to_recordset(CAST($1 AS json)) AS r(" + strings.Join(columns, ", ") + ")"
	}
	values := make([]string, len(columns))
	for i, column := range columns {
		name, _, _ := strings.Cut(column, " ")
		values[i] = fmt.Sprintf("json_extract(value, '$.%[1]s') AS %[1]s", name)
	}
	return "(SELECT " + strings.Join(values, ", ") + " FROM json_each($1)) AS r"
}

// exec executes a statement whose first parameter is a table.
func exec(ctx context.Context, tx *ent.Tx, statement string, list any, others ...any) error {
	data, err := json.Marshal(list)
	if err == nil {
		_, err = tx.ExecContext(ctx, statement, append([]any{string(data)}, others...)...)
	}
	return err
}

// relate inserts pairs into a table of relations, in the given order. Lists of followers show it.
func (b *Bulk) relate(ctx context.Context, tx *ent.Tx, table, from, to string, pairs []pair) error {
	now := "$2"
	if b.cfg.Dialect == dialect.Postgres {
		now = "CAST($2 AS timestamptz)"
	}
	err := exec(ctx, tx, fmt.Sprintf("INSERT INTO %s (%s, %s, created_at) SELECT r.a, r.b, %s FROM %s",
		table, from, to, now, b.table("a bigint", "b bigint")), pairs, time.Now().UTC())
	return errs.Wrap(err, "create "+table)
}

// unhex returns the SQL expression that decodes a column of hexadecimal digits into bytes.
func (b *Bulk) unhex(column string) string {
	if b.cfg.Dialect == dialect.Postgres {
		return "decode(" + column + ", 'hex')"
	}
	return "unhex(" + column + ")"
}

// stale invalidates the inboxes of the users and notifies the users. It does so right after the
// commit, and a job of the transaction does it again.
func (b *Bulk) stale(ctx context.Context, tx *ent.Tx, users []int64) error {
	if len(users) == 0 {
		return nil
	}
	b.onCommit(tx, func(ctx context.Context) error {
		b.cfg.Visibility.VisibilityReduced()
		return b.cfg.Timelines.Inboxes.Forget(ctx, users)
	})
	for chunk := range slices.Chunk(users, perTx) {
		if err := b.cfg.Queue.Enqueue(ctx, tx, queue.Small, job.InboxesStale, job.Users{Users: chunk}); err != nil {
			return err
		}
	}
	return nil
}

// onCommit calls drop once the transaction has committed, so that the next reads find what was
// written. If drop fails, the job of the transaction makes up for it.
func (b *Bulk) onCommit(tx *ent.Tx, drop func(ctx context.Context) error) {
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			if err := drop(ctx); err != nil {
				b.cfg.Logger.WarnContext(ctx, "feeds not dropped; a job will", "error", err)
			}
			return nil
		})
	})
}

// sorted returns the ids in ascending order, without duplicates.
func sorted(ids []int64) []int64 {
	slices.SortFunc(ids, cmp.Compare[int64])
	return slices.Compact(ids)
}
