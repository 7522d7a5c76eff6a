package account

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tideline/ent"
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

// Handle normalizes a handle: it folds it, and removes an @ before it. Error: BadInput.
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
func handleOf(s string) string { return strings.TrimPrefix(text.Fold(s), "@") }

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
		user.FieldFanOutMode, user.FieldFanOutModeSince, user.FieldLastPostID, user.FieldHidden, user.FieldIndexedAs}, column)
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

// Search is a page of users, the newest first, in whose handle or name each word of the query
// begins a word, whatever the case and the form of its letters. Where a script does not set
// words apart, a word may begin at any letter. An empty query matches all users. Where a query
// finds more than 5,000 users, a page looks at the newest 2,000 users behind the cursor: it may
// be shorter than asked for, even empty, while there is more behind its end. Error: BadInput.
//
// Cost: up to two index ranges of 5,000 words, a look-up by index of each user found for each
// other word, and the users of the page.
func (d *Directory) Search(ctx context.Context, query string, p paging.Page) (*paging.Connection[ent.User], error) {
	query, err := queryField.FoldPhrase(query)
	if err != nil {
		return nil, err
	}
	w, err := paging.Open(p, paging.Users, 0, d.maxPage)
	if err != nil {
		return nil, err
	}
	list, stopped, err := d.search(ctx, wordsOfQuery(query), w.Range().Upper(), w.Range().Limit)
	if err != nil {
		return nil, fmt.Errorf("search users: %w", err)
	}
	page := paging.Connect(w, list, func(u *ent.User) paging.Edge[ent.User] {
		return paging.Edge[ent.User]{Cursor: paging.Cursor{ID: u.ID}.Encode(paging.Users, 0), Node: u}
	})
	if !page.HasNextPage && stopped != 0 {
		page.HasNextPage, page.End = true, paging.Cursor{ID: stopped}.Encode(paging.Users, 0)
	}
	return page, nil
}

const (
	// maxCandidates is how many words one index range of a search reads.
	maxCandidates = 5000
	// searchWindow is how many users a search looks at where its words begin too many.
	searchWindow = 2000
)

// wordsOfQuery returns the words of a folded query, each once, the longest first, because it
// begins the fewest words.
func wordsOfQuery(query string) []string {
	var words []string
	for word := range strings.FieldsSeq(query) {
		if word = strings.TrimPrefix(word, "@"); word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return words
}

// search returns the newest users below the id who have all of the words, up to the limit. If it
// did not look at all users, stopped is the id at which it ended.
func (d *Directory) search(ctx context.Context, words []string, below int64, limit int) (list []*ent.User, stopped int64, err error) {
	q := d.users().Where(user.IDLT(below)).Order(ent.Desc(user.FieldID)).Limit(limit)
	if len(words) == 0 {
		list, err = q.All(ctx)
		return list, 0, err
	}
	ids, found, err := d.candidates(ctx, words)
	if err != nil {
		return nil, 0, err
	}
	if found == "" {
		ids, err = d.db.User.Query().Where(user.IDLT(below)).Order(ent.Desc(user.FieldID)).Limit(searchWindow).IDs(ctx)
		if err != nil {
			return nil, 0, err
		}
		if len(ids) == searchWindow {
			stopped = ids[searchWindow-1]
		}
	}
	for _, word := range words {
		if word != found && len(ids) > 0 {
			ids, err = rows.IDs(ctx, d.db, usersWith(d.dialect, word), rows.List(d.dialect, ids), []byte(word))
			if err != nil {
				return nil, 0, err
			}
		}
	}
	if len(ids) > 0 {
		list, err = q.Where(rows.Among(user.FieldID, ids)).All(ctx)
	}
	return list, stopped, err
}

// candidates returns the users in whose handle or name one of the first words begins a word, and
// which word it is; none if each of them begins more than maxCandidates words.
func (d *Directory) candidates(ctx context.Context, words []string) (ids []int64, found string, err error) {
	for _, word := range words[:min(len(words), 2)] {
		ids, err := rows.IDs(ctx, d.db, wordRange, []byte(word), after(word))
		if err != nil || len(ids) <= maxCandidates {
			slices.Sort(ids)
			return slices.Compact(ids), word, err
		}
	}
	return nil, "", nil
}

// wordRange has the users of the words from $1 on and below $2. It is in the order of the index, so that
// a database does not read the table until it has found so many.
var wordRange = fmt.Sprintf("SELECT user_id AS id FROM user_words WHERE word >= $1 AND word < $2 ORDER BY word, user_id LIMIT %d", maxCandidates+1)

// usersWith has those of the users of the list $1 who have the word $2. It asks by substr, so
// that no database reads all words with this beginning instead of the users' words.
func usersWith(of, word string) string {
	return fmt.Sprintf("SELECT DISTINCT user_id AS id FROM user_words WHERE user_id %s AND substr(word, 1, %d) = $2", rows.In(of, "$1", "bigint"), len(word))
}

// after returns the smallest text behind all that begin with the word, in the order of bytes.
func after(word string) []byte {
	end := []byte(word)
	end[len(end)-1]++ // no byte of UTF-8 is 0xFF
	return end
}

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
