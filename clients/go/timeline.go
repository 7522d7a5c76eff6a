package tideline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// PostFields are the fields of a [Post].
const PostFields = "id text visibility createdAt likeCount viewerHasLiked author { id handle name }"

// Post is the default type of a timeline's posts.
type Post struct {
	ID             string
	Text           string
	Visibility     string // PUBLIC, FOLLOWERS, MUTUALS or PRIVATE
	CreatedAt      time.Time
	LikeCount      int
	ViewerHasLiked bool
	Author         struct{ ID, Handle, Name string }
}

// Options configures a timeline. The zero value works if P is Post.
type Options[P any] struct {
	// Fields are the fields to select of each post. They are decoded into a P. Defaults to PostFields.
	Fields string
	// PageSize is how many entries one read requests. Defaults to 20, which every server allows.
	PageSize int
	// Most is how many entries are kept when events add more, and how many are read again. Beyond it the
	// oldest ones are dropped; ReadOlder reads them again, and raises the bound. Defaults to 500.
	Most int
	// Heartbeat is the interval of the server's heartbeats, in whole seconds, up to an hour. If two are
	// missing, the connection is closed. Defaults to 30 s.
	Heartbeat time.Duration
	// Backoff returns how long to wait before try n, counted from 0, after a failure. By default it starts at
	// half a second and doubles up to 15 s, each randomly varied by up to half.
	Backoff func(n int) time.Duration
	// Saved is the state that another program has saved, with the same Fields.
	Saved *Saved[P]
	// OnEvent is called for each event in order, before the event changes the timeline. An event for which
	// OnEvent has not returned is delivered again after a restart. OnEvent must not call Read, ReadOlder or
	// MarkRead of the timeline, because they wait for it.
	OnEvent func(Event[P])
}

// Snapshot is the state of a timeline at a moment. Its entries are shared and must not be modified.
type Snapshot[P any] struct {
	// Entries are sorted by descending score. Each post occurs once.
	Entries []Entry[P]
	// Unread is the number of entries of others that are newer than the read mark.
	Unread int
	// More says whether older entries can be read.
	More bool
	// Live says whether changes arrive at once: the timeline is connected, and need not be read again.
	Live bool
	// LateBy is the current delay of deliveries to timelines in whole seconds, from the last heartbeat. It is
	// under 10 s in normal operation.
	LateBy time.Duration
	// Err is the last error while the timeline is not live.
	Err error
}

// Timeline is the home timeline of a client's user, newest first. It shows no post twice, and
// no post whose removal was reported. If events may have been missed, it reads the timeline
// again. It is safe for concurrent use.
type Timeline[P any] struct {
	live
	options Options[P]
	held    held[P] // guarded by live.mu
}

// NewTimeline returns the timeline of the client's user. It reads nothing yet.
func NewTimeline[P any](client *Client, options Options[P]) *Timeline[P] {
	options.Fields = cmp.Or(options.Fields, PostFields)
	options.PageSize = cmp.Or(options.PageSize, 20)
	options.Most = cmp.Or(options.Most, 500)
	options.Heartbeat = cmp.Or(options.Heartbeat, 30*time.Second)
	t := &Timeline[P]{options: options}
	t.begin(t, client, options.Backoff)
	t.heartbeat = max(time.Second, options.Heartbeat.Truncate(time.Second))
	if saved := options.Saved; saved != nil && saved.Position != "" {
		t.held = held[P]{Saved: *saved, loaded: true, bound: max(options.Most, len(saved.Entries))}
	}
	return t
}

// Snapshot returns the current state.
func (t *Timeline[P]) Snapshot() Snapshot[P] {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.held
	return Snapshot[P]{Entries: h.Entries, Unread: h.Unread, More: h.Next != "", Live: t.open && !h.stale, LateBy: time.Duration(h.lateBy) * time.Second, Err: t.err}
}

// Save returns the state from which another Timeline can continue, even days later: it then
// receives what it missed, or reads the timeline again. The result is empty, with Position "",
// while there is nothing to resume from.
func (t *Timeline[P]) Save() Saved[P] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held.loaded || t.held.stale {
		return Saved[P]{}
	}
	return t.held.Saved
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
	t.change(func() {
		fresh.lateBy = t.held.lateBy
		t.held = fresh
	})
	return nil
}

// ReadOlder appends the next older page, if there is one. Errors: the errors of Client.Query.
func (t *Timeline[P]) ReadOlder(ctx context.Context) error {
	return t.readNext(ctx, func() error {
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

func (t *Timeline[P]) mustRead() bool   { return t.held.mustRead() }
func (t *Timeline[P]) position() string { return t.held.Position }
func (t *Timeline[P]) invalidate()      { t.held.stale = true }

func (t *Timeline[P]) subscription() (query string, variables map[string]any) {
	return `subscription TimelineEvents($after: Cursor, $heartbeat: Int) { timelineEvents(after: $after, heartbeat: $heartbeat, updates: true) { __typename
		... on TimelinePostAdded { position edge { ` + t.entryFields() + ` } }
		... on TimelinePostUpdated { position edge { ` + t.entryFields() + ` } }
		... on TimelinePostRemoved { position postId removal: reason }
		... on TimelineInvalidated { position reason }
		... on TimelineHeartbeat { position unreadCount lateBy } } }`, map[string]any{"heartbeat": int(t.heartbeat / time.Second)}
}

// page reads the page after a cursor.
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

// MarkRead moves the read mark to an entry. The user's other devices are notified.
// Errors: the errors of Client.Query.
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

// told is an event in JSON.
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

func (t *Timeline[P]) event(data json.RawMessage) (apply func(), err error) {
	var answer struct{ TimelineEvents *told[P] }
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	as := answer.TimelineEvents
	if as == nil {
		return nil, errors.New("the result has none")
	}
	e := Event[P]{Kind: as.Typename, Reason: as.Removal + as.Reason, position: as.Position, unread: as.UnreadCount, lateBy: as.LateBy}
	e.Entry.ID = as.PostID
	if as.Edge != nil {
		e.Entry = Entry[P](*as.Edge)
	}
	return func() {
		if t.options.OnEvent != nil {
			t.options.OnEvent(e)
		}
		t.change(func() { t.held.apply(e) })
	}, nil
}
