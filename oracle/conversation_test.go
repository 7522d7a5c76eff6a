package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/conversation"
	"tideline/feed/paging"
)

// This file has the steps that make conversations, reposts and quotes, and the checks of the reads
// that exist for them.

var (
	audiences = schema.Audience("").Values()
	settings  = schema.HomeReplies("").Values()
)

// audience returns an audience for a number, or "" for the default.
func audience(n int) schema.Audience {
	if n%3 > 0 {
		return ""
	}
	return schema.Audience(audiences[n/3%len(audiences)])
}

// write creates a post with the visibility and the text that the step says. It replies to and quotes
// the posts with these numbers, unless they are none.
func (r *run) write(s step, a, parent, quoted int) error {
	n := newNote(0, a, schema.Visibility(visibilities[s.n%len(visibilities)]))
	n.says(r.model, s.b%len(texts))
	d := feed.Draft{Text: n.text(), Visibility: &n.visibility}
	does, want := fmt.Sprintf("posts for %s: %s", n.visibility, n.text()), ""
	if parent == none {
		n.replyAudience, n.quoteAudience = audience(s.n/len(visibilities)), audience(s.n/len(visibilities)/16)
		d.ReplyAudience, d.QuoteAudience = n.replyAudience, n.quoteAudience
		if n.replyAudience != "" || n.quoteAudience != "" {
			does += fmt.Sprintf(" (replies %q, quotes %q)", n.replyAudience, n.quoteAudience)
		}
	} else {
		d.ReplyTo, want = r.posts[parent].id, r.reply(&n, parent)
		does += fmt.Sprintf(", in reply to #%d", parent)
	}
	if quoted != none {
		d.QuoteOf = r.posts[quoted].id
		want = cmp.Or(want, r.quote(&n, quoted))
		does += fmt.Sprintf(", quotes #%d", quoted)
	}
	made, err := r.front().Feed.CreatePost(r.ctx, r.viewer(a), d)
	if err != nil || want != "" {
		r.say("%s %s", r.name(a), does)
		return r.checkRefusal(err, want)
	}
	n.id = made.ID
	r.say("%s makes #%d: %s", r.name(a), r.record(n), does)
	r.certain[a][len(r.posts)-1] = true
	return nil
}

// converse executes the steps on posts that concern other posts.
func (r *run) converse(s step, a, p int) error {
	f, v := r.front(), r.viewer(a)
	switch s.do {
	case "reply":
		return r.write(s, a, p, none)
	case "quote":
		parent := none
		if s.n/64%4 == 0 {
			parent = p
		}
		return r.write(s, a, parent, p)
	case "repost":
		vis := schema.Visibility(visibilities[s.n%len(visibilities)])
		exists, want := r.repost(a, p)
		made, err := f.Feed.Repost(r.ctx, v, r.posts[p].id, &vis)
		if err != nil || want != "" {
			r.say("%s reposts #%d for %s", r.name(a), p, vis)
			return r.checkRefusal(err, want)
		}
		if exists != none {
			r.say("%s reposts #%d once more, as #%d", r.name(a), p, exists)
			if made.ID != r.posts[exists].id || made.Visibility.Shown() != r.posts[exists].visibility {
				return fmt.Errorf("post %d for %s was answered", made.ID, made.Visibility)
			}
			return nil
		}
		n := r.record(r.newRepost(made.ID, a, p, vis))
		r.say("%s makes #%d: reposts #%d for %s", r.name(a), n, p, vis)
		if r.gets(a, n) {
			r.certain[a][n] = true
		}
		return nil
	case "undo repost":
		return r.undo(s, a, r.original(p))
	case "withdraw quote":
		for p > 0 && r.posts[p].quoteOf == none {
			p--
		}
		if quoted := r.posts[p].quoteOf; quoted != none && s.b%8 > 0 {
			a = r.posts[quoted].author
		}
		if u := r.users[r.posts[p].author]; r.users[a].hidden || u.leaving || u.gone {
			return nil
		}
		r.say("%s withdraws the quote in #%d", r.name(a), p)
		want := r.withdrawQuote(a, p)
		got, err := f.Feed.WithdrawQuote(r.ctx, r.viewer(a), r.posts[p].id)
		if err == nil && (got != nil) != r.sees(a, p) {
			return fmt.Errorf("the post that quotes was answered: %t", got != nil)
		}
		return r.checkRefusal(err, want)
	case "set audience":
		return r.audience(s, p)
	case "home replies":
		to := schema.HomeReplies(settings[s.n%len(settings)])
		r.say("%s wants these replies in the home timeline: %s", r.name(a), to)
		r.setHomeReplies(a, to)
		_, err := f.Accounts.UpdateProfile(r.ctx, v, account.Profile{HomeReplies: &to})
		return err
	case "mute conversation", "unmute conversation":
		mute, call := s.do == "mute conversation", f.Feed.MuteConversation
		if !mute {
			call = f.Feed.UnmuteConversation
		}
		r.say("%s does: %s of #%d", r.name(a), s.do, p)
		r.muteConversation(a, p, mute)
		got, err := call(r.ctx, v, r.posts[p].id)
		if err == nil && (got != nil) != r.sees(a, p) {
			return fmt.Errorf("the post was answered: %t", got != nil)
		}
		return err
	}
	return nil
}

