package transfer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/bulk"
)

// MaxLine is the maximum length of a line in bytes. The longest text fits, however it is escaped.
const MaxLine = 1 << 20

// The lines of a file. A field without omitempty is required.
type (
	userLine struct {
		Type              string             `json:"type"`
		ID                string             `json:"id"`
		Handle            *string            `json:"handle,omitempty"`
		Name              *string            `json:"name,omitempty"`
		Bio               *string            `json:"bio,omitempty"`
		AvatarURL         *string            `json:"avatarUrl,omitempty"`
		Links             []string           `json:"links,omitempty"`
		Data              json.RawMessage    `json:"data,omitempty"`
		CreatedAt         *moment            `json:"createdAt,omitempty"`
		DefaultVisibility *schema.Visibility `json:"defaultVisibility,omitempty"`
		ApprovesFollowers *bool              `json:"approvesFollowers,omitempty"`
		PasswordHash      *string            `json:"passwordHash,omitempty"`
		Suspended         bool               `json:"suspended,omitempty"`
		SuspendedUntil    *ending            `json:"suspendedUntil,omitempty"`
		SuspensionReason  string             `json:"suspensionReason,omitempty"`

		HomeReplies *schema.HomeReplies `json:"homeReplies,omitempty"`
	}
	postLine struct {
		Type       string             `json:"type"`
		ID         string             `json:"id"`
		Author     string             `json:"author"`
		Text       string             `json:"text,omitempty"` // required unless it is a repost
		Data       json.RawMessage    `json:"data,omitempty"`
		Visibility *schema.Visibility `json:"visibility,omitempty"`
		CreatedAt  *moment            `json:"createdAt,omitempty"`
		Hidden     bool               `json:"hiddenByModerators,omitempty"`

		ReplyTo        string           `json:"replyTo,omitempty"`
		QuoteOf        string           `json:"quoteOf,omitempty"`
		RepostOf       string           `json:"repostOf,omitempty"`
		QuoteWithdrawn bool             `json:"quoteWithdrawn,omitempty"`
		ReplyAudience  *schema.Audience `json:"replyAudience,omitempty"`
		QuoteAudience  *schema.Audience `json:"quoteAudience,omitempty"`
		// Mentions are all mentions of the text; nil: as a post that is written here has.
		Mentions *[]mentionPart `json:"mentions,omitempty"`
	}
	mentionPart struct {
		User  string `json:"user"`
		Start int    `json:"start"`
		End   int    `json:"end"`
	}
	followLine struct {
		Type     string `json:"type"`
		Follower string `json:"follower"`
		Followee string `json:"followee"`
	}
	blockLine struct {
		Type    string `json:"type"`
		Blocker string `json:"blocker"`
		Blocked string `json:"blocked"`
	}
	likeLine struct {
		Type string `json:"type"`
		User string `json:"user"`
		Post string `json:"post"`
	}
)

// moment is a time in a field createdAt, in the format of RFC 3339. It is written in UTC, with as
// many digits as it needs.
type moment time.Time

func (m moment) MarshalText() ([]byte, error) {
	return time.Time(m).UTC().AppendFormat(nil, time.RFC3339Nano), nil
}

func (m *moment) UnmarshalText(text []byte) error {
	return m.read("createdAt", text)
}

func (m *moment) read(field string, text []byte) error {
	t, err := bulk.ParseTime(string(text))
	if err != nil {
		return fmt.Errorf(`field %q: must be a time such as 2024-12-31T23:59:59Z, not %s`, field, shown(string(text)))
	}
	*m = moment(t)
	return nil
}

// ending is a time in a field suspendedUntil, in the format of moment.
type ending time.Time

func (e ending) MarshalText() ([]byte, error) { return moment(e).MarshalText() }

func (e *ending) UnmarshalText(text []byte) error { return (*moment)(e).read("suspendedUntil", text) }

func (e *ending) time() *time.Time { return (*time.Time)(e) }

func (m *moment) time() *time.Time { return (*time.Time)(m) }

// rows are the parsed lines that are written together.
type rows struct {
	users   []bulk.User
	posts   []bulk.Post
	follows []bulk.Follow
	blocks  []bulk.Block
	likes   []bulk.Like

	numbers map[string][]int // line numbers of the rows, by type
	seen    map[string]bool  // users and posts of the batch, which may not occur twice in a call
	lines   int
	bytes   int
	bad     []badLine
	end     position // in the file
}

// badLine is a refused line.
type badLine struct {
	number int
	reason string
}

func newRows() *rows { return &rows{numbers: map[string][]int{}, seen: map[string]bool{}} }

