package stream

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// stayWatching is how often an open stream of a conversation looks at what was recorded, so that the
// record stays. It also bounds how long the stream does not notice if Redis loses only the record.
const stayWatching = timeline.TopicLife / 3

// ConversationEvent is one event of a Conversation: *ConversationPostAdded, *ConversationPostUpdated,
// *ConversationPostRemoved or *ConversationInvalidated. Position is the cursor to resume after.
type ConversationEvent interface{ conversationEvent() }

func (*ConversationPostAdded) conversationEvent()   {}
func (*ConversationPostUpdated) conversationEvent() {}
func (*ConversationPostRemoved) conversationEvent() {}
func (*ConversationInvalidated) conversationEvent() {}

// ConversationPostAdded says that the viewer may see a post that the client may not have.
type ConversationPostAdded struct {
	Post     *ent.Post
	Position string
	checked  checked
}

// ConversationPostUpdated says that a post that the client may have changed.
type ConversationPostUpdated struct {
	Post     *ent.Post
	Position string
	checked  checked
}

// ConversationPostRemoved says that the viewer may no longer see a post. A deleted post looks like a
// hidden one.
type ConversationPostRemoved struct {
	PostID   int64
	Position string
}

// ConversationInvalidated says that the client must read the conversation again.
type ConversationInvalidated struct{ Reason, Position string }

// checked says when the verdict on a post was made.
type checked struct {
	until   time.Time // when the verdict expires
	version int64     // version of the visibility.Reader
}

// Conversation delivers the changes of one conversation to one client. It has no goroutine: it wakes
// its reader, and the reader calls Next. Only one goroutine at a time may use it.
type Conversation struct {
	subscription[ConversationEvent]

	root     int64
	at       conversationMark // the client knows the changes up to here
	sees     bool             // whether the viewer could see the root when that was last checked
	behind   bool             // whether the stream has to catch up first
	visitDue atomic.Bool
	leave    func()
}

// conversationMark is a position in the changes of a conversation and in the changes of the viewer's
// relations, which decide what the viewer sees of it.
type conversationMark struct{ posts, relations timeline.Mark }

// ListenConversation streams the changes of the conversation of a post until ctx or the session ends:
// changes of its replies and of its root, which may be the post itself. wake is as in Listen.
//
// After a cursor, which is the position of a page of the replies or of the last event, the stream first
// sends what the client missed. It skips nothing, or sends ConversationInvalidated. Without a cursor it
// sends the changes from now on. Errors: Unauthenticated, BadInput; NotFound if the viewer may not see
// the post or the root.
//
// Cost: two queries by primary key, and four round trips. After a cursor, also a query by primary key
// for the changed posts, and two for each of these that the viewer may not see, at most
// timeline.TopicCap.
func (s *Streams) ListenConversation(ctx context.Context, v session.Viewer, post int64, after *string, wake func()) (*Conversation, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	root, err := s.rootOf(ctx, v, post)
	if err != nil {
		return nil, err
	}
	c := &Conversation{subscription: subscription[ConversationEvent]{streams: s, viewer: v, wake: wake}, root: root, behind: true}
	now, err := s.conversationNow(ctx, v, root)
	if err != nil {
		return nil, err
	}
	if c.at = now; after != nil {
		if c.at, err = decodePosition(*after, v, root, now); err != nil {
			return nil, err
		}
	}
	// Behind the read of the position: a later change of the root is recorded.
	if c.sees, err = c.seesRoot(ctx); err == nil && !c.sees {
		err = refusal.ErrNoSuchPost
	}
	if err != nil {
		return nil, err
	}
	c.leave = s.enter(root, v.ID)
	// The stream subscribes at the hub before it reads what the client missed, so it loses no change in
	// between.
	if err := c.open(ctx, live.Relations(v.ID), live.Conversation(root)); err != nil {
		c.leave()
		return nil, err
	}
	context.AfterFunc(ctx, c.leave)
	c.visits = c.tick(&c.visitDue, stayWatching)
	wake()
	return c, nil
}

// rootOf returns the root of the conversation of a post. Error: NotFound if the viewer may not see the
// post.
func (s *Streams) rootOf(ctx context.Context, v session.Viewer, post int64) (int64, error) {
	found, err := s.posts.Posts(ctx, visibility.Direct, v.ID, []int64{post}, 0)
	switch {
	case err != nil:
		return 0, err
	case found[0] == nil:
		return 0, refusal.ErrNoSuchPost
	}
	return cmp.Or(found[0].RootID, post), nil
}

