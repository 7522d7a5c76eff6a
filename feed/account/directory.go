package account

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/predicate"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/paging"
	"tideline/feed/refusal"
)

// Bounds of a user's texts about themselves, in characters (Unicode code points).
const (
	MaxHandle = 30
	MaxName   = 50
	MaxBio    = 500
	maxSearch = 100
)

// What users write about themselves, and what others look for them by.
var (
	NameField  = text.Field{What: "The name", Name: "name", Limit: "nameLength", Least: 1, Most: MaxName}
	BioField   = text.Field{What: "The bio", Name: "bio", Limit: "bioLength", Most: MaxBio}
	queryField = text.Field{What: "The query", Name: "query", Limit: "queryLength", Most: maxSearch}
)

var handlePattern = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)

// Handle normalizes a handle: it removes white space around it and an @ before it,
// and turns it into lower case. Error: BadInput.
func Handle(s string) (string, error) {
	handle := handleOf(s)
	const message = "A handle has 1 to %d characters of a-z, 0-9 and _."
	switch n := utf8.RuneCountInString(handle); {
	case n == 0:
		return "", refusal.New(refusal.Empty, message, MaxHandle).In("handle")
	case n > MaxHandle:
		return "", refusal.New(refusal.TooLong, message, MaxHandle).In("handle").Beyond("handleLength", MaxHandle, n)
	case !handlePattern.MatchString(handle):
		return "", refusal.New(refusal.HandleCharacter, message, MaxHandle).In("handle")
	}
	return handle, nil
}

// handleOf is Handle without its check.
func handleOf(s string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "@"))
}

// Directory finds users. It is safe for concurrent use.
type Directory struct {
	db      *ent.Client
	dialect string
	maxPage int
}

// NewDirectory returns the Directory of the database, dialect.Postgres or
// dialect.SQLite. A page of its lists has at
// most maxPage entries; 0 stands for paging.DefaultMaxSize.
func NewDirectory(db *ent.Client, dialectName string, maxPage int) *Directory {
	if maxPage == 0 {
		maxPage = paging.DefaultMaxSize
	}
	return &Directory{db, dialectName, maxPage}
}

// public are the columns that what is shown of a user is made of. A user of the Directory
// has no others.
var public = slices.DeleteFunc(slices.Clone(user.Columns), func(column string) bool {
	return slices.Contains([]string{user.FieldPasswordHash, user.FieldIssuer, user.FieldExternalID, user.FieldSignedOutBefore,
		user.FieldFanOutMode, user.FieldFanOutModeSince, user.FieldLastPostID, user.FieldHidden}, column)
})

// users is a query of users who are not hidden, with their public columns.
func (d *Directory) users() *ent.UserQuery {
	q := d.db.User.Query().Where(user.Hidden(false), rows.WithFollows)
	q.Select(public...)
	return q
}