// add adds a line. It returns false, and adds nothing, if the batch already has the user or the
// post. Error: the reason why the line is refused.
func (r *rows) add(number int, line []byte) (added bool, err error) {
	if !utf8.Valid(line) {
		return false, errors.New("the line is not valid UTF-8")
	}
	var head struct{ Type *string }
	if err := json.Unmarshal(line, &head); err != nil {
		return false, syntax(err)
	}
	if head.Type == nil {
		return false, missing("type")
	}
	switch kind := *head.Type; kind {
	case "user":
		l, err := read[userLine](line, func(l *userLine) map[string]string { return map[string]string{"id": l.ID} })
		if err == nil {
			err = oneOf("defaultVisibility", l.DefaultVisibility)
		}
		if err == nil {
			err = oneOf("homeReplies", l.HomeReplies)
		}
		if err != nil || r.seen["user "+l.ID] {
			return false, err
		}
		r.seen["user "+l.ID] = true
		r.users = append(r.users, bulk.User{ExternalID: l.ID, Handle: l.Handle, Name: l.Name, Bio: l.Bio, AvatarURL: l.AvatarURL, Links: l.Links, Data: data(l.Data), CreatedAt: l.CreatedAt.time(),
			DefaultVisibility: l.DefaultVisibility, ApprovesFollowers: l.ApprovesFollowers, PasswordHash: l.PasswordHash, Suspended: l.Suspended,
			Suspension: account.Suspension{Reason: l.SuspensionReason, Until: l.SuspendedUntil.time()}, HomeReplies: l.HomeReplies})
	case "post":
		l, err := read[postLine](line, func(l *postLine) map[string]string {
			return map[string]string{"id": l.ID, "author": l.Author, "text": cmp.Or(l.Text, l.RepostOf)}
		})
		if err == nil {
			err = cmp.Or(oneOf("visibility", l.Visibility), oneOf("replyAudience", l.ReplyAudience), oneOf("quoteAudience", l.QuoteAudience))
		}
		if err != nil || r.seen["post "+l.ID] {
			return false, err
		}
		r.seen["post "+l.ID] = true
		r.posts = append(r.posts, bulk.Post{ExternalID: l.ID, Author: l.Author, Text: l.Text, Data: data(l.Data), Visibility: l.Visibility, CreatedAt: l.CreatedAt.time(), Hidden: l.Hidden,
			ReplyTo: l.ReplyTo, QuoteOf: l.QuoteOf, RepostOf: l.RepostOf, QuoteWithdrawn: l.QuoteWithdrawn, ReplyAudience: l.ReplyAudience, QuoteAudience: l.QuoteAudience,
			Mentions: l.mentions()})
	case "follow":
		l, err := read[followLine](line, func(l *followLine) map[string]string {
			return map[string]string{"follower": l.Follower, "followee": l.Followee}
		})
		if err != nil {
			return false, err
		}
		r.follows = append(r.follows, bulk.Follow{Follower: l.Follower, Followee: l.Followee})
	case "block":
		l, err := read[blockLine](line, func(l *blockLine) map[string]string {
			return map[string]string{"blocker": l.Blocker, "blocked": l.Blocked}
		})
		if err != nil {
			return false, err
		}
		r.blocks = append(r.blocks, bulk.Block{Blocker: l.Blocker, Blocked: l.Blocked})
	case "like":
		l, err := read[likeLine](line, func(l *likeLine) map[string]string { return map[string]string{"user": l.User, "post": l.Post} })
		if err != nil {
			return false, err
		}
		r.likes = append(r.likes, bulk.Like{User: l.User, Post: l.Post})
	default:
		return false, fmt.Errorf(`field "type": %s is none of user, follow, block, post, like`, shown(kind))
	}
	r.numbers[*head.Type] = append(r.numbers[*head.Type], number)
	r.lines++
	r.bytes += len(line)
	return true, nil
}

// read parses a line of a known type. required returns the fields that must not be empty.
func read[T any](line []byte, required func(*T) map[string]string) (l *T, err error) {
	l = new(T)
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, syntax(err)
	}
	for field, value := range required(l) {
		if value == "" {
			return nil, missing(field)
		}
	}
	return l, nil
}

// data returns the text of a field, or nil if the field is missing.
func data(field json.RawMessage) *string {
	if field == nil || string(field) == "null" {
		return nil
	}
	return new(string(field))
}

func missing(field string) error { return fmt.Errorf("field %q is missing", field) }

// syntax describes why a line cannot be parsed.
func syntax(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("a line is a JSON object, not a %s", wrong.Value)
		}
		return fmt.Errorf("field %q: a %s does not belong there", wrong.Field, wrong.Value)
	}
	if broken := (*json.SyntaxError)(nil); errors.As(err, &broken) {
		return fmt.Errorf("the line is not JSON: %w", err)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// mentions returns the mentions of the line, or nil if it has no such field.
func (l *postLine) mentions() []bulk.Mention {
	if l.Mentions == nil {
		return nil
	}
	list := make([]bulk.Mention, len(*l.Mentions))
	for i, m := range *l.Mentions {
		list[i] = bulk.Mention(m)
	}
	return list
}

// oneOf refuses a value that the type does not list.
func oneOf[T interface {
	~string
	Values() []string
}](field string, v *T) error {
	if v == nil || slices.Contains((*v).Values(), string(*v)) {
		return nil
	}
	return fmt.Errorf("field %q: %s is none of %s", field, shown(string(*v)), strings.Join((*v).Values(), ", "))
}

// shown returns a quoted, shortened form of a text, which is safe to print on a terminal.
func shown(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}