// enter adds the viewer to the watchers of the conversation in this process. leave reverts it.
func (s *Streams) enter(root, viewer int64) (leave func()) {
	s.watching.Lock()
	defer s.watching.Unlock()
	if s.watchers[root] == nil {
		s.watchers[root] = map[int64]int{}
	}
	s.watchers[root][viewer]++
	return sync.OnceFunc(func() {
		s.watching.Lock()
		defer s.watching.Unlock()
		if s.watchers[root][viewer]--; s.watchers[root][viewer] == 0 {
			delete(s.watchers[root], viewer)
		}
		if len(s.watchers[root]) == 0 {
			delete(s.watchers, root)
		}
	})
}

// watchersOf returns the viewers who watch the conversation in this process.
func (s *Streams) watchersOf(root int64) []int64 {
	s.watching.Lock()
	defer s.watching.Unlock()
	return slices.Collect(maps.Keys(s.watchers[root]))
}

// Next returns the next event. It reads from the stores, but never waits for an event: if there is
// none, ok is false, and the stream wakes the reader later. ctx is the context of the subscription.
//
// Cost: none while no event waits. Otherwise one look-up of the post and of the relations, shared by all
// who watch the conversation in this process; when the stream catches up, as ListenConversation.
func (c *Conversation) Next(ctx context.Context) (event ConversationEvent, ok bool) {
	return c.next(ctx, c.step)
}

// step does the next piece of work, if any. more is false if there was none.
func (c *Conversation) step(ctx context.Context) (more bool, err error) {
	if c.signedOut.Load() {
		return false, errStreamEnds
	}
	if c.behind {
		c.behind = false
		return true, c.inTurn(ctx, c.catchUp)
	}
	if c.visitDue.Swap(false) {
		return true, c.inTurn(ctx, c.visit)
	}
	for _, sub := range c.subs {
		ended := sub.Ended()
		ev, ok := sub.Take()
		ev.Batch.Trace(ctx)
		switch {
		case ok:
			return true, c.handle(ctx, ev)
		case ended:
			return true, c.resubscribe(ctx, sub, c.catchUp)
		}
	}
	return false, nil
}

func (c *Conversation) handle(ctx context.Context, ev live.Event) error {
	switch ev.Kind {
	case live.ConversationChanged:
		return c.changed(ctx, ev)
	case live.Invalidated, live.JournalChanged: // of the viewer's relations
		return c.catchUp(ctx)
	case live.Resync:
		return c.inTurn(ctx, c.catchUp)
	}
	return nil
}

// changed handles the event of one change. If it is not the next one after the changes that the client
// knows, the stream reads the record.
func (c *Conversation) changed(ctx context.Context, ev live.Event) error {
	at, text := timeline.ParseMark(ev.Reason)
	known := &c.at.posts
	switch {
	case at.Epoch == known.Epoch && at.Offset <= known.Offset:
		return nil
	case at.Epoch != known.Epoch || at.Offset != known.Offset+1:
		return c.catchUp(ctx)
	}
	change := visibility.Changed{Root: c.root, Post: c.root}
	if ev.Post != 0 {
		var err error
		if change, err = visibility.ParseChanged(c.root, text); err != nil {
			return err
		}
	}
	found, err := c.streams.shareChange(ctx, ev, change, c.viewer.ID)
	if err != nil {
		return err
	}
	known.Offset = at.Offset
	if ev.Post == 0 {
		c.rootChanged(found.verdict.Sees(c.viewer.ID), "the conversation was shown, hidden or deleted", RootChanged)
		return nil
	}
	c.tell(change.Post, found.verdict.Sees(c.viewer.ID), found.verdict.Saw(c.viewer.ID), found.verdict.Post, found.checked)
	return nil
}

// sharedChange is the verdict on a change for all who watch the conversation in this process.
type sharedChange struct {
	checked
	verdict visibility.ChangeVerdict
	viewers map[int64]bool
}

