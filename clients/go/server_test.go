package tideline_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	tideline "tideline/clients/go"
)

const viewer = "me"

type (
	// post has the fields of a post that the tests select.
	post  struct{ ID, Text string }
	entry = tideline.Entry[post]
)

// change is a change of the server's timeline: the post with the id was added, edited or removed. Without an
// id, the timeline must be read again. A change with an event is told as that event.
type change struct {
	kind, id string
	event    map[string]any
}

// server is an in-memory model of a Tideline server for one user: a timeline and a log of its changes. A
// position is an index in the log. It is served over pipes, so that synctest controls its time.
type server struct {
	mu       sync.Mutex
	random   *rand.Rand
	timeline map[string]entry
	hidden   []entry
	log      []change
	kept     int // entries of the log before this index are lost
	database int // positions of other databases are refused
	clock    float64
	ids      int
	mark     float64
	lateBy   int           // delay of deliveries in seconds, as heartbeats report it
	grown    chan struct{} // closed when the log grows

	token     string
	lag       time.Duration // the largest delay of a page or an event in each direction
	mute      bool          // sockets stay open and send nothing
	refusing  []refusal     // refusals for the next requests and subscriptions
	sockets   map[*websocket.Conn]bool
	pages     int  // pages read so far
	empty     bool // first pages are empty and have a next page
	opened    []string
	gone      bool // the post whose replies the timeline stands for does not exist
	hasMiddle bool // the post between it and the root is visible

	accepting chan net.Conn
	closed    chan struct{}
	http      *http.Server
}

// refusal is an answer that refuses a request: with a status or a close code, and an error code.
type refusal struct {
	status, close int
	code          string
	after         int // seconds
}

func newServer(seed uint64) *server {
	s := &server{
		random: rand.New(rand.NewPCG(seed, 1)), timeline: map[string]entry{}, clock: 1000, grown: make(chan struct{}),
		token: "good", sockets: map[*websocket.Conn]bool{}, accepting: make(chan net.Conn), closed: make(chan struct{}),
	}
	s.http = &http.Server{Handler: http.HandlerFunc(s.answer)}
	go func() { _ = s.http.Serve(listener{s}) }() // until close
	return s
}

func (s *server) close() {
	s.cut(0)
	_ = s.http.Close()
	time.Sleep(time.Minute) // synctest time, in which pausing goroutines end
}

// client returns a client of the server.
func (s *server) client() *tideline.Client {
	return &tideline.Client{
		URL: "http://tideline.test/graphql", Token: tideline.Fixed("good"),
		HTTP: &http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}},
	}
}

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.accepting <- ours:
		return theirs, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listener accepts the connections of the server's clients.
type listener struct{ *server }

