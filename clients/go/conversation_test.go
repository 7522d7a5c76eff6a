package tideline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	tideline "tideline/clients/go"
)

// The server's timeline stands for the replies to the post "subject", which replies to "root".

// nodeOf returns a post of a conversation in JSON.
func nodeOf(id, text, author string, at float64, replyTo any) map[string]any {
	return map[string]any{
		"id": id, "text": text, "author": map[string]any{"id": author}, "replyTo": replyTo,
		"createdAt": time.UnixMilli(int64(at * 1e6)).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

func replyOf(e entry) map[string]any {
	return nodeOf(e.ID, e.Post.Text, e.AuthorID, e.Score, map[string]any{"id": "subject"})
}

// replies returns the replies in an order.
func (s *server) replies(order string) []entry {
	all := s.sorted()
	if order == tideline.Oldest {
		slices.Reverse(all)
	}
	return all
}

// middle returns a post between the root and the subject.
func middle() map[string]any {
	return nodeOf("middle", "an answer", "someone", 1.5, map[string]any{"id": "root"})
}

func (s *server) conversation(order string, first int, after *string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	if s.gone {
		return map[string]any{"post": nil}
	}
	edges, more, end := []any{}, false, any(nil)
	for _, e := range s.replies(order) {
		if after != nil && (compare(e.Cursor, *after) == 0 || (compare(e.Cursor, *after) < 0) == (order == tideline.Oldest)) {
			continue
		}
		if more = len(edges) == first; more {
			break
		}
		edges, end = append(edges, map[string]any{"cursor": e.Cursor, "node": replyOf(e)}), e.Cursor
	}
	post := nodeOf("subject", "what do you say?", "someone", 2, map[string]any{"id": "root"})
	ancestors := []any{nodeOf("root", "a question", "someone", 1, nil)}
	if s.hasMiddle {
		ancestors = append(ancestors, middle())
	}
	post["ancestors"] = ancestors
	post["replies"] = map[string]any{
		"position": s.position(len(s.log)), "edges": edges, "pageInfo": map[string]any{"hasNextPage": more, "endCursor": end},
	}
	return map[string]any{"post": post}
}

// asConversation turns an event of the timeline into the event of the conversation.
func (s *server) asConversation(event map[string]any) map[string]any {
	as := map[string]any{"__typename": strings.Replace(event["__typename"].(string), "Timeline", "Conversation", 1)}
	for _, field := range []string{"position", "postId", "reason", "post"} {
		if event[field] != nil {
			as[field] = event[field]
		}
	}
	if edge, ok := event["edge"].(map[string]any); ok {
		id := edge["node"].(map[string]any)["id"].(string)
		text := edge["node"].(map[string]any)["text"].(string)
		author := edge["node"].(map[string]any)["author"].(map[string]any)["id"].(string)
		as["post"] = nodeOf(id, text, author, edge["score"].(float64), map[string]any{"id": "subject"})
	}
	return as
}

type conversation = tideline.Conversation[post]

// follow starts a conversation. end stops it and returns the result of Run.
func follow(t *testing.T, s *server, options tideline.ConversationOptions[post]) (c *conversation, end func() error) {
	options.Fields = "id text"
	if options.Backoff == nil {
		options.Backoff = func(n int) time.Duration { return time.Duration(n+1) * time.Second }
	}
	c = tideline.NewConversation(s.client(), "subject", options)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	synctest.Wait()
	return c, func() error {
		cancel()
		return <-ran
	}
}

func said(entries []tideline.Entry[post]) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Post.Text)
	}
	return strings.Join(all, ", ")
}

func TestAConversationIsReadAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		c, end := follow(t, s, tideline.ConversationOptions[post]{PageSize: 2})
		now := c.Snapshot()
		require.Equal(t, "subject", now.Post.ID)
		require.Equal(t, "a question", said(now.Ancestors))
		require.Equal(t, "post 1, post 2", said(now.Replies))
		require.True(t, now.More && now.Live)
		require.NoError(t, c.ReadNext(t.Context()))
		require.NoError(t, c.ReadNext(t.Context()))
		s.locked(func() {
			s.enter(s.newEntry(5000, "someone"))
			s.remove("post 2")
			e := s.timeline["post 3"]
			e.Post.Text = "edited"
			s.timeline[e.ID] = e
			s.happened(change{kind: tideline.PostUpdated, id: e.ID})
		})
		synctest.Wait()
		require.Equal(t, "post 1, edited, post 4, post 5, post 6", said(c.Snapshot().Replies))

		// It resumes after the newest event.
		s.cut(1012)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "0/8", s.opened[len(s.opened)-1])
		require.ErrorIs(t, end(), context.Canceled)
	})
}