// shareChange returns the verdict on a change, which the process reads once for all who watch the
// conversation: after the message arrived and after the last change in this process that hid anything.
func (s *Streams) shareChange(ctx context.Context, ev live.Event, change visibility.Changed, viewer int64) (*sharedChange, error) {
	holds := func(found any) bool {
		e := found.(*sharedChange)
		return e.viewers[viewer] && s.stillHolds(e.checked)
	}
	found, err := ev.Batch.Shared.Get(ctx, holds, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, turnTimeout)
		defer cancel()
		viewers := s.watchersOf(change.Root)
		e := &sharedChange{viewers: make(map[int64]bool, len(viewers))}
		for _, viewer := range viewers {
			e.viewers[viewer] = true
		}
		var err error
		e.until = s.cfg.Now().Add(verdictLasts)
		e.verdict, err = s.posts.JudgeChange(ctx, change, viewers)
		e.version = e.verdict.Version
		return e, err
	})
	if err != nil {
		return nil, err
	}
	return found.(*sharedChange), nil
}

// check returns when a verdict that is made now expires.
func (s *Streams) check() checked {
	return checked{s.cfg.Now().Add(verdictLasts), s.posts.Version()}
}

// stillHolds reports whether a verdict may still be used.
func (s *Streams) stillHolds(c checked) bool {
	return s.cfg.Now().Before(c.until) && c.version == s.posts.Version()
}

// tell sends what a change means for the viewer: nothing, if the viewer neither sees the post nor might
// have seen it.
func (c *Conversation) tell(id int64, sees, saw bool, post *ent.Post, at checked) {
	switch position := c.position(); {
	case sees && saw:
		c.send(&ConversationPostUpdated{post, position, at})
	case sees:
		c.send(&ConversationPostAdded{post, position, at})
	case saw:
		c.send(&ConversationPostRemoved{id, position})
	}
}

// rootChanged sends ConversationInvalidated, unless the viewer neither sees the root nor saw it at the
// last check.
func (c *Conversation) rootChanged(sees bool, reason string, cause Cause) {
	saw := c.sees
	if c.sees = sees; sees || saw {
		c.streams.invalidated[cause].Add(1)
		c.send(&ConversationInvalidated{reason, c.position()})
	}
}

// seesRoot reports whether the viewer may see the root.
func (c *Conversation) seesRoot(ctx context.Context) (bool, error) {
	found, err := c.streams.posts.Posts(ctx, visibility.Direct, c.viewer.ID, []int64{c.root}, 0)
	return err == nil && found[0] != nil, err
}

// missed is what was recorded since a position.
type missed struct {
	now                      conversationMark
	posts, relations         []string
	allPosts, allOfRelations bool // whether these are all changes since
}

// missed reads what was recorded since the client's position.
func (c *Conversation) missed(ctx context.Context) (m missed, err error) {
	return c.streams.recorded(ctx, c.viewer, c.root, c.at)
}

// recorded reads what was recorded since a position. It begins to record what is not recorded.
func (s *Streams) recorded(ctx context.Context, v session.Viewer, root int64, since conversationMark) (m missed, err error) {
	topics := s.cfg.Topics
	if m.relations, m.now.relations, m.allOfRelations, err = topics.Watch(ctx, timeline.Relations(v.ID), since.relations); err == nil {
		m.posts, m.now.posts, m.allPosts, err = topics.Watch(ctx, timeline.Conversation(root), since.posts)
	}
	return m, err
}

// visit keeps the records alive, and catches up with what no event told. If Redis does not answer, the
// next visit does.
func (c *Conversation) visit(ctx context.Context) error {
	m, err := c.missed(ctx)
	if err != nil {
		c.streams.cfg.Logger.WarnContext(ctx, "conversation not looked at", "root", c.root, "error", err)
		c.visitSoon()
		return nil
	}
	return c.catchUpWith(ctx, m)
}

// catchUp sends what the client missed. If that is not known, it tells the client to read again.
func (c *Conversation) catchUp(ctx context.Context) error {
	m, err := c.missed(ctx)
	if err != nil {
		return err
	}
	return c.catchUpWith(ctx, m)
}

func (c *Conversation) catchUpWith(ctx context.Context, m missed) error {
	before := c.at
	c.at = m.now
	switch {
	case m.now.posts.Epoch != before.posts.Epoch || m.now.relations.Epoch != before.relations.Epoch:
		return c.startOver(ctx, NotRecorded)
	case !m.allPosts:
		return c.startOver(ctx, Cause(home.Forgotten))
	case !m.allOfRelations:
		return c.startOver(ctx, RelationChanged)
	}
	concerned, err := c.concern(ctx, m.relations)
	if err != nil {
		return err
	}
	if concerned {
		return c.startOver(ctx, RelationChanged)
	}
	c.at.posts = before.posts
	if err := c.replay(ctx, m.posts); err != nil {
		return err
	}
	c.at = m.now
	return nil
}

