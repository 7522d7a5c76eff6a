package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// step is one event of a run. Its numbers are indexes modulo the count, so a step has a meaning
// after any other steps.
type step struct {
	do    string
	a, b  int  // two different readers
	n     int  // a post, a visibility or another number
	quiet bool // wait for the jobs that follow
}

// kinds are the steps with their frequencies.
var kinds = []struct {
	name   string
	weight int
}{
	{"post", 14}, {"narrow or widen", 8}, {"edit", 5}, {"delete", 4}, {"hide or show", 5}, {"suspend or reinstate", 4}, {"delete account", 2}, {"like", 3}, {"unlike", 1},
	{"follow", 12}, {"unfollow", 6}, {"accept", 4}, {"reject", 1}, {"remove follower", 3}, {"approve", 3},
	{"block", 3}, {"unblock", 3}, {"mute", 5}, {"unmute", 5}, {"mute word", 3}, {"unmute word", 3}, {"mark read", 3}, {"sign up", 1},

	{"reply", 12}, {"repost", 8}, {"undo repost", 3}, {"quote", 4}, {"withdraw quote", 2}, {"set audience", 4}, {"home replies", 4}, {"mute conversation", 4}, {"unmute conversation", 3},
	{"base: narrow or widen", 6}, {"base: hide or show", 2}, {"base: delete", 2}, {"base: edit", 2}, {"base: suspend or reinstate", 2},

	{"hold", 8}, {"stall", 2}, {"release", 4}, {"kill", 4}, {"pause", 2}, {"repeat", 5},
	{"wipe", 2}, {"snapshot", 3}, {"roll back", 3}, {"lose", 4}, {"dead builder", 2}, {"balance", 7}, {"wait", 3}, {"away", 1},
	{"walk", 6}, {"settle", 3},

	{"subscribe", 8}, {"open conversation", 8}, {"cut conversation", 4}, {"events", 4}, {"cut", 4}, {"cut off", 2}, {"back", 2}, {"pass", 2},
}

var steps = rapid.Custom(func(t *rapid.T) step {
	var all []string
	for _, k := range kinds {
		for range k.weight {
			all = append(all, k.name)
		}
	}
	n := rapid.IntRange(0, 1<<20)
	return step{
		do: rapid.SampledFrom(all).Draw(t, "do"), a: n.Draw(t, "a"), b: n.Draw(t, "b"), n: n.Draw(t, "n"),
		quiet: rapid.Bool().Draw(t, "quiet"),
	}
})

var visibilities = schema.Visibility("").Values()

// do executes the step on Tideline and on the model, and returns an error if they differ.
func (r *run) do(s step) error {
	a := r.readers[s.a%len(r.readers)]
	b := r.readers[(s.a%len(r.readers)+1+s.b%(len(r.readers)-1))%len(r.readers)]
	p := -1
	if len(r.posts) > 0 {
		// Most steps are about the youngest posts.
		p = max(len(r.posts)-1-s.n/len(visibilities)%8, 0)
		if do, ofBase := strings.CutPrefix(s.do, "base: "); ofBase {
			// The root of the conversation, or the original of a repost.
			p, s.do = r.base(p), do
			if author := r.posts[p].author; do == "suspend or reinstate" && slices.Contains(r.readers, author) {
				b = author
			}
		}
	}
	if err := r.countsUnread(b); err != nil {
		return err
	}
	if err := r.social(s, a, b, p); err != nil {
		return err
	}
	if err := r.countsUnread(b); err != nil { // a cached number must not outlive the step
		return fmt.Errorf("right after that: %w", err)
	}
	r.acted = time.Now()
	if err := r.mishap(s, a, p); err != nil {
		return err
	}
	r.forget()
	if s.quiet && !r.gate.paused.Load() {
		r.say("  (and what follows from it)")
		return r.rest()
	}
	return nil
}

