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
	"tideline/internal/errs"
)

// Bounds of a user's texts, in characters (Unicode code points).
const (
	MaxHandle = 30
	MaxName   = 50
	MaxBio    = 500
	maxSearch = 100
)

// The fields of a profile, and of the query of a search.
var (
	NameField  = text.Field{What: "The name", Name: "name", Limit: "nameLength", Least: 1, Most: MaxName}
	BioField   = text.Field{What: "The bio", Name: "bio", Limit: "bioLength", Most: MaxBio}
	queryField = text.Field{What: "The query", Name: "query", Limit: "queryLength", Most: maxSearch}
)

var handlePattern = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)

// Handle normalises a handle: it folds the case and removes a leading @. Error: BadInput.
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

// handleOf normalises a handle as Handle does, without validating it.
func handleOf(s string) string { return strings.TrimPrefix(text.Fold(s), "@") }

// Directory finds users. It is safe for concurrent use.
type Directory struct {
	db      *ent.Client
	dialect string
	maxPage int
}

// NewDirectory returns the Directory of a database. The dialect is dialect.Postgres or
// dialect.SQLite. A page has at most maxPage entries; 0 stands for paging.DefaultMaxSize.
func NewDirectory(db *ent.Client, dialectName string, maxPage int) *Directory {
	return &Directory{db, dialectName, cmp.Or(maxPage, paging.DefaultMaxSize)}
}

// public lists the columns that other users may see. A user that the Directory returns has no
// other columns.
var public = slices.DeleteFunc(slices.Clone(user.Columns), func(column string) bool {
	return slices.Contains([]string{user.FieldPasswordHash, user.FieldIssuer, user.FieldExternalID, user.FieldSignedOutBefore,
		user.FieldFanOutMode, user.FieldFanOutModeSince, user.FieldLastPostID, user.FieldHidden, user.FieldIndexedAs}, column)
})

// users returns a query for the public columns of users who are not hidden.
func (d *Directory) users() *ent.UserQuery {
	q := d.db.User.Query().Where(user.Hidden(false), rows.WithFollows)
	q.Select(public...)
	return q
}

// Users returns the users with the ids, in their order. An entry is nil if there is no such user
// or the user is hidden. It costs one query.
func (d *Directory) Users(ctx context.Context, ids []int64) ([]*ent.User, error) {
	list, err := d.users().Where(rows.Among(user.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return rows.InOrder(ids, list, func(u *ent.User) int64 { return u.ID }), nil
}

// Data returns the app's own fields of the users with the ids, in their order. It costs one
// query.
func (d *Directory) Data(ctx context.Context, ids []int64) ([]*string, error) {
	return rows.UserData(ctx, d.db.UserData, ids)
}

// User returns the user with the handle. Error: NotFound, also for a text that is not a valid
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
	return u, errs.Wrap(err, "find user")
}

// Named finds the user that an operator names by handle, by the id in the API, or by the number
// in the log. A leading @ makes the name a handle. Errors: NotFound; BadInput if the name is the
// id or number of one user and the handle of another, hidden or not. Anybody could choose such a
// handle.
//
// Cost: two look-ups by index.
func (d *Directory) Named(ctx context.Context, name string) (*ent.User, error) {
	return named(ctx, d.db, d.users, name)
}

// named looks for the name among all users and reads the row with the query that users returns.
func named(ctx context.Context, db *ent.Client, users func() *ent.UserQuery, name string) (*ent.User, error) {
	kind, id, ok := ent.ParseNodeID(name)
	if !ok || kind != "User" {
		id, _ = strconv.ParseInt(name, 10, 64)
	}
	handle, _ := Handle(name) // no user has an empty handle
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
	return u, errs.Wrap(err, "find user")
}

// Search returns a page of users, newest first. A user matches if every word of the query is the
// beginning of a word of the handle or the name. Case and the form of letters make no difference,
// and a query may leave out the accents of a name.
// In scripts that do not separate words, a match may begin at any letter. An empty query matches
// all users. If a query matches more than 5,000 users, a page examines the newest 2,000 users
// after the cursor: it may be shorter than requested, or empty, even if the list continues after
// it. Error: BadInput.
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
	page := paging.ConnectBy(w, list, paging.Users, 0, func(u *ent.User) int64 { return u.ID })
	page.Stopped(w, stopped, paging.Users, 0)
	return page, nil
}

const (
	// maxCandidates is the most words that one index range of a search reads.
	maxCandidates = 5000
	// searchWindow is how many users a search examines if its words match too many users.
	searchWindow = 2000
)

// wordsOfQuery returns the distinct words of a folded query. The longest comes first, because the
// fewest words begin with it.
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

// search returns up to limit of the newest users with ids below the given one that match all of
// the words. If it did not examine all users, stopped is an id between the last user that it examined
// and the next one.
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
			ids, stopped = rows.Cut(ids) // the last of them may be a hidden user
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

// candidates returns the users that match one of the first two words, and that word. It returns
// no word if more than maxCandidates words begin with each of them.
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

// wordRange selects the users of the words from $1 up to but excluding $2. It reads in the order
// of the index, so that the database stops at the limit instead of sorting the table.
var wordRange = fmt.Sprintf("SELECT user_id AS id FROM user_words WHERE word >= $1 AND word < $2 ORDER BY word, user_id LIMIT %d", maxCandidates+1)

// usersWith selects the users of list $1 that have a word beginning with $2. It compares with
// substr, so that no database reads all words with this beginning instead of the words of the
// listed users.
func usersWith(of, word string) string {
	return fmt.Sprintf("SELECT DISTINCT user_id AS id FROM user_words WHERE user_id %s AND substr(word, 1, %d) = $2", rows.In(of, "$1", "bigint"), len(word))
}

// after returns the smallest text that sorts, in byte order, after all texts that begin with the
// word.
func after(word string) []byte {
	end := []byte(word)
	end[len(end)-1]++ // no byte of UTF-8 is 0xFF
	return end
}

// UserIDsAfter returns up to n ids of users greater than the given one, in ascending order. A
// caller can use it to visit all users in steps.
//
// Cost: an index range of n.
func (d *Directory) UserIDsAfter(ctx context.Context, after int64, n int) ([]int64, error) {
	ids, err := d.db.User.Query().Where(user.IDGT(after)).Order(ent.Asc(user.FieldID)).Limit(n).IDs(ctx)
	return ids, errs.Wrap(err, "list users")
}

// Count returns the number of users.
//
// Cost: a count of all users, so it is for operators and not for requests.
func (d *Directory) Count(ctx context.Context) (int, error) {
	n, err := d.db.User.Query().Count(ctx)
	return n, errs.Wrap(err, "count users")
}