func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepting:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l listener) Close() error   { close(l.closed); return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// ---- Changes

func (s *server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *server) happened(c change) {
	s.log = append(s.log, c)
	close(s.grown)
	s.grown = make(chan struct{})
}

// tellNext sends events with positions that a test has chosen.
func (s *server) tellNext(events ...map[string]any) {
	for _, event := range events {
		s.happened(change{event: event})
	}
}

func (s *server) newEntry(score float64, author string) entry {
	s.ids++
	id := fmt.Sprint("post ", s.ids)
	return entry{Cursor: fmt.Sprintf("%v/%d", score, s.ids), Score: score, ID: id, AuthorID: author, Post: post{id, id}}
}

func (s *server) enter(e entry) {
	s.timeline[e.ID] = e
	s.happened(change{kind: tideline.PostAdded, id: e.ID})
}

func (s *server) post() {
	author := "someone"
	if s.random.IntN(5) == 0 {
		author = viewer
	}
	s.clock += 1 + float64(s.random.IntN(3))
	s.enter(s.newEntry(s.clock, author))
}

// late returns an entry with an old score. No two entries have the same score.
func (s *server) late() entry {
	return s.newEntry(s.clock-float64(s.random.IntN(40))-0.5-float64(s.ids)/1e6, "someone")
}

func (s *server) any() (e entry, ok bool) {
	if len(s.timeline) == 0 {
		return e, false
	}
	all := s.sorted()
	return all[s.random.IntN(len(all))], true
}

func (s *server) hide() {
	if e, ok := s.any(); ok {
		s.remove(e.ID)
	}
}

func (s *server) remove(id string) {
	s.hidden = append(s.hidden, s.timeline[id])
	delete(s.timeline, id)
	s.happened(change{kind: tideline.PostRemoved, id: id})
}

func (s *server) show() {
	if len(s.hidden) > 0 {
		at := s.random.IntN(len(s.hidden))
		e := s.hidden[at]
		s.hidden = slices.Delete(s.hidden, at, at+1)
		s.enter(e)
	}
}

func (s *server) edit() {
	if e, ok := s.any(); ok {
		e.Post.Text = fmt.Sprint("edited ", len(s.log))
		s.timeline[e.ID] = e
		s.happened(change{kind: tideline.PostUpdated, id: e.ID})
	}
}

// invalidate models a block or an unfollow: some entries leave, some are added, and no event names them.
func (s *server) invalidate() {
	for _, e := range s.sorted() {
		if s.random.IntN(5) == 0 {
			delete(s.timeline, e.ID)
		}
	}
	for range s.random.IntN(4) {
		e := s.late()
		s.timeline[e.ID] = e
	}
	s.happened(change{kind: tideline.Invalidated})
}

// forget loses the log, as when Redis is wiped.
func (s *server) forget() { s.kept = len(s.log) }

// cut closes all sockets, with a close code, or without a close frame if it is 0.
func (s *server) cut(code int) { s.cutFor(code, "") }

// cutFor is cut with a reason.
func (s *server) cutFor(code int, reason string) {
	var conns []*websocket.Conn
	s.locked(func() {
		conns = slices.Collect(maps.Keys(s.sockets))
		clear(s.sockets)
	})
	for _, conn := range conns {
		if code != 0 {
			goodbye(conn, code, reason)
		}
		conn.Close()
	}
}

func goodbye(conn *websocket.Conn, code int, reason string) {
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second)) // the connection may be closed
}

// ---- Answers

func (s *server) sorted() []entry {
	all := make([]entry, 0, len(s.timeline))
	for _, e := range s.timeline {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return compare(b.Cursor, a.Cursor) })
	return all
}

// compare compares cursors: a score, and the number of a post.
func compare(a, b string) int {
	var scoreA, scoreB float64
	var idA, idB int
	_, errA := fmt.Sscanf(a, "%v/%d", &scoreA, &idA)
	_, errB := fmt.Sscanf(b, "%v/%d", &scoreB, &idB)
	if err := errors.Join(errA, errB); err != nil {
		panic(err)
	}
	return cmp.Or(cmp.Compare(scoreA, scoreB), cmp.Compare(idA, idB))
}

// enterFour adds four posts with the same score.
func (s *server) enterFour() {
	for range 4 {
		s.enter(s.newEntry(10, "someone"))
	}
}

func (s *server) unread() (n int) {
	for _, e := range s.timeline {
		if e.Score > s.mark && e.AuthorID != viewer {
			n++
		}
	}
	return n
}

func (s *server) position(at int) string { return fmt.Sprintf("%d/%d", s.database, at) }

func edgeOf(e entry) map[string]any {
	return map[string]any{"cursor": e.Cursor, "score": e.Score, "node": map[string]any{
		"id": e.ID, "text": e.Post.Text, "author": map[string]any{"id": e.AuthorID},
	}}
}