// social executes the steps of users.
func (r *run) social(s step, a, b, p int) error {
	f, v := r.front(), r.viewer(a)
	between := func(doing string, call func(context.Context, session.Viewer, int64) error, want string) error {
		r.say("%s %s %s", r.name(a), doing, r.name(b))
		return r.checkRefusal(call(r.ctx, v, r.users[b].id), want)
	}
	// relate is call without the user in its result.
	relate := func(call func(context.Context, session.Viewer, int64) (*entUser, error)) func(context.Context, session.Viewer, int64) error {
		return func(ctx context.Context, v session.Viewer, id int64) error { _, err := call(ctx, v, id); return err }
	}
	if r.users[a].hidden { // a hidden user cannot sign in
		return nil
	}
	towards := map[string]func(context.Context, session.Viewer, int64) (*entUser, error){
		"follow": f.Feed.Follow, "unfollow": f.Feed.Unfollow, "accept": f.Feed.AcceptFollower, "reject": f.Feed.RejectFollower,
		"remove follower": f.Feed.RemoveFollower,
		"block":           f.Feed.Block, "unblock": f.Feed.Unblock, "mute": f.Feed.Mute, "unmute": f.Feed.Unmute,
	}
	if call := towards[s.do]; call != nil && !r.relates(s.do, b) {
		return between("does: "+s.do, relate(call), notFound)
	}
	switch s.do {
	case "suspend or reinstate":
		return r.suspend(b, !r.users[b].hidden)
	case "delete account":
		return r.deleteAccount(b)
	case "sign up":
		if len(r.readers) > 6 {
			return nil
		}
		r.say("somebody signs up")
		auth, err := f.Login.SignUp(r.ctx, fmt.Sprint("new", r.turn), "a long password", "")
		if err != nil {
			return err
		}
		r.join(auth.User.ID, auth.User.Handle)
		r.readers = append(r.readers, len(r.users)-1)
	case "post":
		return r.write(s, a, none, none)
	case "follow":
		want, begun := r.follow(a, b)
		if begun {
			defer r.shows(a, b)
		}
		return between("follows", relate(f.Feed.Follow), want)
	case "unfollow":
		r.unfollow(a, b)
		return between("unfollows", relate(f.Feed.Unfollow), "")
	case "accept":
		want, begun := r.accept(a, b)
		if begun {
			defer r.shows(a, b)
		}
		return between("accepts", relate(f.Feed.AcceptFollower), want)
	case "reject":
		return between("rejects", relate(f.Feed.RejectFollower), r.reject(a, b))
	case "remove follower":
		delete(r.follows, [2]int{b, a})
		return between("removes the follower", relate(f.Feed.RemoveFollower), "")
	case "block":
		r.block(a, b)
		return between("blocks", relate(f.Feed.Block), "")
	case "unblock":
		delete(r.blocks, [2]int{a, b})
		return between("unblocks", relate(f.Feed.Unblock), "")
	case "mute":
		r.mutes[[2]int{a, b}] = true
		return between("mutes", relate(f.Feed.Mute), "")
	case "unmute":
		if r.mutes[[2]int{a, b}] {
			defer r.shows(a, b)
		}
		delete(r.mutes, [2]int{a, b})
		return between("unmutes", relate(f.Feed.Unmute), "")
	case "mute word", "unmute word":
		return r.word(s, a)
	case "approve":
		approves := s.n%2 == 0
		r.say("%s approves followers: %v", r.name(a), approves)
		r.users[a].approves = approves
		_, err := f.Accounts.UpdateProfile(r.ctx, v, account.Profile{ApprovesFollowers: &approves})
		return err
	case "mark read":
		return r.markRead(a, s.n)
	default:
		if p >= 0 {
			return r.onPost(s, a, p)
		}
	}
	return nil
}

