package tideline_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
)

// run starts a timeline with a server of five posts. end stops it and returns the result of Run.
func run(t *testing.T, s *server, options tideline.Options[post]) (timeline *tideline.Timeline[post], end func() error) {
	options.Fields = "id text"
	if options.Backoff == nil {
		options.Backoff = func(n int) time.Duration { return time.Duration(n+1) * time.Second }
	}
	timeline = tideline.NewTimeline(s.client(), options)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- timeline.Run(ctx) }()
	synctest.Wait()
	return timeline, func() error {
		cancel()
		return <-ran
	}
}

func withFive(seed uint64) *server {
	s := newServer(seed)
	for range 5 {
		s.post()
	}
	return s
}

// texts returns the texts that the timeline shows.
func texts(t *tideline.Timeline[post]) string {
	var all []string
	for _, e := range t.Snapshot().Entries {
		all = append(all, e.Post.Text)
	}
	return strings.Join(all, ", ")
}

// The way in which a connection ends determines whether and when the client reconnects.
func TestComesBackInTime(t *testing.T) {
	again := func(after time.Duration) *time.Duration { return &after }
	for what, at := range map[string]struct {
		close   int
		reason  string
		refuse  []refusal // refusals of the following attempts
		after   *time.Duration
		within  time.Duration // tolerance after that
		because string
	}{
		"the server restarts":           {close: 1012, after: again(time.Second)},
		"it says when":                  {close: 1012, reason: "reconnect in 3200ms", after: again(3200 * time.Millisecond), within: 320 * time.Millisecond},
		"now":                           {close: 1012, reason: "reconnect in 0ms", after: again(0)},
		"it says when, and is away":     {close: 1012, reason: "reconnect in 3000ms", refuse: []refusal{{close: 1012}}, after: again(5 * time.Second), within: 300 * time.Millisecond},
		"too late":                      {close: 1012, reason: "reconnect in 60001ms", after: again(time.Second)},
		"in other words":                {close: 1012, reason: "reconnect in -1ms", after: again(time.Second)},
		"the server restarts for long":  {close: 1012, refuse: []refusal{{close: 1012}, {close: 1012}}, after: again(time.Second + 2*time.Second + 3*time.Second)},
		"not now":                       {close: 1013, after: again(time.Second)},
		"not for a while":               {close: 1013, refuse: []refusal{{close: 1013}, {status: http.StatusServiceUnavailable}}, after: again(6 * time.Second)},
		"no proxy has it":               {close: 1001, refuse: []refusal{{status: http.StatusNotFound}}, after: again(3 * time.Second)},
		"the line broke":                {after: again(time.Second)},
		"the session ended":             {close: 4403, after: again(time.Second)},
		"nothing was said":              {close: 4408, after: again(time.Second)},
		"too much was asked":            {refuse: []refusal{{code: "RATE_LIMITED", after: 30}}, after: again(time.Second + 32*time.Second)},
		"too many connect":              {refuse: []refusal{{status: http.StatusServiceUnavailable, after: 10}}, after: again(time.Second + 12*time.Second)},
		"it lacks something":            {refuse: []refusal{{code: "UNAVAILABLE", after: 10}}, after: again(time.Second + 12*time.Second)},
		"it failed":                     {refuse: []refusal{{code: "INTERNAL"}}, after: again(3 * time.Second)},
		"too large":                     {close: 1009, because: "1009"},
		"no message of the protocol":    {close: 4400, because: "4400"},
		"too early":                     {close: 4401, because: "4401"},
		"another protocol":              {close: 4406, because: "4406"},
		"two of an id":                  {close: 4409, because: "4409"},
		"connection_init came twice":    {close: 4429, because: "4429"},
		"the account is suspended":      {refuse: []refusal{{code: "FORBIDDEN"}}, because: "FORBIDDEN"},
		"the document is not trusted":   {refuse: []refusal{{code: "DOCUMENT_NOT_TRUSTED"}}, because: "DOCUMENT_NOT_TRUSTED"},
		"the fields are not the server": {refuse: []refusal{{code: "GRAPHQL_VALIDATION_FAILED"}}, because: "GRAPHQL_VALIDATION_FAILED"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFive(1)
				defer s.close()
				timeline, end := run(t, s, tideline.Options[post]{Heartbeat: time.Hour})
				s.locked(s.post)
				synctest.Wait()
				require.True(t, timeline.Snapshot().Live)
				s.locked(func() { s.refusing = at.refuse })
				began := time.Now()
				s.cutFor(at.close, at.reason)
				if at.after == nil {
					time.Sleep(time.Minute)
					snapshot := timeline.Snapshot()
					require.False(t, snapshot.Live)
					require.ErrorContains(t, snapshot.Err, at.because)
					require.Equal(t, snapshot.Err, end())
					return
				}
				if *at.after > 0 {
					time.Sleep(*at.after - time.Millisecond)
					synctest.Wait()
					require.False(t, timeline.Snapshot().Live)
				}
				for !timeline.Snapshot().Live {
					<-timeline.Changed()
				}
				took := time.Since(began)
				require.GreaterOrEqual(t, took, *at.after)
				require.LessOrEqual(t, took, *at.after+at.within)
				synctest.Wait()
				require.Equal(t, "0/5", s.opened[0])
				require.Equal(t, "0/6", s.opened[len(s.opened)-1], "it resumes where it was")
				require.Equal(t, 1, s.pages)
				require.ErrorIs(t, end(), context.Canceled)
			})
		})
	}
}