func (s *server) page(first int, after *string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	edges, more, end := []any{}, false, any(nil)
	for _, e := range s.sorted() {
		if s.empty && after == nil {
			more, end = true, fmt.Sprintf("%v/0", e.Score+1)
			break
		}
		if after != nil && compare(e.Cursor, *after) >= 0 {
			continue
		}
		if more = len(edges) == first; more {
			break
		}
		edges, end = append(edges, edgeOf(e)), e.Cursor
	}
	return map[string]any{"viewer": map[string]any{"id": viewer}, "timeline": map[string]any{
		"position": s.position(len(s.log)), "unreadCount": s.unread(), "edges": edges,
		"pageInfo": map[string]any{"hasNextPage": more, "endCursor": end},
	}}
}

// tell returns the next event of a stream that has sent everything before the position from, if there is one.
func (s *server) tell(from int) (event map[string]any, at int) {
	if from < s.kept {
		return map[string]any{"__typename": tideline.Invalidated, "position": s.position(len(s.log)), "reason": "forgotten"}, len(s.log)
	}
	for ; from < len(s.log); from++ {
		c := s.log[from]
		if c.event != nil {
			return c.event, from + 1
		}
		event := map[string]any{"__typename": c.kind, "position": s.position(from + 1)}
		e, there := s.timeline[c.id]
		switch {
		case c.kind == tideline.PostRemoved:
			event["postId"], event["removal"] = c.id, "NOT_VISIBLE"
		case c.kind == tideline.Invalidated:
			event["reason"] = "a block"
		case !there: // posts that can no longer be seen are not sent
			continue
		default:
			event["edge"] = edgeOf(e)
		}
		return event, from + 1
	}
	return nil, from
}

func (s *server) pause() {
	s.mu.Lock()
	wait := time.Duration(s.random.Int64N(int64(s.lag) + 1))
	s.mu.Unlock()
	time.Sleep(wait)
}

// refused takes the next refusal if it is of the requested kind: one with a status if byStatus
// is set, otherwise one for a socket.
func (s *server) refused(byStatus bool) (r refusal, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refusing) == 0 || byStatus != (s.refusing[0].status != 0) {
		return r, false
	}
	r, s.refusing = s.refusing[0], s.refusing[1:]
	return r, true
}

// knows reports whether the token is the current one. A step may change it at any time.
func (s *server) knows(authorization string) (known bool) {
	s.locked(func() { known = authorization == "Bearer "+s.token })
	return known
}

func errorsOf(r refusal) []any {
	return []any{map[string]any{"message": "no", "extensions": map[string]any{"code": r.code, "reason": "WHY", "retryAfter": r.after}}}
}

// ---- Requests