// suspend hides a user from everybody, or shows the user again. It discards the state of the user's
// client and the page that the client was about to read.
func (r *run) suspend(u int, hide bool) error {
	if r.users[u].leaving || r.users[u].gone {
		return nil
	}
	does := "reinstates"
	if hide {
		does = "suspends"
	}
	r.say("a moderator %s %s", does, r.name(u))
	r.users[u].hidden = hide
	r.ends(u)
	accounts, allow := r.front().Accounts, func(*ent.Tx, *ent.User) error { return nil }
	if hide {
		_, err := accounts.Suspend(r.ctx, r.users[u].id, account.Suspension{}, allow)
		return err
	}
	_, err := accounts.Unsuspend(r.ctx, r.users[u].id, allow)
	return err
}

// ends discards the state of a user's client.
func (r *run) ends(u int) {
	if c := r.clients[u]; c != nil {
		c.cut()
		delete(r.clients, u)
	}
	delete(r.walks, u)
	clear(r.certain[u])
}

// deleteAccount deletes a user permanently, except one of the last two.
func (r *run) deleteAccount(u int) error {
	left := 0
	for _, v := range r.readers {
		if !r.users[v].leaving && !r.users[v].gone {
			left++
		}
	}
	if left <= 2 || r.users[u].leaving || r.users[u].gone {
		return nil
	}
	r.say("%s deletes the account", r.name(u))
	r.users[u].hidden, r.users[u].leaving = true, true
	r.ends(u)
	_, _, err := r.front().Accounts.Delete(r.ctx, r.users[u].id, 0)
	return err
}

// farewell waits until nothing is left of the users who are leaving.
func (r *run) farewell() error {
	for u := range r.users {
		if !r.users[u].leaving {
			continue
		}
		for begun := time.Now(); ; {
			left, err := r.db.User.Query().Where(user.ID(r.users[u].id)).Exist(r.ctx)
			if err != nil {
				return err
			}
			if !left {
				break
			}
			if time.Since(begun) > patience {
				return fmt.Errorf("%s is not gone", r.name(u))
			}
			// The job waits for others, and is retried after a pause.
			time.Sleep(10 * time.Millisecond)
			if err := errors.Join(r.advance(200*time.Millisecond), r.rest()); err != nil {
				return err
			}
		}
		if left, err := r.db.Post.Query().Where(post.AuthorID(r.users[u].id)).Count(r.ctx); err != nil || left > 0 {
			return errors.Join(err, fmt.Errorf("%d posts of %s are left", left, r.name(u)))
		}
		r.bury(u)
	}
	return nil
}

// word mutes a word of texts, or unmutes it.
func (r *run) word(s step, a int) error {
	n := 1 + s.n%(len(mutable)-1)
	r.say("%s does: %s %q", r.name(a), s.do, mutable[n])
	call, v := r.front().Feed.MuteWord, r.viewer(a)
	if s.do == "unmute word" {
		call = r.front().Feed.UnmuteWord
		delete(r.words, [2]int{a, n})
	} else {
		r.words[[2]int{a, n}] = true
	}
	_, _, err := call(r.ctx, v, mutable[n])
	return err
}

