package feed

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"tideline/ent"
	"tideline/timeline"
)

// What a client has missed is what its timeline holds now and the client did not
// hold when it was given its cursor. A cursor therefore says what its client
// holds, in a form that stays small because posts fall into two kinds:
//
//   - A post in time is in the timeline, or told of, at most LateAfter after it was made.
//     Its id says when that was, so only those made within settled of the cursor
//     can be on their way still. Of these the cursor names the ones its client
//     holds; every other one that turns up was missed. All older ones are held.
//   - A late post is noted in the journal of the inbox, as is every post that is
//     taken out. The cursor carries the position up to which the notes are known.
//
// A client may have read a post in SQL before its fan-out came: while one is later
// than settled, what was made since it is named too, or it would be told again when
// it comes.
//
// So nothing depends on the order in which posts arrive, and nothing is kept for
// a client but the journal. It holds while the clocks of processes differ by less
// than what settled leaves beyond LateAfter, the time a silent connection to
// Redis takes to be noticed included.

const (
	// LateAfter is the age from which a post on its way to an inbox is late.
	LateAfter = 90 * time.Second
	// arrivalGrace is the age from which all posts that are not late have arrived.
	arrivalGrace = LateAfter + 30*time.Second
	// maxRecent is how many posts within settled a cursor can name. Of a timeline
	// that takes more in that time a client that resumes has to read again.
	maxRecent = 512
	// lookForLate is how often fan-outs that are later than settled are looked for,
	// and forgetLate how late one may be that is waited for: it may be one that fails
	// again and again.
	lookForLate = 5 * time.Second
	forgetLate  = 10 * time.Minute
)

// clientState is what a client is known to hold of its timeline.
type clientState struct {
	at     timeline.Position // notes up to here are known
	low    int64             // posts at or below are held, unless they came late
	recent []int64           // posts above low that are held, ascending
}

// settledBefore is the id below which no post that is not late is on its way.
func settledBefore(t time.Time) int64 {
	return max(t.Add(-arrivalGrace).Sub(idEpoch).Milliseconds(), 0) << timeShift
}

// settledID is settledBefore now, or before the oldest fan-out that is under way.
//
// Cost: none, and queue.Oldest every five seconds.
func (f *Feed) settledID(ctx context.Context) int64 {
	now := f.now()
	looked := f.lookedForLate.Load()
	if now.UnixMilli()-looked > lookForLate.Milliseconds() && f.lookedForLate.CompareAndSwap(looked, now.UnixMilli()) {
		oldest, err := f.queue.Oldest(ctx, PostCreated)
		switch {
		case err != nil:
			f.log.WarnContext(ctx, "late fan-outs not looked for", "error", err)
		case oldest.IsZero() || oldest.After(now):
			f.distributed.Store(now.UnixMilli())
		default:
			f.distributed.Store(oldest.UnixMilli())
		}
	}
	// A post is made a moment before its job.
	waits := time.UnixMilli(f.distributed.Load()).Add(LateAfter)
	return max(settledBefore(now.Add(-forgetLate)), min(settledBefore(now), settledBefore(waits)))
}

// journaledBefore is the id up to which a post that arrives may have been noted in
// the journal: by a clock that is ahead, too.
func journaledBefore(t time.Time) int64 { return settledBefore(t.Add(arrivalGrace - LateAfter/2)) }

// has reports whether the post is one of the recent.
func (h *clientState) has(id int64) bool {
	_, found := slices.BinarySearch(h.recent, id)
	return found
}

func (h *clientState) take(id int64) {
	if at, found := slices.BinarySearch(h.recent, id); !found {
		h.recent = slices.Insert(h.recent, at, id)
	}
}

func (h *clientState) drop(id int64) {
	if at, found := slices.BinarySearch(h.recent, id); found {
		h.recent = slices.Delete(h.recent, at, at+1)
	}
}

// advance lifts low, and forgets the posts below of which there are too many to
// remember: those above maxRecent.
func (h *clientState) advance(low int64) {
	h.low = max(h.low, low)
	if spare := len(h.recent) - maxRecent; spare > 0 {
		below, _ := slices.BinarySearch(h.recent, h.low+1)
		h.recent = slices.Delete(h.recent, 0, min(spare, below))
	}
}

// upTo is the holding of a client that holds nothing newer than the post.
func (h *clientState) upTo(id int64) clientState {
	end, _ := slices.BinarySearch(h.recent, id+1)
	return clientState{h.at, min(h.low, id), h.recent[:end]}
}

