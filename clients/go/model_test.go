package tideline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	tideline "tideline/clients/go"
)

// history is a random sequence of steps of a server and a client.
type history struct {
	seed  uint64
	lag   time.Duration
	posts int // posts that exist at the beginning
	steps []string
}

// steps are the possible steps, repeated by their frequency.
var steps = []string{
	"post", "post", "post", "post", "post", "late", "hide", "hide", "show", "edit", "edit", "invalidate", "forget", "mark",
	"cut", "restart", "stop", "slow", "later", "token", "refuse", "limit", "mute", "database",
	"older", "older", "read", "reborn", "wait", "wait", "wait", "wait", "wait longer",
}

func drawHistory(t *rapid.T) history {
	return history{
		seed:  rapid.Uint64().Draw(t, "seed"),
		lag:   rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, time.Second}).Draw(t, "lag"),
		posts: rapid.IntRange(0, 30).Draw(t, "posts"),
		steps: rapid.SliceOfN(rapid.SampledFrom(steps), 0, 80).Draw(t, "steps"),
	}
}

// player is a client whose state is checked all the time.
type player struct {
	*server
	options  tideline.Options[post]
	timeline *tideline.Timeline[post]
	random   *rand.Rand
	stop     func() error
	broken   error
}

func (p *player) begin(ctx context.Context) {
	client := p.client()
	client.Token = func(_ context.Context, refused string) (string, error) {
		var present string
		p.locked(func() { present = p.token })
		if refused == present {
			return "", tideline.ErrSessionEnded
		}
		if refused == "" && rand.IntN(2) == 0 {
			present = "an old one"
		}
		return present, nil
	}
	t := tideline.NewTimeline(client, p.options)
	p.timeline = t
	ctx, cancel := context.WithCancel(ctx)
	ran, watched := make(chan error, 1), make(chan struct{})
	go func() { ran <- t.Run(ctx) }()
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			changed := t.Changed()
			p.check(t.Snapshot())
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	p.stop = func() error {
		cancel()
		<-watched
		if err := <-ran; !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Run ended: %w", err)
		}
		return p.broken
	}
}

func (p *player) check(s tideline.Snapshot[post]) {
	seen := map[string]bool{}
	for i, e := range s.Entries {
		if seen[e.ID] {
			p.broken = fmt.Errorf("%s is shown twice", e.ID)
		}
		if seen[e.ID] = true; i > 0 && s.Entries[i-1].Score < e.Score {
			p.broken = fmt.Errorf("%s stands too low", e.ID)
		}
	}
	if s.Unread < 0 {
		p.broken = fmt.Errorf("%d are unread", s.Unread)
	}
}

func (p *player) do(ctx context.Context, step string) error {
	switch step {
	case "post":
		p.locked(p.post)
	case "late":
		p.locked(func() { p.enter(p.late()) })
	case "hide":
		p.locked(p.hide)
	case "show":
		p.locked(p.show)
	case "edit":
		p.locked(p.edit)
	case "invalidate":
		p.locked(p.invalidate)
	case "forget":
		p.locked(p.forget)
	case "mark":
		p.locked(func() { p.mark = p.clock - float64(p.server.random.IntN(20)) })
	case "cut":
		p.cut(0)
	case "restart":
		p.cut(1012)
	case "stop":
		p.cutFor(1012, fmt.Sprintf("reconnect in %dms", p.random.IntN(5000)))
	case "slow":
		p.locked(func() { p.lateBy = p.random.IntN(100) })
	case "later":
		p.cut(1013)
	case "token":
		p.locked(func() { p.token += "!" })
		p.cut(4403)
	case "refuse":
		p.locked(func() {
			p.refusing = append(p.refusing, refusal{status: 503, after: 1}, refusal{status: 502}, refusal{close: 1013})
		})
	case "limit":
		p.locked(func() {
			p.refusing = append(p.refusing, refusal{code: "RATE_LIMITED", after: 3}, refusal{status: 200, code: "TIMEOUT"})
		})
	case "mute":
		p.locked(func() { p.mute = true })
	case "database":
		p.locked(func() { p.database++ })
		p.cut(0)
	case "older":
		_ = p.timeline.ReadOlder(ctx) // the server may refuse it
	case "read":
		_ = p.timeline.Read(ctx)
	case "reborn":
		raw, err := json.Marshal(p.timeline.Save())
		if err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return err
		}
		p.options.Saved = new(tideline.Saved[post])
		if err := json.Unmarshal(raw, p.options.Saved); err != nil {
			return err
		}
		time.Sleep(time.Duration(p.random.IntN(3)) * time.Second)
		p.begin(ctx)
	case "wait":
		time.Sleep(time.Duration(p.random.IntN(2000)) * time.Millisecond)
	case "wait longer":
		time.Sleep(time.Minute)
	}
	return nil
}

// settle ends all disturbances, and returns the difference between the client's state and the
// timeline when nothing is left to do.
func (p *player) settle(ctx context.Context, all bool) error {
	p.locked(func() { p.mute, p.refusing = false, nil })
	p.cut(1012)
	time.Sleep(2 * time.Minute) // synctest time: all heartbeats have arrived, or the connection is a new one
	for all && p.timeline.Snapshot().More {
		if err := p.timeline.ReadOlder(ctx); err != nil {
			return fmt.Errorf("read older entries: %w", err)
		}
	}
	s := p.timeline.Snapshot()
	p.mu.Lock()
	defer p.mu.Unlock()
	want := p.sorted()
	if s.More {
		end := s.Entries[len(s.Entries)-1].Score
		want = slices.DeleteFunc(want, func(e entry) bool { return e.Score < end })
	}
	if !slices.Equal(want, s.Entries) {
		return fmt.Errorf("held is not the timeline:\n%v\n%v", s.Entries, want)
	}
	if !s.Live || s.Err != nil || s.Unread != p.unread() || s.LateBy != time.Duration(p.lateBy)*time.Second {
		return fmt.Errorf("live %v, err %w, unread %d of %d, late by %v of %d", s.Live, s.Err, s.Unread, p.unread(), s.LateBy, p.lateBy)
	}
	return nil
}

func play(t *testing.T, h history) (err error) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(h.seed)
		defer s.close()
		s.lag = h.lag
		for range h.posts {
			s.post()
		}
		p := &player{server: s, random: rand.New(rand.NewPCG(h.seed, 2)), options: tideline.Options[post]{Fields: "id text", PageSize: 5, Most: 12}}
		p.begin(t.Context())
		for _, step := range h.steps {
			if err = p.do(t.Context(), step); err != nil {
				return
			}
		}
		err = errors.Join(p.settle(t.Context(), false), p.settle(t.Context(), true), p.stop())
	})
	return err
}

// After any history, a client shows what its timeline has, and never shows a post twice.
func TestWhatIsHeldIsTheTimeline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		if err := play(t, h); err != nil {
			rt.Fatalf("%v", err)
		}
	})
}