// Users returns the users of the ids, in their order; nil where there is none, or one
// that is hidden. It costs one query.
func (d *Directory) Users(ctx context.Context, ids []int64) ([]*ent.User, error) {
	list, err := d.users().Where(rows.Among(user.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return rows.InOrder(ids, list, func(u *ent.User) int64 { return u.ID }), nil
}

// Data returns the own fields of the app in the users of the ids, in their order. It costs one query.
func (d *Directory) Data(ctx context.Context, ids []int64) ([]*string, error) {
	return rows.UserData(ctx, d.db.UserData, ids)
}

// User returns the user of the handle. Error: NotFound, also for a text that cannot be a
// handle.
//
// Cost: one look-up by index.
func (d *Directory) User(ctx context.Context, handle string) (*ent.User, error) {
	handle, err := Handle(handle)
	if err != nil {
		return nil, refusal.ErrNoSuchUser
	}
	u, err := d.users().Where(user.Handle(handle)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	return u, rows.Wrap("find user", err)
}

// Named returns the user an operator names: by the handle, by the id in the API, or by the
// number in the log. An @ in front makes the name a handle. Errors: NotFound; BadInput for a
// name that is the id or number of one user and the handle of another, hidden or not: anybody
// may take such a handle.
//
// Cost: two look-ups by index.
func (d *Directory) Named(ctx context.Context, name string) (*ent.User, error) {
	return named(ctx, d.db, d.users, name)
}

// named looks among all users for the one who is named, and among users for the row.
func named(ctx context.Context, db *ent.Client, users func() *ent.UserQuery, name string) (*ent.User, error) {
	kind, id, ok := ent.ParseNodeID(name)
	if !ok || kind != "User" {
		id, _ = strconv.ParseInt(name, 10, 64)
	}
	handle, _ := Handle(name) // nobody has an empty one
	found, err := db.User.Query().Where(user.Or(user.ID(id), user.Handle(handle))).Select(user.FieldID, user.FieldHandle).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find user: %w", err)
	}
	if len(found) == 0 {
		return nil, refusal.ErrNoSuchUser
	}
	if len(found) == 2 {
		numbered, other := found[0], found[1]
		if numbered.ID != id {
			numbered, other = other, numbered
		}
		return nil, refusal.New(refusal.AmbiguousUser, "%s is the number or id of @%s, and the handle of another user: write @%s or @%s.",
			name, numbered.Handle, numbered.Handle, other.Handle)
	}
	u, err := users().Where(user.ID(found[0].ID)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	return u, rows.Wrap("find user", err)
}

// Search is a page of users whose handle begins with the query or whose name
// contains it, whatever the case; an empty query matches all users. The newest come
// first. Error: BadInput.
//
// Cost: one query, from the newest users on until the page is full. On PostgreSQL it ends
// after 1,000 users; then come two index ranges, and up to 10,000 users whom these find.
// Where they find more, and on SQLite, which has no such indexes, it does go on: through all
// users, when the query matches few.
func (d *Directory) Search(ctx context.Context, query string, p paging.Page) (*paging.Connection[ent.User], error) {
	query, err := queryField.CleanLine(query)
	if err != nil {
		return nil, err
	}
	w, err := paging.Open(p, paging.Users, 0, d.maxPage)
	if err != nil {
		return nil, err
	}
	list, err := d.search(ctx, query, w.Range().Upper(), w.Range().Limit)
	if err != nil {
		return nil, fmt.Errorf("search users: %w", err)
	}
	return paging.Connect(w, list, func(u *ent.User) paging.Edge[ent.User] {
		return paging.Edge[ent.User]{Cursor: paging.Cursor{ID: u.ID}.Encode(paging.Users, 0), Node: u}
	}), nil
}

// search returns the newest users below the id whom the query finds, up to the limit.
func (d *Directory) search(ctx context.Context, query string, below int64, limit int) ([]*ent.User, error) {
	q := d.users().Where(user.IDLT(below)).Order(ent.Desc(user.FieldID)).Limit(limit)
	handle := handleOf(query)
	if handle == "" {
		return q.All(ctx)
	}
	q.Where(user.Or(user.HandleHasPrefix(handle), user.NameContainsFold(query)))
	if d.dialect == dialect.SQLite {
		return q.All(ctx)
	}
	list, err := q.Clone().Where(amongNewest(below)).All(ctx)
	if err != nil || len(list) == limit {
		return list, err
	}
	ids, err := rows.IDs(ctx, d.db, candidates, handle, query)
	if err != nil {
		return nil, err
	}
	if len(ids) <= maxCandidates {
		q.Where(rows.Among(user.FieldID, ids))
	}
	return q.All(ctx)
}

// amongNewest are the newest 1,000 users below the id. A query that many users match fills
// its page there sooner than by an index, which reads all of them.
func amongNewest(below int64) predicate.User {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.Ident(s.C(user.FieldID)).WriteString(" > COALESCE((SELECT id FROM users WHERE id < ").Arg(below).
				WriteString(" ORDER BY id DESC LIMIT 1 OFFSET 1000), 0)")
		}))
	}
}

// maxCandidates is how many users the indexes may find for a search to read no others.
const maxCandidates = 10_000

// candidates are users whose handle begins with $1, or whose name has the characters and
// pairs of characters of $2.
var candidates = fmt.Sprintf(`(SELECT id FROM users WHERE handle::text ~>=~ $1 AND handle::text ~<~ ($1 || '~') LIMIT %[1]d)
  UNION (SELECT id FROM users WHERE parts_of_text(name, 1) COLLATE "C" @> parts_of_text($2, least(2, length($2))) LIMIT %[1]d)`, maxCandidates+1)

// UserIDsAfter returns up to n ids of users above the given one, ascending. A
// caller can go through all users with it in steps.
//
// Cost: an index range of n.
func (d *Directory) UserIDsAfter(ctx context.Context, after int64, n int) ([]int64, error) {
	ids, err := d.db.User.Query().Where(user.IDGT(after)).Order(ent.Asc(user.FieldID)).Limit(n).IDs(ctx)
	return ids, rows.Wrap("list users", err)
}

// Count returns the number of users.
//
// Cost: a count of all users, so it is for operators and not for requests.
func (d *Directory) Count(ctx context.Context) (int, error) {
	n, err := d.db.User.Query().Count(ctx)
	return n, rows.Wrap("count users", err)
}