type operation struct {
	Query     string
	Variables struct {
		First     int
		After     *string
		Heartbeat int
		Order     string
		Input     struct{ UpTo, Text, ReplyTo string }
	}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		s.socket(w, r)
		return
	}
	s.pause()
	defer s.pause()
	if no, ok := s.refused(true); ok {
		if no.after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(no.after))
		}
		w.WriteHeader(no.status)
		if no.code != "" {
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": errorsOf(no)})
		}
		return
	}
	var what operation
	_ = json.NewDecoder(r.Body).Decode(&what)
	if !s.knows(r.Header.Get("Authorization")) {
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": errorsOf(refusal{code: "UNAUTHENTICATED"})})
		return
	}
	var data any
	switch {
	case strings.HasPrefix(what.Query, "query Timeline"):
		data = s.page(what.Variables.First, what.Variables.After)
	case strings.HasPrefix(what.Query, "mutation MarkRead"):
		s.locked(func() {
			_, _ = fmt.Sscanf(what.Variables.Input.UpTo, "%v/", &s.mark)
			data = map[string]any{"markTimelineRead": map[string]any{"unreadCount": s.unread()}}
		})
	case strings.HasPrefix(what.Query, "query Conversation"):
		data = s.conversation(what.Variables.Order, what.Variables.First, what.Variables.After)
	case strings.HasPrefix(what.Query, "mutation Reply"):
		s.locked(func() {
			s.clock += 1 + float64(s.random.IntN(3))
			e := s.newEntry(s.clock, viewer)
			e.Post.Text = what.Variables.Input.Text
			s.enter(e)
			data = map[string]any{"createPost": map[string]any{"post": replyOf(e)}}
		})
	default:
		data = map[string]any{"echo": what.Query}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

func (s *server) socket(w http.ResponseWriter, r *http.Request) {
	if no, ok := s.refused(true); ok {
		w.Header().Set("Retry-After", strconv.Itoa(no.after))
		w.WriteHeader(no.status)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{"graphql-transport-ws"}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	var hello, start message
	var who struct{ Authorization string }
	if conn.ReadJSON(&hello) != nil {
		return
	}
	_ = json.Unmarshal(hello.Payload, &who)
	if !s.knows(who.Authorization) {
		goodbye(conn, 4403, "")
		return
	}
	var what operation
	if conn.WriteJSON(message{Type: "ping"}) != nil || conn.ReadJSON(&hello) != nil || hello.Type != "pong" ||
		conn.WriteJSON(message{Type: "connection_ack"}) != nil || conn.ReadJSON(&start) != nil || json.Unmarshal(start.Payload, &what) != nil {
		return
	}
	var at int
	s.locked(func() {
		s.sockets[conn] = true
		s.opened = append(s.opened, *what.Variables.After)
		var database int
		if s.gone {
			s.refusing = []refusal{{code: "NOT_FOUND"}}
		}
		if _, err := fmt.Sscanf(*what.Variables.After, "%d/%d", &database, &at); err != nil || database != s.database {
			s.refusing = []refusal{{code: "BAD_USER_INPUT"}}
		}
	})
	if no, ok := s.refused(false); ok {
		if no.close != 0 {
			goodbye(conn, no.close, "")
			return
		}
		payload, _ := json.Marshal(errorsOf(no))
		_ = conn.WriteJSON(message{"1", "error", payload})
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for conn.ReadJSON(&hello) == nil {
			continue
		}
	}()
	conversation := strings.Contains(what.Query, "conversationEvents")
	heartbeat := time.Duration(what.Variables.Heartbeat) * time.Second
	if conversation {
		heartbeat = 1e6 * time.Hour
	}
	s.stream(conn, gone, at, heartbeat, conversation)
	conn.Close()
	<-gone
}

// stream sends events until the connection is gone. Each event is delayed for a random time.
func (s *server) stream(conn *websocket.Conn, gone chan struct{}, at int, heartbeat time.Duration, conversation bool) {
	wire, written := make(chan map[string]any, 1000), make(chan struct{}) // nil in wire is a ping
	go func() {
		defer close(written)
		for event := range wire {
			m := message{Type: "ping"}
			if event != nil {
				s.pause()
				data := map[string]any{"timelineEvents": event}
				if conversation {
					data = map[string]any{"conversationEvents": s.asConversation(event)}
				}
				payload, _ := json.Marshal(map[string]any{"data": data})
				m = message{"1", "next", payload}
			}
			if conn.WriteJSON(m) != nil {
				return
			}
		}
	}()
	defer func() { close(wire); <-written }()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	pings := time.NewTicker(20 * time.Second)
	defer pings.Stop()
	for {
		var event map[string]any
		var grown chan struct{}
		s.locked(func() {
			if grown = s.grown; s.mute {
				return
			}
			event, at = s.tell(at)
			if event != nil && event["__typename"] == tideline.PostRemoved && s.random.IntN(5) == 0 {
				wire <- event // a removal may be sent twice
			}
		})
		if event != nil {
			wire <- event
			continue
		}
		select {
		case <-grown:
		case <-beat.C:
			s.locked(func() {
				if !s.mute {
					wire <- map[string]any{"__typename": tideline.Heartbeat, "position": s.position(at), "unreadCount": s.unread(), "lateBy": s.lateBy}
				}
			})
		case <-pings.C:
			s.locked(func() {
				if !s.mute {
					wire <- nil
				}
			})
		case <-gone:
			return
		case <-written:
			return
		}
	}
}
