package tideline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// PostFields are the fields of a [Post].
const PostFields = "id text visibility createdAt likeCount viewerHasLiked author { id handle name }"

// Post is what a timeline has of a post where nothing else is asked for.
type Post struct {
	ID             string
	Text           string
	Visibility     string // PUBLIC, FOLLOWERS, MUTUALS or PRIVATE
	CreatedAt      time.Time
	LikeCount      int
	ViewerHasLiked bool
	Author         struct{ ID, Handle, Name string }
}

// Options say what a timeline has. The zero value is good for a P of Post.
type Options[P any] struct {
	// Fields are selected of each post, and decoded as a P. Defaults to PostFields.
	Fields string
	// PageSize is how many entries one read asks for. Defaults to 20, which every server
	// gives.
	PageSize int
	// Most is how many entries are held when more come by events, and how many are read
	// again. Beyond it the oldest leave, and come back by ReadOlder, which also raises it.
	// Defaults to 500.
	Most int
	// Heartbeat is after what time the server says that nothing was missed, in whole
	// seconds, up to an hour. Two that do not come end the connection. Defaults to 30 s.
	Heartbeat time.Duration
	// Backoff returns how long to wait before the nth try, from 0 on, after a failure.
	// Defaults to half a second, twice as long each time up to 15 s, by chance half as long
	// or half as long again.
	Backoff func(n int) time.Duration
	// Saved is what another program has left; its posts have the same Fields.
	Saved *Saved[P]
	// OnEvent is told of each event, one after the other, before what it changes is held:
	// what fails before OnEvent returns is told again. It may not call the timeline's Read,
	// ReadOlder and MarkRead, which wait for it.
	OnEvent func(Event[P])
}

// Snapshot is a timeline at a moment. Its entries are shared: read them only.
type Snapshot[P any] struct {
	// Entries are by descending score, each post once.
	Entries []Entry[P]
	// Unread is how many entries of others are newer than the read mark.
	Unread int
	// More says that older entries can be read.
	More bool
	// Live says that what happens is told at once: it is connected, and has nothing to
	// read again.
	Live bool
	// LateBy is by how much posts reach timelines late, in whole seconds, as the server said
	// last. It is under 10 s when all is well.
	LateBy time.Duration
	// Err is what failed last, while it is not live.
	Err error
}

// Timeline is the home timeline of a client's user, newest first. It shows nothing twice and
// nothing that it was told is gone, and misses nothing without reading again. Methods may be
// called concurrently.
type Timeline[P any] struct {
	client  *Client
	options Options[P]
	turn    chan struct{} // of those who read pages, or deal with an event
	readAt  time.Time     // when the newest page was read last; the turn guards it, and repeats
	repeats int           // how often in succession it was invalidated soon after that
	untold  bool          // edits are not told: the server does not know `updates`; Run alone uses it

	mu      sync.Mutex
	held    held[P]
	open    bool
	err     error
	changed chan struct{}
}

// NewTimeline returns the timeline of the client's user, of which nothing is read yet.
func NewTimeline[P any](client *Client, options Options[P]) *Timeline[P] {
	if options.Fields == "" {
		options.Fields = PostFields
	}
	if options.PageSize == 0 {
		options.PageSize = 20
	}
	if options.Most == 0 {
		options.Most = 500
	}
	if options.Heartbeat == 0 {
		options.Heartbeat = 30 * time.Second
	}
	if options.Backoff == nil {
		options.Backoff = backoff
	}
	t := &Timeline[P]{client: client, options: options, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	if saved := options.Saved; saved != nil && saved.Position != "" {
		t.held = held[P]{Saved: *saved, loaded: true, bound: max(options.Most, len(saved.Entries))}
	}
	return t
}

// backoff is the default of Options.Backoff.
func backoff(n int) time.Duration {
	most := min(500*time.Millisecond<<min(n, 5), 15*time.Second)
	return most/2 + rand.N(most)
}

// Snapshot returns what the timeline has now.
func (t *Timeline[P]) Snapshot() Snapshot[P] {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.held
	return Snapshot[P]{Entries: h.Entries, Unread: h.Unread, More: h.Next != "", Live: t.open && !h.stale, LateBy: time.Duration(h.lateBy) * time.Second, Err: t.err}
}

// Changed returns a channel that is closed after the next change. Take it before the
// Snapshot, and no change is missed.
func (t *Timeline[P]) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Save returns what another timeline can be taken up from: after days too, it is brought
// up to date by what was missed, or read again. Nothing is saved, and Position is "", while
// there is nothing from which to resume.
func (t *Timeline[P]) Save() Saved[P] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held.loaded || t.held.stale {
		return Saved[P]{}
	}
	return t.held.Saved
}

// change changes what is held and tells those who watch.
func (t *Timeline[P]) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
	close(t.changed)
	t.changed = make(chan struct{})
}

// inTurn does something while nobody else reads or deals with an event, so that an event
// is newer than all that was read before it.
func (t *Timeline[P]) inTurn(ctx context.Context, do func() error) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	return do()
}

