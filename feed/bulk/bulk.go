// Package bulk takes many rows of one kind at once from another server. They are users,
// follows, blocks, posts or likes that are to be as the rows say.
//
// What holds:
//
//   - A row is named by ids of the server that sends it, and may come any number of times:
//     what is so already stays so.
//   - Each row has a result, in order. A row that is refused does not stop the others.
//   - Rows are written in transactions of many, by few statements each, together with the
//     job that has the feeds agree with them. Nothing is told before it commits.
//   - The sender decides: no approval of followers is asked for.
//   - Rows about suspended users are taken, and hidden like the users. Of users who are on the
//     way to be deleted only blocks are taken.
//
// It takes rows from whoever calls it: package graph asks for an API key with the scope.
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
	"tideline/queue"
	"tideline/timeline"
)

const (
	// MaxRows is how many rows one call may have.
	MaxRows = 2000
	// perTx is how many of them one transaction writes.
	perTx = 1000
)

// Status says what became of a row.
type Status string

// What becomes of a row.
const (
	Created   Status = "CREATED"
	Updated   Status = "UPDATED"
	Unchanged Status = "UNCHANGED"
	Refused   Status = "REFUSED"
	Deleted   Status = "DELETED"
)

// Result is what became of one row.
type Result struct {
	Status Status
	// User and Post are the id of the user, or of the post, that the row is, if it was not
	// refused.
	User, Post int64
	suspend    bool // the user, who was there already, is to be suspended
	// Err says why a row was refused: a refusal.
	Err error
}

// Code is the code of a row that was refused, else nil.
func (r *Result) Code() *string {
	if r.Err == nil {
		return nil
	}
	code := string(refusal.CodeOf(r.Err))
	return &code
}

// Reason is the name of the reason of a row that was refused, else nil.
func (r *Result) Reason() *string {
	var no *refusal.Error
	if !errors.As(r.Err, &no) {
		return nil
	}
	return &no.Reason.Name
}

// Message says in words why a row was refused; nil when it was not.
func (r *Result) Message() *string {
	if r.Err == nil {
		return nil
	}
	message := r.Err.Error()
	return &message
}

// NodeID is the global id of what the row is about, nil where there is none.
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
	Sessions   *account.Sessions
	MaxText    int // characters of a post
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Bulk takes many rows. It is safe for concurrent use.
type Bulk struct{ cfg Config }