// undo undoes the user's repost of an original.
func (r *run) undo(s step, a, original int) error {
	id, is := r.posts[original].id, "the original"
	if p := r.repostBy(a, original); p != none && s.n%2 == 0 {
		id, is = r.posts[p].id, "the repost"
	}
	r.say("%s undoes the repost of #%d, naming %s", r.name(a), original, is)
	r.undoRepost(a, original)
	got, err := r.front().Feed.UndoRepost(r.ctx, r.viewer(a), id)
	if err == nil && (got != nil) != r.sees(a, original) {
		return fmt.Errorf("the original was answered: %t", got != nil)
	}
	return r.checkRefusal(err, "")
}

// audience changes the audiences of a post, mostly of a root by its author.
func (r *run) audience(s step, p int) error {
	a := r.readers[s.a%len(r.readers)]
	if s.b%8 > 1 {
		p = r.rootOf(p)
	}
	if s.b%8 > 0 {
		a = r.posts[p].author
	}
	if r.users[a].hidden {
		return nil
	}
	reply, quote := schema.Audience(audiences[s.n%len(audiences)]), schema.Audience(audiences[s.n/8%len(audiences)])
	give := [2]*schema.Audience{&reply, &quote}
	if only := s.n / 64 % 4; only < 2 {
		*give[only], give[only] = "", nil
	}
	r.say("%s lets others reply to #%d: %q, and quote it: %q", r.name(a), p, reply, quote)
	want := r.setAudience(a, p, reply, quote)
	got, err := r.front().Feed.SetAudience(r.ctx, r.viewer(a), r.posts[p].id, give[0], give[1])
	if err == nil && want == "" {
		return r.refers(got, p)
	}
	return r.checkRefusal(err, want)
}

// refers compares what the row of a post says about other posts.
func (r *run) refers(got *ent.Post, p int) error {
	n := r.posts[p]
	for _, f := range []struct {
		what string
		got  int64
		want int
	}{
		{"parent", got.ParentID, n.parent}, {"root", got.RootID, n.root}, {"original", got.RepostOf, n.repostOf}, {"quoted post", got.QuoteOf, n.quoteOf},
	} {
		var want int64
		if f.want != none {
			want = r.posts[f.want].id
		}
		if f.got != want {
			return fmt.Errorf("the %s of #%d is post %d, not #%d", f.what, p, f.got, f.want)
		}
	}
	if got.QuoteWithdrawn != n.withdrawn {
		return fmt.Errorf("the quote in #%d is withdrawn: %t, not %t", p, got.QuoteWithdrawn, n.withdrawn)
	}
	if reply, quote := cmp.Or(got.ReplyAudience, schema.Everyone), cmp.Or(got.QuoteAudience, schema.Everyone); n.plain() &&
		(reply != cmp.Or(n.replyAudience, schema.Everyone) || quote != cmp.Or(n.quoteAudience, schema.Everyone)) {
		return fmt.Errorf("#%d lets %s reply, and %s quote it, not %q and %q", p, reply, quote, n.replyAudience, n.quoteAudience)
	}
	for _, f := range []struct {
		what  string
		got   int
		match func(n note) bool
	}{
		{"replies", got.ReplyCount, func(n note) bool { return n.parent == p }},
		{"reposts", got.RepostCount, func(n note) bool { return n.repostOf == p }},
		{"quotes", got.QuoteCount, func(n note) bool { return n.quoteOf == p && !n.withdrawn }},
	} {
		if !r.tallies(f.got, f.match) {
			return fmt.Errorf("#%d has %d %s, which is wrong", p, f.got, f.what)
		}
	}
	return nil
}