// Read reads the newest page, or all that is shown, again: its likes, of which no event
// tells, and its texts. Run reads by itself what it must; call Read first where a failure
// is to be told at once. Errors: as of Client.Query; what was held stays.
func (t *Timeline[P]) Read(ctx context.Context) error {
	return t.inTurn(ctx, func() error { return t.read(ctx) })
}

func (t *Timeline[P]) read(ctx context.Context) error {
	shown := t.Snapshot().Entries
	p, viewer, err := t.page(ctx, "")
	if err != nil {
		return err
	}
	var fresh held[P]
	fresh.land(p, viewer, t.options.Most)
	for len(shown) > 0 && fresh.Next != "" && len(fresh.Entries) < t.options.Most && fresh.End > shown[len(shown)-1].Score {
		if p, _, err = t.page(ctx, fresh.Next); err != nil {
			return err
		}
		fresh.landOlder(p)
	}
	t.readAt = time.Now()
	t.change(func() {
		fresh.lateBy = t.held.lateBy
		t.held = fresh
	})
	return nil
}

// ReadOlder adds the next older page, where there is one. Errors: as of Client.Query.
func (t *Timeline[P]) ReadOlder(ctx context.Context) error {
	return t.inTurn(ctx, func() error {
		if t.mustRead() {
			return t.read(ctx)
		}
		t.mu.Lock()
		next := t.held.Next
		t.mu.Unlock()
		if next == "" {
			return nil
		}
		p, _, err := t.page(ctx, next)
		if err == nil {
			t.change(func() { t.held.landOlder(p) })
		}
		return err
	})
}

func (t *Timeline[P]) mustRead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.held.loaded || t.held.stale
}

// page reads a page.
func (t *Timeline[P]) page(ctx context.Context, after string) (p page[P], viewer string, err error) {
	var data struct {
		Viewer   struct{ ID string }
		Timeline struct {
			Position    string
			UnreadCount int
			Edges       []edge[P]
			PageInfo    struct {
				HasNextPage bool
				EndCursor   string
			}
		}
	}
	err = t.client.Query(ctx, `query Timeline($first: Int!, $after: Cursor) { viewer { id } timeline(first: $first, after: $after) {
		position unreadCount edges { `+t.entryFields()+` } pageInfo { hasNextPage endCursor } } }`,
		map[string]any{"first": t.options.PageSize, "after": orNull(after)}, &data)
	if err != nil {
		return p, "", fmt.Errorf("read the timeline: %w", err)
	}
	p = page[P]{position: data.Timeline.Position, unread: data.Timeline.UnreadCount}
	for _, e := range data.Timeline.Edges {
		p.entries = append(p.entries, Entry[P](e))
	}
	if data.Timeline.PageInfo.HasNextPage {
		p.next = data.Timeline.PageInfo.EndCursor
	}
	return p, data.Viewer.ID, nil
}

func (t *Timeline[P]) entryFields() string {
	return "cursor score node { id author { id } " + t.options.Fields + " }"
}

func orNull(cursor string) any {
	if cursor == "" {
		return nil
	}
	return cursor
}

// MarkRead moves the read mark up to an entry; the user's other devices are told. Errors:
// as of Client.Query.
func (t *Timeline[P]) MarkRead(ctx context.Context, upTo Entry[P]) error {
	return t.inTurn(ctx, func() error {
		var data struct{ MarkTimelineRead struct{ UnreadCount int } }
		err := t.client.Query(ctx, `mutation MarkRead($input: MarkTimelineReadInput!) { markTimelineRead(input: $input) { unreadCount } }`,
			map[string]any{"input": map[string]any{"upTo": upTo.Cursor}}, &data)
		if err == nil {
			t.change(func() { t.held.Unread = data.MarkTimelineRead.UnreadCount })
		}
		return err
	})
}

// told is an event as it comes.
type told[P any] struct {
	Typename    string `json:"__typename"`
	Position    string
	UnreadCount int
	LateBy      int
	PostID      string
	Edge        *edge[P]
	Removal     string
	Reason      string
}

// next waits for an event. A result with errors is an *Error.
func next[P any](ctx context.Context, s *Subscription) (Event[P], error) {
	result, err := s.Next(ctx)
	if err != nil {
		return Event[P]{}, err
	}
	var answer struct {
		Data   struct{ TimelineEvents *told[P] }
		Errors []answered
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		return Event[P]{}, fmt.Errorf("read an event: %w", err)
	}
	if len(answer.Errors) > 0 {
		return Event[P]{}, answer.Errors[0].refusal()
	}
	as := answer.Data.TimelineEvents
	if as == nil {
		return Event[P]{}, errors.New("read an event: the result has none")
	}
	e := Event[P]{Kind: as.Typename, Reason: as.Removal + as.Reason, position: as.Position, unread: as.UnreadCount, lateBy: as.LateBy}
	e.Entry.ID = as.PostID
	if as.Edge != nil {
		e.Entry = Entry[P](*as.Edge)
	}
	return e, nil
}