// If a server invalidates a timeline after each read, the client waits between reads.
func TestATimelineThatNeverRestsIsReadLaterEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline, end := run(t, s, tideline.Options[post]{Heartbeat: time.Hour})
		var waits []time.Duration
		invalidate := func() {
			pages, began := s.pages, time.Now()
			s.locked(s.invalidate)
			for synctest.Wait(); !timeline.Snapshot().Live; synctest.Wait() {
				<-timeline.Changed()
			}
			require.Equal(t, pages+1, s.pages)
			waits = append(waits, time.Since(began)/time.Second)
		}
		for range 6 {
			invalidate()
		}
		require.Equal(t, []time.Duration{0, 0, 1, 2, 3, 4}, waits)
		time.Sleep(time.Minute)
		waits = nil
		invalidate()
		require.Equal(t, []time.Duration{0}, waits)
		require.ErrorIs(t, end(), context.Canceled)
	})
}

func TestSilenceEndsAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline, end := run(t, s, tideline.Options[post]{Heartbeat: 10 * time.Second})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, s.opened, 1, "heartbeats keep it")
		s.locked(func() { s.mute = true })
		s.locked(s.post)
		time.Sleep(14 * time.Second) // the last heartbeat was just before
		require.Len(t, s.opened, 1)
		time.Sleep(11 * time.Second)
		s.locked(func() { s.mute = false })
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, s.opened, 2)
		require.Equal(t, "post 6, post 5, post 4, post 3, post 2, post 1", texts(timeline))
		require.ErrorIs(t, end(), context.Canceled)
	})
}

func TestOnlySoMuchIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline, end := run(t, s, tideline.Options[post]{PageSize: 2, Most: 3})
		require.Equal(t, "post 5, post 4", texts(timeline))
		for range 3 {
			s.locked(s.post)
		}
		synctest.Wait()
		require.Equal(t, "post 8, post 7, post 6", texts(timeline))
		require.NoError(t, timeline.ReadOlder(t.Context()))
		require.Equal(t, "post 8, post 7, post 6, post 5, post 4", texts(timeline), "what has left comes back")
		s.locked(s.post)
		synctest.Wait()
		require.Equal(t, "post 9, post 8, post 7, post 6, post 5", texts(timeline), "what was asked for is more than Most")
		require.NoError(t, timeline.ReadOlder(t.Context()))
		require.NoError(t, timeline.ReadOlder(t.Context()))
		require.NoError(t, timeline.ReadOlder(t.Context()))
		require.Equal(t, "post 9, post 8, post 7, post 6, post 5, post 4, post 3, post 2, post 1", texts(timeline))
		require.False(t, timeline.Snapshot().More)
		require.NoError(t, timeline.Read(t.Context()))
		require.Equal(t, "post 9, post 8, post 7, post 6", texts(timeline), "pages within Most are read again")
		require.ErrorIs(t, end(), context.Canceled)
	})
}

func TestAnotherProgramGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline, end := run(t, s, tideline.Options[post]{})
		saved := timeline.Save()
		require.ErrorIs(t, end(), context.Canceled)
		s.locked(s.post)
		s.locked(func() { s.remove("post 2") })
		s.locked(func() { s.pages = 0 })

		var events []string
		timeline, end = run(t, s, tideline.Options[post]{Saved: &saved, OnEvent: func(e tideline.Event[post]) {
			events = append(events, fmt.Sprintf("%s %s %s", e.Kind, e.Entry.ID, e.Reason))
		}})
		require.Equal(t, "post 6, post 5, post 4, post 3, post 1", texts(timeline))
		require.Equal(t, []string{"TimelinePostAdded post 6 ", "TimelinePostRemoved post 2 NOT_VISIBLE"}, slices.Compact(events))
		require.Zero(t, s.pages, "nothing is read")
		require.ErrorIs(t, end(), context.Canceled)
		require.Empty(t, tideline.NewTimeline(s.client(), tideline.Options[post]{}).Save().Position)
	})
}