// A conversation has no heartbeats. The server's pings show that the connection works.
func TestSilenceEndsTheConnectionOfAConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		c, end := follow(t, s, tideline.ConversationOptions[post]{})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, c.Snapshot().Live)
		require.Len(t, s.opened, 1, "pings keep it")
		s.locked(func() { s.mute = true })
		s.locked(s.post)
		time.Sleep(50 * time.Second) // the last ping was just before
		synctest.Wait()
		require.ErrorContains(t, c.Snapshot().Err, "1006 the server was silent")
		s.locked(func() { s.mute = false })
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, s.opened, 2)
		require.Equal(t, "post 1, post 2, post 3, post 4, post 5, post 6", said(c.Snapshot().Replies))
		require.ErrorIs(t, end(), context.Canceled)
	})
}

// A connection without events that lasted for a while is not a failure, and the delay of a stopping server
// counts after it.
func TestAQuietConversationComesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		c, end := follow(t, s, tideline.ConversationOptions[post]{})
		for range 3 {
			time.Sleep(time.Minute)
			s.cutFor(1012, "reconnect in 10000ms")
			time.Sleep(10*time.Second - time.Millisecond)
			synctest.Wait()
			require.False(t, c.Snapshot().Live)
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
			require.True(t, c.Snapshot().Live)
		}
		require.ErrorIs(t, end(), context.Canceled)
	})
}

// Events about replies to other posts change no reply, and events about the posts around the list change these.
func TestEventsOfOtherPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		var seen []string
		c, _ := follow(t, s, tideline.ConversationOptions[post]{OnEvent: func(e tideline.ConversationEvent[post]) {
			seen = append(seen, e.Kind+" "+e.Post.ID+" "+e.ReplyTo)
		}})
		s.locked(func() {
			s.tellNext(
				map[string]any{"__typename": "TimelinePostAdded", "position": "0/6", "post": nodeOf("deep", "deep", "someone", 9, map[string]any{"id": "post 1"})},
				map[string]any{"__typename": "TimelinePostUpdated", "position": "0/7", "post": nodeOf("subject", "what now?", "someone", 2, map[string]any{"id": "root"})},
				map[string]any{"__typename": "TimelineSomething", "position": "0/8"},
			)
		})
		synctest.Wait()
		now := c.Snapshot()
		require.Equal(t, "what now?", now.Post.Post.Text)
		require.Equal(t, "post 1, post 2, post 3, post 4, post 5", said(now.Replies))
		require.Equal(t, []string{"ConversationPostAdded deep post 1", "ConversationPostUpdated subject root", "ConversationSomething  "}, seen)
	})
}

// An ancestor is hidden, which an event or only a read tells, and shown again.
func TestAHiddenAncestorComesBack(t *testing.T) {
	for what, hide := range map[string]func(*server){
		"told": func(s *server) {
			s.tellNext(map[string]any{"__typename": "TimelinePostRemoved", "position": "0/6", "postId": "middle"})
		},
		"not told": func(s *server) { s.happened(change{kind: tideline.Invalidated}) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFive(1)
				defer s.close()
				s.hasMiddle = true
				c, end := follow(t, s, tideline.ConversationOptions[post]{})
				require.Equal(t, "a question, an answer", said(c.Snapshot().Ancestors))
				s.locked(func() {
					s.hasMiddle = false
					hide(s)
				})
				synctest.Wait()
				require.Equal(t, "a question", said(c.Snapshot().Ancestors))
				s.locked(func() {
					s.hasMiddle = true
					s.tellNext(map[string]any{"__typename": "TimelinePostAdded", "position": "0/7", "post": middle()})
				})
				synctest.Wait()
				require.Equal(t, "a question, an answer", said(c.Snapshot().Ancestors))
				require.True(t, c.Snapshot().Live)
				require.ErrorIs(t, end(), context.Canceled)
			})
		})
	}
}

// Without its post a conversation is not found, and Run returns.
func TestAConversationEndsWithItsPost(t *testing.T) {
	for what, end := range map[string]func(*server){
		"told": func(s *server) {
			s.tellNext(map[string]any{"__typename": "TimelinePostRemoved", "position": "0/6", "postId": "subject"})
		},
		"not told": func(s *server) { s.happened(change{kind: tideline.Invalidated}) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFive(1)
				defer s.close()
				c, ended := follow(t, s, tideline.ConversationOptions[post]{})
				s.locked(func() {
					s.gone = true
					end(s)
				})
				synctest.Wait()
				now := c.Snapshot()
				require.Nil(t, now.Post)
				require.Empty(t, now.Replies)
				require.ErrorIs(t, now.Err, tideline.ErrNotFound)
				require.ErrorIs(t, ended(), tideline.ErrNotFound)
			})
		})
	}
}

// A post may vanish while nothing is connected.
func TestAConversationWhosePostVanishedIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		_, end := follow(t, s, tideline.ConversationOptions[post]{})
		s.locked(func() { s.gone = true })
		s.cut(1012)
		time.Sleep(time.Minute)
		require.ErrorIs(t, end(), tideline.ErrNotFound)
		require.Len(t, s.opened, 2)
	})
}