// tail is the holding as part of a cursor; empty when it does not fit: the
// client cannot resume without reading again.
//
//	epoch, position, low  uvarints
//	recent                uvarint distances, each from the post before, the first from low
func (h *clientState) tail() string {
	first, _ := slices.BinarySearch(h.recent, h.low+1)
	recent := h.recent[first:]
	if len(recent) > maxRecent || h.at.Epoch == 0 {
		return ""
	}
	b := make([]byte, 0, 128) // most fit, on the stack
	b = binary.AppendUvarint(b, uint64(h.at.Epoch))
	b = binary.AppendUvarint(b, uint64(h.at.Offset))
	b = binary.AppendUvarint(b, uint64(h.low))
	last := h.low
	for _, id := range recent {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return string(b)
}

// held is the holding in a cursor; ok is false when it does not tell.
func (c cursor) held() (h clientState, ok bool) {
	b := []byte(c.tail)
	next := func() (v int64) {
		u, n := binary.Uvarint(b)
		if n <= 0 || u > 1<<62 {
			b, ok = nil, false
			return 0
		}
		b = b[n:]
		return int64(u)
	}
	ok = true
	h.at = timeline.Position{Epoch: next(), Offset: next()}
	h.low = next()
	for last := h.low; ok && len(b) > 0; {
		last += next()
		h.recent = append(h.recent, last)
	}
	return h, ok
}

// cursor is the place of an entry in the viewer's timeline, for a client that
// holds this much.
func (h *clientState) cursor(v Viewer, id int64) string {
	return cursor{score: float64(id), id: id, tail: h.tail()}.encode(listLatest, v.ID)
}

// visit makes the user active and says where the journal of the inbox stands. An
// inbox that is missing begins here, so that all is noted from before the read
// that follows. When Redis does not answer, the read goes on in SQL, and the
// position is none.
func (f *Feed) visit(ctx context.Context, user int64) timeline.Position {
	k := f.inbox(user)
	at, err := f.tl.Visit(ctx, user)
	at = f.visited(ctx, &k, at, err)
	if k.begun != nil {
		f.buildSoon(k)
	}
	return at
}

// redisPatience is how long a page waits for Redis before SQL answers, at most: of
// its time, half.
const redisPatience = time.Second

func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	patience := redisPatience
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, patience)
}

// visitInbox is visit, and the source of the timeline for a page that begins with
// the range.
func (f *Feed) visitInbox(ctx context.Context, user int64, r timeline.Range) (timeline.Position, source) {
	k := f.inbox(user)
	list, unlisted := f.mergedAuthors(ctx)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := f.tl.VisitPage(patient, user, r)
	at = f.visited(patient, &k, at, err)
	if err != nil {
		f.cfg.Observe(false)
		return at, k.from
	}
	if unlisted == nil {
		k.known, k.part, k.merge = r, part, f.planFor(list)
	}
	return at, f.cached(k)
}

// visited is the position that a visit to the inbox told, or that of the build
// that it begins, which is for the caller to have done.
func (f *Feed) visited(ctx context.Context, inbox *cachedFeed, at timeline.Position, err error) timeline.Position {
	if err == nil && at.Epoch == 0 {
		var b timeline.Build
		var started bool
		if b, started, err = f.tl.Begin(ctx, inbox.key); started {
			inbox.begun = &b
			return b.Position()
		}
		if err == nil { // somebody else has just begun
			at, err = f.tl.Visit(ctx, inbox.user)
		}
	}
	if err != nil {
		f.log.WarnContext(ctx, "user not made active", "user", inbox.user, "error", err)
		return timeline.Position{}
	}
	return at
}

// clientStateOf is what there is to hold of the timeline from the highest of the
// posts, which are a part of it, downwards; all of it when there are none. More
// says whether there may be something below the lowest of them.
func (f *Feed) clientStateOf(ctx context.Context, v Viewer, at timeline.Position, posts []*ent.Post, more bool) (clientState, error) {
	h := clientState{at: at, low: f.settledID(ctx)}
	below := int64(0)
	for _, p := range posts {
		if p.ID > h.low {
			h.take(p.ID)
		}
		if below == 0 || p.ID < below {
			below = p.ID
		}
	}
	if !more || at.Epoch == 0 || below != 0 && below <= h.low+1 {
		return h, nil
	}
	ids, told, err := f.recentIDs(ctx, v.ID, span{low: h.low, high: below}, below == 0)
	if !told {
		h.at = timeline.Position{}
	}
	for _, id := range ids {
		h.take(id)
	}
	return h, err
}

// recentIDs is the ids of those of the user's timeline in a span that the user may be
// shown, the newest of them, more than a cursor can name at the most: a cursor is
// plain to read. What an inbox holds and hides is told when it is shown, as is all
// that the client does not hold.
//
// Cost with an inbox: as a page of all these posts, so one round trip, and a query
// when there are any. Without one a page does not wait for that: told is false
// unless it must be, and the client cannot resume from it.
func (f *Feed) recentIDs(ctx context.Context, user int64, s span, must bool) (ids []int64, told bool, err error) {
	k := f.inbox(user)
	list, err := f.mergedAuthors(ctx) // before the inbox is read: see companyOf
	if err != nil {
		return nil, false, err
	}
	r := s.first(maxRecent + 1)
	held, covered, err := f.tl.Page(ctx, k.key, r)
	if err == nil {
		if covered.State != timeline.Ready && !must {
			return nil, false, nil
		}
		k.known, k.part, k.merge = r, timeline.Part{IDs: held, Coverage: covered}, f.planFor(list)
	}
	posts, err := f.fill(ctx, HomeTimeline, user, maxRecent+1, s, f.cached(k))
	return idsOf(posts), true, err
}

// Entry is the post as an entry of the viewer's timeline in the order Latest,
// for a client that holds the timeline from there downwards.
func (f *Feed) Entry(ctx context.Context, v Viewer, p *ent.Post) (Edge[ent.Post], error) {
	at := f.visit(ctx, v.ID)
	h, err := f.clientStateOf(ctx, v, at, []*ent.Post{p}, true)
	return f.entry(v, p, h.upTo(p.ID)), err
}

func (f *Feed) entry(v Viewer, p *ent.Post, h clientState) Edge[ent.Post] {
	return Edge[ent.Post]{Cursor: h.cursor(v, p.ID), Score: float64(p.ID), Node: p}
}