// startOver tells the client to read the conversation again.
func (c *Conversation) startOver(ctx context.Context, cause Cause) error {
	sees, err := c.seesRoot(ctx)
	if err == nil {
		c.rootChanged(sees, mayHaveMissed, cause)
	}
	return err
}

// concern reports whether one of the users, whose relation to the viewer changed, takes part in the
// conversation, or did since the record began: the removal of a post is not sent to a viewer who, by the
// new relation, never saw it.
func (c *Conversation) concern(ctx context.Context, users []string) (bool, error) {
	if len(users) == 0 {
		return false, nil
	}
	changes, _, all, err := c.streams.cfg.Topics.Watch(ctx, timeline.Conversation(c.root), timeline.Mark{Epoch: c.at.posts.Epoch})
	if err != nil || !all {
		return true, err
	}
	for _, text := range changes {
		change, err := visibility.ParseChanged(c.root, text)
		if err != nil || slices.Contains(users, strconv.FormatInt(change.Author, 10)) {
			return true, err
		}
	}
	slices.Sort(users)
	for _, text := range slices.Compact(users) {
		user, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return true, nil
		}
		if there, err := c.streams.posts.Unchecked.TakesPart(ctx, c.root, user); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// replay sends the recorded changes, one event a post. An event carries the position of the post's first
// change, so a client that leaves before the end gets the rest when it resumes.
func (c *Conversation) replay(ctx context.Context, texts []string) error {
	var ids []int64
	byPost := map[int64][]visibility.Changed{}
	offset := map[int64]int64{}
	for i, text := range texts {
		change, err := visibility.ParseChanged(c.root, text)
		if err != nil {
			return err
		}
		if _, known := byPost[change.Post]; !known {
			ids = append(ids, change.Post)
			offset[change.Post] = c.at.posts.Offset + int64(i) + 1
		}
		byPost[change.Post] = append(byPost[change.Post], change)
	}
	at := c.streams.check()
	posts, err := c.streams.posts.Posts(ctx, visibility.Direct, c.viewer.ID, ids, visibility.All)
	if err != nil {
		return err
	}
	for i, id := range ids {
		var saw bool
		if posts[i] != nil { // a post that the client has may be added again
			saw = !byPost[id][0].Widened(posts[i])
		} else if saw, err = c.sawAny(ctx, byPost[id]); err != nil {
			return err
		}
		if c.at.posts.Offset = offset[id]; i == len(ids)-1 {
			c.at.posts.Offset = offset[ids[0]] + int64(len(texts)) - 1
		}
		c.tell(id, posts[i] != nil, saw, posts[i], at)
	}
	return nil
}

// sawAny reports whether the viewer might have seen the post before one of its changes.
func (c *Conversation) sawAny(ctx context.Context, changes []visibility.Changed) (bool, error) {
	done := map[visibility.Changed]bool{}
	for _, change := range changes {
		if change.From == "" || done[change] {
			continue
		}
		done[change] = true
		verdict, err := c.streams.posts.JudgeChange(ctx, change, []int64{c.viewer.ID})
		if err != nil || verdict.Saw(c.viewer.ID) {
			return err == nil, err
		}
	}
	return false, nil
}

// Confirm reports whether an event may be sent after its response was made: the verdict on its post
// still holds, or the viewer may still see the post. If it returns false, the client must not receive
// the event; the change that hid the post sends a removal.
//
// Cost: none, or one query by primary key if the verdict no longer holds.
func (c *Conversation) Confirm(ctx context.Context, event ConversationEvent, _ bool) bool {
	var id int64
	var at checked
	switch event := event.(type) {
	case *ConversationPostAdded:
		id, at = event.Post.ID, event.checked
	case *ConversationPostUpdated:
		id, at = event.Post.ID, event.checked
	default:
		return true
	}
	if c.streams.stillHolds(at) {
		return true
	}
	posts, err := c.streams.posts.Posts(ctx, visibility.Direct, c.viewer.ID, []int64{id}, 0)
	if err != nil {
		c.interrupt(ctx, err)
	}
	return err == nil && posts[0] != nil
}

// ConversationPosition returns the cursor to resume after for a client that reads the conversation of
// the post after this call. It is empty for an anonymous viewer. A client that resumes after it more than
// timeline.TopicLife later is told to read again, unless somebody watched meanwhile. If Redis does not
// answer, the position says that, and the client is told the same.
//
// Cost: two round trips.
func (s *Streams) ConversationPosition(ctx context.Context, v session.Viewer, post *ent.Post) string {
	if v.ID == 0 {
		return ""
	}
	root := cmp.Or(post.RootID, post.ID)
	patient, cancel := context.WithTimeout(ctx, positionWait)
	defer cancel()
	at, err := s.conversationNow(patient, v, root)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "position in a conversation not read", "root", root, "error", err)
	}
	return at.encode(v, root)
}