// onPost executes the steps of users on posts, mostly on their own posts, which only they may
// change.
func (r *run) onPost(s step, a, p int) error {
	f, post := r.front(), r.posts[p]
	if (s.do == "narrow or widen" || s.do == "delete" || s.do == "edit") && s.b%8 > 0 {
		if a = post.author; r.users[a].hidden {
			return nil
		}
	}
	v := r.viewer(a)
	switch s.do {
	case "narrow or widen":
		vis := schema.Visibility(visibilities[s.n%len(visibilities)])
		r.say("%s makes #%d %s", r.name(a), p, vis)
		want := r.change(a, p)
		if want == "" && post.hidden {
			want = forbidden
		}
		if want == "" {
			r.posts[p].visibility = vis
		}
		_, err := f.Feed.SetVisibility(r.ctx, v, post.id, vis)
		return r.checkRefusal(err, want)
	case "edit":
		word := s.n / 8 % len(texts)
		r.say("%s makes #%d say %q", r.name(a), p, texts[word])
		want := r.change(a, p)
		if want == "" && post.hidden {
			want = forbidden
		}
		if want == "" && post.repostOf != none {
			want = badInput
		}
		if want == "" && word != post.word {
			r.posts[p].says(r.model, word)
		}
		_, err := f.Feed.UpdatePost(r.ctx, v, post.id, feed.Edit{Text: &texts[word]})
		return r.checkRefusal(err, want)
	case "hide or show":
		if author := r.users[post.author]; author.leaving || author.gone || r.orphaned(p) {
			return nil
		}
		hide, want := s.n%2 == 0, ""
		r.say("a moderator hides #%d: %t", p, hide)
		if post.deleted {
			want = notFound
		} else {
			r.posts[p].hidden = hide
		}
		_, err := f.Feed.HidePost(r.ctx, post.id, hide, func(*ent.Tx, int64) error { return nil })
		return r.checkRefusal(err, want)
	case "delete":
		r.say("%s deletes #%d", r.name(a), p)
		want := r.change(a, p)
		if want == "" {
			r.remove(p)
		}
		return r.checkRefusal(f.Feed.DeletePost(r.ctx, v, post.id), want)
	case "like", "unlike":
		r.say("%s %ss #%d", r.name(a), s.do, p)
		want, call := "", f.Feed.LikePost
		if s.do == "unlike" {
			call = f.Feed.UnlikePost
		}
		liked := r.original(p) // a repost stands for it
		if !r.sees(a, p) {
			want = notFound
		} else if delete(r.likes, [2]int{a, liked}); s.do == "like" {
			r.likes[[2]int{a, liked}] = true
		}
		got, err := call(r.ctx, v, post.id)
		if err == nil && (got.ID != r.posts[liked].id || !r.counts(got.LikeCount, r.likes, 1, liked)) {
			return fmt.Errorf("#%d has %d likes, not %d", r.numbers[got.ID], got.LikeCount, r.likesOf(liked))
		}
		return r.checkRefusal(err, want)
	}
	return r.converse(s, a, p)
}

// orphaned reports whether the post is a repost whose original is gone. It is deleted at some time.
func (r *run) orphaned(p int) bool {
	if r.posts[p].repostOf == none {
		return false
	}
	original := r.posts[r.posts[p].repostOf]
	author := r.users[original.author]
	return original.deleted || author.leaving || author.gone
}

// markRead marks an entry of the newest page as read.
func (r *run) markRead(a, n int) error {
	page, err := r.front().Home.Timeline(r.ctx, r.viewer(a), paging.Page{}, home.Latest)
	if err != nil || len(page.Edges) == 0 {
		return err
	}
	at := page.Edges[n%len(page.Edges)]
	r.say("%s marks #%d as read", r.name(a), r.numbers[at.Node.ID])
	r.users[a].marker = max(r.users[a].marker, at.Node.ID)
	_, err = r.front().Home.Unread.MarkRead(r.ctx, r.viewer(a), at.Cursor)
	return err
}

// checkRefusal compares the result of a call with the model's refusal.
func (r *run) checkRefusal(err error, want string) error {
	if got := string(refusal.CodeOf(err)); err != nil && got == "" {
		return err
	} else if got != want {
		return fmt.Errorf("this was answered %q, not %q", got, want)
	}
	return nil
}

// shows records that the viewer did something that must add b's posts to the timeline at once.
func (r *run) shows(viewer, b int) {
	for _, p := range r.timeline(viewer) {
		if r.posts[p].author == b {
			r.certain[viewer][p] = true
		}
	}
}

// forget removes hidden posts from the posts that a read must return.
func (r *run) forget() {
	for v := range r.users {
		for p := range r.certain[v] {
			if !r.gets(v, p) {
				delete(r.certain[v], p)
				if w := r.walks[v]; w != nil {
					delete(w.must, p)
				}
			}
		}
	}
}