// A post may also vanish before a further page is read.
func TestAPostVanishesBetweenPages(t *testing.T) {
	for what, at := range map[string]struct {
		pages int // read before it vanishes
		read  func(*conversation, context.Context) error
	}{
		"ReadNext": {1, func(c *conversation, ctx context.Context) error { return c.ReadNext(ctx) }},
		"Read": {3, func(c *conversation, ctx context.Context) error {
			return errors.Join(c.ReadNext(ctx), c.Read(ctx))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFive(1)
				defer s.close()
				c, end := follow(t, s, tideline.ConversationOptions[post]{PageSize: 2})
				s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s.locked(func() { s.gone = s.pages == at.pages })
					s.answer(w, r)
				})
				require.ErrorIs(t, at.read(c, t.Context()), tideline.ErrNotFound)
				now := c.Snapshot()
				require.Nil(t, now.Post)
				require.Empty(t, now.Replies)
				require.False(t, now.Live)
				require.ErrorIs(t, end(), context.Canceled)
			})
		})
	}
}

func TestOwnReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		c, _ := follow(t, s, tideline.ConversationOptions[post]{PageSize: 2})
		s.locked(func() { s.refusing = []refusal{{status: http.StatusOK, code: "FORBIDDEN"}} })
		_, err := c.Reply(t.Context(), "no", nil)
		require.Equal(t, "FORBIDDEN", tideline.CodeOf(err))
		require.Equal(t, "post 1, post 2", said(c.Snapshot().Replies))

		// It is shown at once, and once, although the pages above it were not read.
		reply, err := c.Reply(t.Context(), "mine", map[string]any{"visibility": "FOLLOWERS"})
		require.NoError(t, err)
		require.Equal(t, "mine", reply.Post.Text)
		require.Equal(t, "post 1, post 2, mine", said(c.Snapshot().Replies))
		synctest.Wait()
		require.NoError(t, c.ReadNext(t.Context()))
		require.Equal(t, "post 1, post 2, post 3, post 4, mine", said(c.Snapshot().Replies))
	})
}

// In the order of the server, replies that come later are put in front until the list is read again.
func TestTopReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		c, _ := follow(t, s, tideline.ConversationOptions[post]{Order: tideline.Top, PageSize: 3})
		s.locked(func() { s.enter(s.late()) })
		synctest.Wait()
		require.Equal(t, "post 6, post 5, post 4, post 3", said(c.Snapshot().Replies))
	})
}

// After any history, a client shows the replies that the server has, in their order and each once.
func TestWhatIsHeldIsTheConversation(t *testing.T) {
	possible := slices.DeleteFunc(slices.Clone(steps), func(step string) bool {
		return slices.Contains([]string{"reborn", "mark", "slow", "upgrade"}, step)
	})
	possible = append(possible, "reply")
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		h.steps = rapid.SliceOfN(rapid.SampledFrom(possible), 0, 80).Draw(rt, "steps of the conversation")
		order := rapid.SampledFrom([]string{tideline.Oldest, tideline.Newest}).Draw(rt, "order")
		var err error
		synctest.Test(t, func(t *testing.T) { err = converse(t, h, order) })
		if err != nil {
			rt.Fatalf("%v", err)
		}
	})
}

func converse(t *testing.T, h history, order string) (err error) {
	s := newServer(h.seed)
	defer s.close()
	s.lag = h.lag
	for range h.posts {
		s.post()
	}
	client := s.client()
	client.Token = func(_ context.Context, refused string) (token string, err error) {
		s.locked(func() { token = s.token })
		return token, nil
	}
	c := tideline.NewConversation(client, "subject", tideline.ConversationOptions[post]{Fields: "id text", Order: order, PageSize: 5, Most: 12})
	p := &player{server: s, random: rand.New(rand.NewPCG(h.seed, 2))}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	check := func() {
		seen := map[string]bool{}
		replies := c.Snapshot().Replies
		for i, e := range replies {
			if seen[e.ID] || i > 0 && replies[i-1].Score < e.Score {
				err = errors.Join(err, fmt.Errorf("%s is shown twice or stands too low", e.ID))
			}
			seen[e.ID] = true
		}
	}
	for _, step := range h.steps {
		switch step {
		case "older":
			_ = c.ReadNext(ctx) // the server may refuse it
		case "read":
			_ = c.Read(ctx)
		case "reply":
			_, _ = c.Reply(ctx, "mine", nil)
		default:
			err = errors.Join(err, p.do(ctx, step))
		}
		check()
	}
	s.locked(func() { s.mute, s.refusing = false, nil })
	time.Sleep(2 * time.Minute) // synctest time, in which the client has come back and read again
	for c.Snapshot().More && err == nil {
		err = c.ReadNext(ctx)
	}
	check()
	var want, have []string
	s.locked(func() {
		for _, e := range s.replies(order) {
			want = append(want, e.ID+": "+e.Post.Text)
		}
	})
	now := c.Snapshot()
	for _, e := range now.Replies {
		have = append(have, e.ID+": "+e.Post.Text)
	}
	if !slices.Equal(want, have) || !now.Live || now.Post == nil {
		err = errors.Join(err, fmt.Errorf("live %v, %w, held is not the conversation:\n%v\n%v", now.Live, now.Err, have, want))
	}
	cancel()
	<-ran
	return err
}