// threads compares the lists of replies, reposts and quotes of a post.
func (r *run) threads(v, p int) error {
	if !r.sees(v, p) || r.posts[p].repostOf != none {
		return nil
	}
	post, err := r.front().Feed.Post(r.ctx, r.viewer(v), r.posts[p].id)
	if err != nil {
		return fmt.Errorf("%s asks for #%d: %w", r.name(v), p, err)
	}
	c, viewer := r.front().Conversations, r.viewer(v)
	type read = func(page paging.Page) (*paging.Connection[ent.Post], error)
	replies := func(order conversation.Order) read {
		return func(page paging.Page) (*paging.Connection[ent.Post], error) {
			return c.Replies(r.ctx, viewer, post, order, page)
		}
	}
	for _, l := range []struct {
		what  string
		want  []int // oldest first
		order int   // 1: oldest first, -1: newest first, 0: any
		read  read
	}{
		{"replies, oldest first,", r.replies(v, p), 1, replies(conversation.Oldest)},
		{"replies, newest first,", r.replies(v, p), -1, replies(conversation.Newest)},
		{"replies, best first,", r.replies(v, p), 0, replies(conversation.Top)},
		{"conversation", r.conversation(v, p), 1, func(page paging.Page) (*paging.Connection[ent.Post], error) { return c.All(r.ctx, viewer, post, page) }},
		{"reposts", r.reposts(v, p), -1, func(page paging.Page) (*paging.Connection[ent.Post], error) {
			return c.Reposts(r.ctx, viewer, post, page)
		}},
		{"quotes", r.quotes(v, p), -1, func(page paging.Page) (*paging.Connection[ent.Post], error) {
			return c.Quotes(r.ctx, viewer, post, page)
		}},
	} {
		got, err := r.pages(max(r.page, 2), false, l.read)
		if err != nil {
			return fmt.Errorf("the %s of #%d, read by %s: %w", l.what, p, r.name(v), err)
		}
		switch l.order {
		case -1:
			slices.Reverse(l.want)
		case 0:
			slices.Sort(got)
			slices.Sort(l.want)
		}
		if !slices.Equal(got, l.want) {
			return fmt.Errorf("the %s of #%d, read by %s, are %v, not %v", l.what, p, r.name(v), got, l.want)
		}
	}
	above, err := c.Ancestors(r.ctx, viewer, post)
	if err != nil {
		return err
	}
	return r.leads(v, p, above)
}

// leads compares the ancestors of a post. Where a post in between is gone, those above it may be
// missing.
func (r *run) leads(v, p int, above []*ent.Post) error {
	got, want, must := []int{}, r.ancestors(v, p), 0
	for _, a := range above {
		n, known := r.numbers[a.ID]
		if !known {
			return fmt.Errorf("post %d is none of this run", a.ID)
		}
		got = append(got, n)
	}
	whole := true
	for up := r.posts[p].parent; up != none; up = r.posts[up].parent {
		if author := r.users[r.posts[up].author]; r.posts[up].deleted || author.leaving || author.gone {
			whole = false
			break
		}
		if r.sees(v, up) {
			must++
		}
	}
	right := slices.Equal(got, want)
	if !whole {
		right = len(got) >= must && slices.Equal(got[len(got)-must:], want[len(want)-must:]) &&
			!slices.ContainsFunc(got, func(n int) bool { return !slices.Contains(want, n) })
	}
	if !right {
		return fmt.Errorf("above #%d, %s sees %v, not %v", p, r.name(v), got, want)
	}
	return nil
}