// New returns a Bulk. It fails when a required field is missing.
func New(cfg Config) (*Bulk, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Visibility == nil || cfg.Timelines == nil || cfg.Queue == nil || cfg.IDs == nil || cfg.Sessions == nil || cfg.MaxText == 0 {
		return nil, errors.New("bulk: DB, Dialect, Visibility, Timelines, Queue, IDs, Sessions and MaxText are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Bulk{cfg}, nil
}

// attempts is how often a transaction is tried that meets a row which another one writes
// at the same time, or waits with others in a circle.
const attempts = 5

// take has write write the rows in transactions. It tries one again that another has come
// before.
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

// byIndex has all look-ups of the transaction use indexes. For a thousand keys
// PostgreSQL takes the scan of a table of some 100,000 rows for cheaper, which is ten
// times dearer where the index is in memory.
func (b *Bulk) byIndex(ctx context.Context, tx *ent.Tx) error {
	if b.cfg.Dialect != dialect.Postgres {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
	return rows.Wrap("set how statements are planned", err)
}

// refused is the result of a row that is refused.
func refused(err error) *Result { return &Result{Status: Refused, Err: err} }

// checkID refuses what cannot be the id of something at another server.
func checkID(id string) error {
	if id == "" || len(id) > identity.MaxExternalID {
		return refusal.New(refusal.TooLong, "An external id has 1 to %d bytes.", identity.MaxExternalID).In("externalId")
	}
	return nil
}

// knownUser is a user of the issuer, with the state of HiddenUser; "" for one who is not hidden.
type knownUser struct {
	ent.User
	state hiddenuser.State
}

// presentUsersOf is usersOf without hidden users, except those in one of the states. What a
// row says of a suspended user stays hidden as the user does, and is there after the
// suspension.
func (b *Bulk) presentUsersOf(ctx context.Context, tx *ent.Tx, issuer string, externalIDs []string, states ...hiddenuser.State) (map[string]*knownUser, error) {
	found, err := b.usersOf(ctx, tx, issuer, externalIDs)
	maps.DeleteFunc(found, func(_ string, u *knownUser) bool { return u.state != "" && !slices.Contains(states, u.state) })
	return found, err
}

// usersOf returns the users who have the ids at the issuer, by these.
func (b *Bulk) usersOf(ctx context.Context, tx *ent.Tx, issuer string, externalIDs []string) (map[string]*knownUser, error) {
	byID := make(map[string]*knownUser, len(externalIDs))
	err := b.named(ctx, tx, "SELECT t.external_id, t.id, t.handle, t.name, t.bio, t.default_visibility, t.approves_followers, t.password_hash, coalesce(h.state, ''), t.avatar_url, t.links, coalesce(d.data, '"+ent.NoData+"') FROM ", "users", " LEFT JOIN user_data d ON d.user_id = t.id LEFT JOIN hidden_users h ON h.id = t.id",
		issuer, externalIDs, func(row *sql.Rows) error {
			u := &knownUser{User: ent.User{Data: new(string)}}
			err := row.Scan(&u.ExternalID, &u.ID, &u.Handle, &u.Name, &u.Bio, &u.DefaultVisibility, &u.ApprovesFollowers, &u.PasswordHash, &u.state, &u.AvatarURL, &u.Links, u.Data)
			byID[string(u.ExternalID)] = u
			return err
		})
	return byID, rows.Wrap("find users", err)
}

// named calls scan with the rows t of a table that have one of the external ids at the
// issuer. All ids are one parameter, as those of rows.Among. Each is looked up by index:
// for a thousand at once PostgreSQL takes a scan of the table for cheaper, or of all that
// the issuer has, as long as it has not counted them.
func (b *Bulk) named(ctx context.Context, tx *ent.Tx, selectFrom, table, join, issuer string, externalIDs []string, scan func(row *sql.Rows) error) error {
	slices.Sort(externalIDs)
	externalIDs = slices.Compact(externalIDs)
	list := make([]string, len(externalIDs))
	for i, id := range externalIDs {
		list[i] = hex.EncodeToString([]byte(id))
	}
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

// lock locks the users, in the order in which all lock them.
func lock(ctx context.Context, tx *ent.Tx, users []int64) error {
	_, err := tx.User.Query().Where(rows.Among(user.FieldID, users)).Order(user.ByID()).Modify(rows.ForUpdate).Select(user.FieldID).Ints(ctx)
	return rows.Wrap("lock users", err)
}

// table makes a table r of one parameter, $1: a JSON array of objects. A column is a name
// and a type of PostgreSQL.
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

// relate inserts pairs into a table of relations, in their order: lists of followers are
// by it.
func (b *Bulk) relate(ctx context.Context, tx *ent.Tx, table, from, to string, pairs []pair) error {
	now := "$2"
	if b.cfg.Dialect == dialect.Postgres {
		now = "CAST($2 AS timestamptz)"
	}
	err := exec(ctx, tx, fmt.Sprintf("INSERT INTO %s (%s, %s, created_at) SELECT r.a, r.b, %s FROM %s",
		table, from, to, now, b.table("a bigint", "b bigint")), pairs, time.Now().UTC())
	return rows.Wrap("create "+table, err)
}

// unhex is the SQL of the bytes that a column of a table has in hexadecimal digits.
func (b *Bulk) unhex(column string) string {
	if b.cfg.Dialect == dialect.Postgres {
		return "decode(" + column + ", 'hex')"
	}
	return "unhex(" + column + ")"
}

// stale has the inboxes of the users read anew, and the users told: by a job of the
// transaction, and as soon as it has committed.
func (b *Bulk) stale(ctx context.Context, tx *ent.Tx, users []int64) error {
	if len(users) == 0 {
		return nil
	}
	b.onCommit(tx, func(ctx context.Context) error {
		b.cfg.Visibility.Narrowed()
		return b.cfg.Timelines.Forget(ctx, users)
	})
	for chunk := range slices.Chunk(users, perTx) {
		if err := b.cfg.Queue.Enqueue(ctx, tx, queue.Small, job.InboxesStale, job.Users{Users: chunk}); err != nil {
			return err
		}
	}
	return nil
}

// onCommit has feeds dropped once the transaction has committed, so that the next reads
// find what was written. If that fails, the job of the transaction does it.
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

// sorted returns the ids without repetitions, in ascending order.
func sorted(ids []int64) []int64 {
	slices.SortFunc(ids, cmp.Compare[int64])
	return slices.Compact(ids)
}