// positionWait is how long a page of replies waits for its position.
const positionWait = time.Second

// conversationNow returns the present position. It begins to record what is not recorded.
func (s *Streams) conversationNow(ctx context.Context, v session.Viewer, root int64) (conversationMark, error) {
	m, err := s.recorded(ctx, v, root, conversationMark{})
	if err != nil {
		return conversationMark{}, err
	}
	return m.now, nil
}

// position returns the cursor to resume after for a client that has received everything sent so far.
func (c *Conversation) position() string { return c.at.encode(c.viewer, c.root) }

// Changes that are hidden from the viewer count, too. A cursor must not show their number: its marks can
// be read only by those who know the epochs, which are in Redis.
const (
	nonceSize  = 8
	sealedSize = 16 // a check of the epoch, and the offset
)

// encode returns the text of the position.
func (m conversationMark) encode(v session.Viewer, root int64) string {
	tail := make([]byte, nonceSize, nonceSize+2*sealedSize)
	_, _ = rand.Read(tail) // never fails
	nonce := tail[:nonceSize]
	tail = append(tail, seal(m.posts, nonce, 'p')...)
	tail = append(tail, seal(m.relations, nonce, 'r')...)
	return paging.Cursor{ID: root, Tail: string(tail)}.Encode(paging.ConversationEvents, v.ID)
}

// decodePosition parses a position. A mark of an epoch other than the present one is zero. Error:
// BadInput.
func decodePosition(text string, v session.Viewer, root int64, now conversationMark) (m conversationMark, err error) {
	cursor, err := paging.Decode(text, paging.ConversationEvents, v.ID)
	if err != nil {
		return m, err
	}
	if cursor.ID != root {
		return m, paging.ErrOtherList
	}
	if len(cursor.Tail) != nonceSize+2*sealedSize {
		return m, paging.ErrNotACursor
	}
	tail := []byte(cursor.Tail)
	nonce, posts, relations := tail[:nonceSize], tail[nonceSize:nonceSize+sealedSize], tail[nonceSize+sealedSize:]
	return conversationMark{unseal(posts, now.posts.Epoch, nonce, 'p'), unseal(relations, now.relations.Epoch, nonce, 'r')}, nil
}

// seal hides the mark from anybody who does not know its epoch.
func seal(m timeline.Mark, nonce []byte, which byte) []byte {
	b := mask(m.Epoch, nonce, which)
	offset := b[sealedSize/2:]
	binary.BigEndian.PutUint64(offset, binary.BigEndian.Uint64(offset)^uint64(m.Offset))
	return b
}

// unseal returns the sealed mark if it has the epoch, or none.
func unseal(sealed []byte, epoch string, nonce []byte, which byte) timeline.Mark {
	b := mask(epoch, nonce, which)
	if !hmac.Equal(b[:sealedSize/2], sealed[:sealedSize/2]) {
		return timeline.Mark{}
	}
	offset := binary.BigEndian.Uint64(b[sealedSize/2:]) ^ binary.BigEndian.Uint64(sealed[sealedSize/2:])
	return timeline.Mark{Epoch: epoch, Offset: int64(offset)}
}

// mask returns sealedSize bytes that nobody can compute without the epoch.
func mask(epoch string, nonce []byte, which byte) []byte {
	h := hmac.New(sha256.New, []byte(epoch))
	h.Write(append([]byte{which}, nonce...))
	return h.Sum(nil)[:sealedSize]
}