// mays compares what the viewer may do with the visible posts, and what else is read of them for the
// viewer.
func (r *run) mays(v int) error {
	var numbers []int
	var ids []int64
	for p := range r.posts {
		if r.sees(v, p) {
			numbers, ids = append(numbers, p), append(ids, r.posts[p].id)
		}
	}
	if len(ids) > 100 {
		numbers, ids = numbers[len(ids)-100:], ids[len(ids)-100:]
	}
	posts, err := r.front().Feed.Posts(r.ctx, r.viewer(v), ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	if i := slices.Index(posts, nil); i >= 0 {
		return fmt.Errorf("%s does not see #%d", r.name(v), numbers[i])
	}
	c := r.front().Conversations
	may, err := c.Audiences(r.ctx, r.viewer(v), posts)
	if err != nil {
		return err
	}
	own, err := c.OwnReposts(r.ctx, r.viewer(v), ids)
	if err != nil {
		return err
	}
	mentions, err := c.Mentions(r.ctx, posts)
	if err != nil {
		return err
	}
	muted, err := r.front().Feed.MutesConversation(r.ctx, r.viewer(v), posts)
	if err != nil {
		return err
	}
	for i, p := range numbers {
		if err := r.invited(v, p, may[i]); err != nil {
			return err
		}
		if want := r.silenced[[2]int{v, r.rootOf(p)}]; muted[i] != want {
			return fmt.Errorf("%s mutes the conversation of #%d: %t, not %t", r.name(v), p, muted[i], want)
		}
		if r.posts[p].repostOf == none {
			if err := r.reposted(v, p, own[i]); err != nil {
				return err
			}
		}
		if err := r.mentioned(p, mentions[i]); err != nil {
			return err
		}
	}
	return nil
}

// invited compares who may reply to a post and quote it.
func (r *run) invited(v, p int, got conversation.Audiences) error {
	reply, quote := v != nobody && r.mayReply(v, p) == "", v != nobody && r.mayQuote(v, p) == ""
	if got.MayReply != reply || got.MayQuote != quote {
		return fmt.Errorf("%s may reply to #%d: %t, and quote it: %t, not %t and %t", r.name(v), p, got.MayReply, got.MayQuote, reply, quote)
	}
	root := r.posts[r.rootOf(p)]
	if r.maySpread(v, p) && (got.Reply != cmp.Or(root.replyAudience, schema.Everyone) || got.Quote != cmp.Or(root.quoteAudience, schema.Everyone)) {
		return fmt.Errorf("#%d lets %s reply, and %s quote it, not %q and %q", p, got.Reply, got.Quote, root.replyAudience, root.quoteAudience)
	}
	return nil
}

// reposted compares the viewer's repost of a post.
func (r *run) reposted(v, p int, own *ent.Post) error {
	got, want := none, none
	if own != nil {
		got = r.numbers[own.ID]
	}
	if n := r.repostBy(v, p); n != none && r.sees(v, n) {
		want = n
	}
	if got != want {
		return fmt.Errorf("%s has reposted #%d as #%d, not #%d", r.name(v), p, got, want)
	}
	return nil
}

// mentioned compares the mentions of a post. Users whose accounts are hidden may be missing.
func (r *run) mentioned(p int, got []conversation.Mention) error {
	n := r.posts[p]
	if n.repostOf != none || n.word >= len(spans) {
		if len(got) > 0 {
			return fmt.Errorf("#%d mentions %v", p, got)
		}
		return nil
	}
	for _, s := range spans[n.word] {
		u := slices.IndexFunc(r.users, func(u person) bool { return u.handle == s.handle })
		m := conversation.Mention{User: r.users[u].id, Start: s.start, End: s.end}
		at := slices.Index(got, m)
		if want := slices.Contains(n.mentions, u); (at >= 0) != want && !r.users[u].hidden {
			return fmt.Errorf("#%d mentions %s: %t, not %t", p, r.name(u), at >= 0, want)
		}
		if at >= 0 {
			got = slices.Delete(got, at, at+1)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("#%d mentions %v more", p, got)
	}
	return nil
}