// OnEvent is called before an event is applied, so a program that ends in between gets the event again.
func TestAnEventIsToldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		var timeline *tideline.Timeline[post]
		var before []string
		timeline, end := run(t, s, tideline.Options[post]{OnEvent: func(tideline.Event[post]) {
			before = append(before, timeline.Save().Position)
		}})
		s.locked(s.post)
		synctest.Wait()
		require.Equal(t, []string{"0/5"}, before)
		require.Equal(t, "0/6", timeline.Save().Position)
		require.ErrorIs(t, end(), context.Canceled)
	})
}

func TestReadMarkIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline, end := run(t, s, tideline.Options[post]{})
		require.NotZero(t, timeline.Snapshot().Unread)
		require.NoError(t, timeline.MarkRead(t.Context(), timeline.Snapshot().Entries[0]))
		require.Zero(t, timeline.Snapshot().Unread)
		s.locked(func() { s.enter(s.newEntry(2000, "someone")) })
		s.locked(func() { s.enter(s.newEntry(2001, viewer)) })
		s.locked(func() { s.enter(s.newEntry(500, "someone")) })
		synctest.Wait()
		require.Equal(t, 1, timeline.Snapshot().Unread, "own posts, and those below the mark, are no news")
		s.locked(func() { s.remove("post 8") })
		synctest.Wait()
		require.Equal(t, 1, timeline.Snapshot().Unread, "it was none of the unread")
		s.locked(func() { s.remove("post 6") })
		synctest.Wait()
		require.Zero(t, timeline.Snapshot().Unread)
		require.ErrorIs(t, end(), context.Canceled)
	})
}

// Without Run, a timeline has what was read, and a failed read returns its error.
func TestReadTellsOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFive(1)
		defer s.close()
		timeline := tideline.NewTimeline(s.client(), tideline.Options[tideline.Post]{})
		s.refusing = []refusal{{status: 200, code: "INTERNAL"}}
		require.ErrorContains(t, timeline.Read(t.Context()), "INTERNAL")
		require.NoError(t, timeline.ReadOlder(t.Context()), "there is nothing older than nothing: the first page is read")
		snapshot := timeline.Snapshot()
		require.Len(t, snapshot.Entries, 5)
		require.Equal(t, "post 5", snapshot.Entries[0].Post.Text)
		require.False(t, snapshot.Live)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, timeline.Read(ctx), context.Canceled)
	})
}

// A first page may be empty and have a next page. What was shown is read again, and an old post is not shown above pages that
// were not read.
func TestAnEmptyFirstPageWithANextPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		s.enterFour()
		timeline, end := run(t, s, tideline.Options[post]{PageSize: 2})
		require.Equal(t, "post 4, post 3", texts(timeline))
		s.locked(func() { s.empty = true })
		require.NoError(t, timeline.Read(t.Context()))
		require.Equal(t, "post 4, post 3", texts(timeline))
		require.ErrorIs(t, end(), context.Canceled)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		s.enterFour()
		s.remove("post 2")
		s.empty = true
		timeline, end := run(t, s, tideline.Options[post]{PageSize: 2})
		require.Empty(t, texts(timeline))
		s.locked(s.show)
		synctest.Wait()
		require.Empty(t, texts(timeline), "it comes with the next page")
		require.ErrorIs(t, end(), context.Canceled)
	})
}

// A post that becomes visible again has the score of the oldest entry, so the next page contains it too.
func TestAPageRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		s.enterFour()
		s.remove("post 2")
		timeline, end := run(t, s, tideline.Options[post]{PageSize: 2})
		require.Equal(t, "post 4, post 3", texts(timeline))
		s.locked(s.show)
		synctest.Wait()
		require.Equal(t, "post 2, post 4, post 3", texts(timeline))
		require.NoError(t, timeline.ReadOlder(t.Context()))
		require.Equal(t, "post 2, post 4, post 3, post 1", texts(timeline))
		require.ErrorIs(t, end(), context.Canceled)
	})
}
