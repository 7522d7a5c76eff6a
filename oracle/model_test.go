package oracle

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
)

// model is the expected state according to the rules. Users and posts have numbers.
type model struct {
	users    []person
	posts    []note
	follows  relation
	requests relation
	blocks   relation
	mutes    relation
	likes    relation        // user, post
	words    map[[2]int]bool // user, muted word of texts
	silenced map[[2]int]bool // user, root of a conversation that the user mutes
}

type person struct {
	id       int64
	handle   string
	approves bool  // followers must be approved
	hidden   bool  // suspended or deleted: nobody sees the user, and the user does nothing
	leaving  bool  // deleted, but counts of others may still include the user
	gone     bool  // deleted, also from the counts of others
	marker   int64 // newest post read

	homeReplies schema.HomeReplies // empty: FollowedReplies
}

// note is a post. A reply has a parent and a root, a repost has an original and no text.
type note struct {
	id         int64
	author     int
	visibility schema.Visibility
	deleted    bool
	hidden     bool // by a moderator
	word       int  // index of texts
	mentions   []int

	parent, root, repostOf, quoteOf int // none, or a post
	withdrawn                       bool
	replyAudience, quoteAudience    schema.Audience
}

// none stands for a parent, root, original or quoted post that a post does not have.
const none = -1

// texts are the texts of posts. The first one has no mutable word and no mention.
var texts = []string{"hello", "My CAT sleeps", "这里有猫咪", "看@u1！ And (@u0), not me@u1.org"}

// mutable are words of the texts; the first and the last text have none.
var mutable = []string{"", "cat", "猫"}

// span is a mention in one of texts, in code points.
type span struct {
	handle     string
	start, end int
}

// spans are the mentions in texts.
var spans = [][]span{3: {{"u1", 1, 4}, {"u0", 11, 14}}}

// newNote returns a post that is neither a reply nor a repost.
func newNote(id int64, author int, visibility schema.Visibility) note {
	return note{id: id, author: author, visibility: visibility, parent: none, root: none, repostOf: none, quoteOf: none}
}

// plain reports whether the post is neither a reply nor a repost.
func (n note) plain() bool { return n.parent == none && n.repostOf == none }

// text returns the text of the post.
func (n note) text() string {
	if n.repostOf != none {
		return ""
	}
	return texts[n.word]
}

// relation is a set of pairs: the acting user and the target.
type relation map[[2]int]bool

// Codes of refusals.
const (
	notFound  = "NOT_FOUND"
	forbidden = "FORBIDDEN"
	badInput  = "BAD_USER_INPUT"
)

func newModel() *model {
	return &model{follows: relation{}, requests: relation{}, blocks: relation{}, mutes: relation{}, likes: relation{}, words: map[[2]int]bool{}, silenced: map[[2]int]bool{}}
}

// nobody is the anonymous viewer.
const nobody = -1

// admits reports whether the viewer would be shown the post directly if it depended on no other post.
func (m *model) admits(viewer, post int) bool {
	p := m.posts[post]
	switch {
	case m.bars(viewer, post):
		return false
	case viewer == p.author, p.visibility == schema.Public:
		return true
	}
	follows, followed := m.follows[[2]int{viewer, p.author}], m.follows[[2]int{p.author, viewer}]
	return p.visibility == schema.Followers && follows || p.visibility == schema.Mutuals && follows && followed
}

// bars reports whether the post is hidden from the viewer even if its visibility admits the viewer.
func (m *model) bars(viewer, post int) bool {
	p := m.posts[post]
	switch {
	case p.deleted:
		return true
	case viewer == p.author:
		return false
	}
	return p.hidden || m.users[p.author].hidden || m.blocks[[2]int{viewer, p.author}] || m.blocks[[2]int{p.author, viewer}]
}

// sees reports whether the viewer may be shown the post directly: by id, or in a conversation.
func (m *model) sees(viewer, post int) bool {
	p := m.posts[post]
	switch {
	case p.repostOf != none:
		return m.admits(viewer, post) && m.sees(viewer, p.repostOf)
	case p.parent == none || viewer == p.author:
		return m.admits(viewer, post)
	}
	return m.admits(viewer, p.root) && (m.admits(viewer, post) || m.answers(post, viewer) && !m.bars(viewer, post))
}

// answers reports whether the post is a reply in the viewer's conversation or to the viewer's post.
func (m *model) answers(post, viewer int) bool {
	p := m.posts[post]
	return p.parent != none && (m.posts[p.root].author == viewer || m.posts[p.parent].author == viewer)
}

// onProfile reports whether the viewer is shown the post in the list of its author's posts.
func (m *model) onProfile(viewer, post int) bool {
	return m.sees(viewer, post) && m.admits(viewer, post)
}

// gets reports whether the viewer's home timeline includes the post.
func (m *model) gets(viewer, post int) bool {
	p := m.posts[post]
	if !m.belongs(viewer, post) || !m.sees(viewer, post) {
		return false
	}
	switch {
	case p.repostOf != none:
		return m.wants(viewer, post)
	case p.author == viewer:
		return true
	case m.words[[2]int{viewer, p.word}]:
		return false
	case p.parent == none:
		return true
	}
	return !m.silenced[[2]int{viewer, p.root}] && !m.mutes[[2]int{viewer, m.posts[p.root].author}] && m.wantsReply(viewer, m.posts[p.parent].author)
}

// wants reports whether the viewer wants the repost in the home timeline.
func (m *model) wants(viewer, repost int) bool {
	p := m.posts[repost]
	original := m.posts[p.repostOf]
	unwanted := m.words[[2]int{viewer, original.word}] || m.silenced[[2]int{viewer, original.root}]
	if m.mutes[[2]int{viewer, original.author}] || p.author != viewer && unwanted {
		return false
	}
	return original.root == none || original.author == viewer || !m.mutes[[2]int{viewer, m.posts[original.root].author}]
}

// wantsReply reports whether the viewer's setting admits replies to a user.
func (m *model) wantsReply(viewer, to int) bool {
	switch m.users[viewer].homeReplies {
	case schema.AllReplies:
		return true
	case schema.NoReplies:
		return false
	}
	return to == viewer || m.follows[[2]int{viewer, to}]
}

// belongs reports whether the post belongs in the viewer's inbox, regardless of muted words and
// conversations, roots, originals, and the viewer's setting for replies.
func (m *model) belongs(viewer, post int) bool {
	author := m.posts[post].author
	return m.admits(viewer, post) &&
		(author == viewer || m.follows[[2]int{viewer, author}] && !m.mutes[[2]int{viewer, author}])
}

// which returns the matching posts, newest first.
func (m *model) which(match func(post int) bool) []int {
	list := []int{}
	for i := range m.posts {
		if match(i) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Compare(m.posts[b].id, m.posts[a].id) })
	return list
}

func (m *model) timeline(viewer int) []int {
	return m.which(func(p int) bool { return m.gets(viewer, p) })
}

func (m *model) profile(viewer, author int) []int {
	return m.which(func(p int) bool { return m.posts[p].author == author && m.onProfile(viewer, p) })
}

// publicTo returns the posts that the list of the newest public posts shows.
func (m *model) publicTo(viewer int) []int {
	return m.which(func(p int) bool {
		n := m.posts[p]
		wanted := n.author == viewer || !m.mutes[[2]int{viewer, n.author}] && !m.words[[2]int{viewer, n.word}]
		return n.plain() && n.visibility == schema.Public && !n.hidden && m.sees(viewer, p) && wanted
	})
}

// oldestFirst returns the matching posts that the viewer sees, oldest first.
func (m *model) oldestFirst(viewer int, match func(n note) bool) []int {
	list := m.which(func(p int) bool { return match(m.posts[p]) && m.sees(viewer, p) })
	slices.Reverse(list)
	return list
}

// replies returns the direct replies, oldest first.
func (m *model) replies(viewer, post int) []int {
	return m.oldestFirst(viewer, func(n note) bool { return n.parent == post })
}

// conversation returns all replies of the post's root, oldest first.
func (m *model) conversation(viewer, post int) []int {
	root := m.rootOf(post)
	return m.oldestFirst(viewer, func(n note) bool { return n.parent != none && n.root == root })
}

// reposts returns the reposts of the post, oldest first.
func (m *model) reposts(viewer, post int) []int {
	return m.oldestFirst(viewer, func(n note) bool { return n.repostOf == post })
}

// quotes returns the posts that quote the post, oldest first.
func (m *model) quotes(viewer, post int) []int {
	return m.oldestFirst(viewer, func(n note) bool { return n.quoteOf == post && !n.withdrawn })
}

// ancestors returns the posts above a reply, the root first.
func (m *model) ancestors(viewer, post int) []int {
	list := []int{}
	for p := m.posts[post].parent; p != none; p = m.posts[p].parent {
		if m.sees(viewer, p) {
			list = append(list, p)
		}
	}
	slices.Reverse(list)
	return list
}

// original returns the original of a repost, and any other post as it is.
func (m *model) original(post int) int {
	if p := m.posts[post]; p.repostOf != none {
		return p.repostOf
	}
	return post
}

// rootOf returns the root of the conversation that the post is in.
func (m *model) rootOf(post int) int {
	post = m.original(post)
	if p := m.posts[post]; p.root != none {
		return p.root
	}
	return post
}

// base returns the post that the post depends on, or the post if there is none.
func (m *model) base(post int) int {
	if p := m.posts[post]; p.repostOf != none {
		return p.repostOf
	}
	return m.rootOf(post)
}

// repostBy returns the user's repost of an original, or none.
func (m *model) repostBy(user, original int) int {
	return slices.IndexFunc(m.posts, func(n note) bool { return n.author == user && n.repostOf == original && !n.deleted })
}

// tallies reports whether got equals the number of matching posts that exist, whoever may see them.
// Posts of users who are leaving may be counted or not.
func (m *model) tallies(got int, match func(n note) bool) bool {
	all, leave := 0, 0
	for _, n := range m.posts {
		if !match(n) || n.deleted || m.users[n.author].gone {
			continue
		}
		all++
		if m.users[n.author].leaving {
			leave++
		}
	}
	return all-leave <= got && got <= all
}

// invites reports whether an audience of the post includes the viewer.
func (m *model) invites(viewer, post int, audience schema.Audience) bool {
	author := m.posts[post].author
	follows, followed := m.follows[[2]int{viewer, author}], m.follows[[2]int{author, viewer}]
	switch {
	case viewer == nobody:
		return false
	case viewer == author:
		return true
	case audience == schema.OnlyFollowers:
		return follows
	case audience == schema.OnlyMutuals:
		return follows && followed
	case audience == schema.OnlyMentioned:
		return slices.Contains(m.posts[post].mentions, viewer)
	}
	return audience == "" || audience == schema.Everyone
}

// mayReply returns the refusal, if any, of a reply to the post.
func (m *model) mayReply(viewer, post int) string {
	root := m.rootOf(post)
	switch {
	case !m.maySpread(viewer, post):
		return notFound
	case !m.invites(viewer, root, m.posts[root].replyAudience):
		return forbidden
	}
	return ""
}

// maySpread reports whether the viewer may refer to the post: they see it and its root. Only the author
// of a reply sees it without its root.
func (m *model) maySpread(viewer, post int) bool {
	return m.sees(viewer, post) && m.sees(viewer, m.rootOf(post))
}

// mayQuote returns the refusal, if any, of a quote of the post. The audiences of a reply are the
// root's.
func (m *model) mayQuote(viewer, post int) string {
	root := m.rootOf(post)
	switch {
	case !m.maySpread(viewer, post):
		return notFound
	case m.posts[m.original(post)].author == viewer:
		return ""
	case !m.invites(viewer, root, m.posts[root].quoteAudience):
		return forbidden
	}
	return ""
}

// reply turns n into a reply to the post, or to the original if the post is a repost. It returns the
// refusal, if any.
func (m *model) reply(n *note, to int) string {
	if code := m.mayReply(n.author, to); code != "" {
		return code
	}
	n.parent, n.root = m.original(to), m.rootOf(to)
	return ""
}

// quote turns n into a quote of the post, or of the original if the post is a repost. It returns the
// refusal, if any.
func (m *model) quote(n *note, of int) string {
	if code := m.mayQuote(n.author, of); code != "" {
		return code
	}
	n.quoteOf = m.original(of)
	return ""
}

// repost returns the user's repost of the post, or none if there is none yet, and the refusal, if
// any.
func (m *model) repost(a, post int) (exists int, code string) {
	if !m.maySpread(a, post) {
		return none, notFound
	}
	return m.repostBy(a, m.original(post)), ""
}

// newRepost returns a repost of the post, or of the original if the post is a repost.
func (m *model) newRepost(id int64, a, post int, v schema.Visibility) note {
	n := newNote(id, a, v)
	n.repostOf, n.root = m.original(post), m.posts[m.original(post)].root
	return n
}

// undoRepost removes the user's repost of an original, also of one that the user does not see any
// longer. Nobody is refused, so that the call can be repeated.
func (m *model) undoRepost(a, original int) {
	if p := m.repostBy(a, original); p != none {
		m.remove(p)
	}
}

// withdrawQuote withdraws a quote of the user's post, also one that the user may not see. It returns
// the refusal, if any.
func (m *model) withdrawQuote(a, post int) string {
	p := &m.posts[post]
	if p.deleted || m.users[p.author].gone || p.quoteOf == none || m.posts[p.quoteOf].deleted || m.posts[p.quoteOf].author != a {
		return notFound
	}
	p.withdrawn = true
	return ""
}

// setAudience sets who may reply to a post and quote it. Empty audiences are not changed.
func (m *model) setAudience(a, post int, reply, quote schema.Audience) string {
	code := m.change(a, post)
	p := &m.posts[post]
	if code == "" && !p.plain() {
		code = badInput
	}
	if code != "" {
		return code
	}
	p.replyAudience, p.quoteAudience = cmp.Or(reply, p.replyAudience), cmp.Or(quote, p.quoteAudience)
	return ""
}

func (m *model) setHomeReplies(a int, to schema.HomeReplies) { m.users[a].homeReplies = to }

// muteConversation mutes or unmutes the conversation of a post. Of a post that the user does not see,
// nothing is known: only its own conversation is muted, in case it is a root.
func (m *model) muteConversation(a, post int, mute bool) {
	root := post
	if m.sees(a, post) {
		root = m.rootOf(post)
	}
	if mute {
		m.silenced[[2]int{a, root}] = true
	} else {
		delete(m.silenced, [2]int{a, root})
	}
}

// mentionsIn returns the users that a text by the author mentions.
func (m *model) mentionsIn(word, author int) (list []int) {
	if word >= len(spans) {
		return nil
	}
	for _, s := range spans[word] {
		u := slices.IndexFunc(m.users, func(u person) bool { return u.handle == s.handle && !u.hidden })
		if u >= 0 && !m.blocks[[2]int{u, author}] && !m.blocks[[2]int{author, u}] {
			list = append(list, u)
		}
	}
	return list
}

// says sets the text of the post.
func (n *note) says(m *model, word int) {
	n.word, n.mentions = word, m.mentionsIn(word, n.author)
}

func (m *model) likesOf(post int) (n int) { return m.likes.count(1, post) }

// counts reports whether got equals the number of pairs of r that have number at index place. Users
// who are leaving may be counted or not.
func (m *model) counts(got int, r relation, place, number int) bool {
	all, leave := r.count(place, number), 0
	for pair := range r {
		if pair[place] == number && m.users[pair[1-place]].leaving {
			leave++
		}
	}
	return all-leave <= got && got <= all
}

// bury removes a deleted user from all relations.
func (m *model) bury(user int) {
	m.users[user].leaving, m.users[user].gone = false, true
	for _, r := range []relation{m.follows, m.requests, m.blocks, m.mutes} {
		maps.DeleteFunc(r, func(pair [2]int, _ bool) bool { return pair[0] == user || pair[1] == user })
	}
	maps.DeleteFunc(m.likes, func(like [2]int, _ bool) bool { return like[0] == user || m.posts[like[1]].author == user })
	for _, muted := range []map[[2]int]bool{m.words, m.silenced} {
		maps.DeleteFunc(muted, func(pair [2]int, _ bool) bool { return pair[0] == user })
	}
	for p := range m.posts {
		m.posts[p].mentions = slices.DeleteFunc(m.posts[p].mentions, func(u int) bool { return u == user })
	}
}

// ranked returns the newest posts of the timeline by weight.
func (m *model) ranked(viewer int) []int {
	list := m.timeline(viewer)
	list = list[:min(len(list), feedtest.InboxCap)]
	weight := func(p int) float64 {
		born := m.posts[p].id >> 12 // milliseconds of the id clock
		return math.Log10(float64(max(m.likesOf(p), 1))) + (time.Duration(born)*time.Millisecond).Seconds()/45000
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return list
}

// unread returns the entries above the marker that the viewer did not write, among as many as an
// inbox holds.
func (m *model) unread(viewer int) (n int) {
	above := m.which(func(p int) bool { return m.gets(viewer, p) && m.posts[p].id > m.users[viewer].marker })
	for _, p := range above[:min(len(above), feedtest.InboxCap)] {
		if m.posts[p].author != viewer {
			n++
		}
	}
	return n
}

// count returns how many pairs of the relation have the user at the given index.
func (r relation) count(place, user int) (n int) {
	for pair := range r {
		if pair[place] == user {
			n++
		}
	}
	return n
}

// relates reports whether others can change this kind of relation to the user. A hidden user who
// may return can lose access but cannot be given any.
func (m *model) relates(do string, user int) bool {
	u := m.users[user]
	return !u.hidden || !u.leaving && !u.gone && do != "follow" && do != "accept"
}

func (m *model) follow(a, b int) (code string, begun bool) {
	switch {
	case m.blocks[[2]int{a, b}] || m.blocks[[2]int{b, a}]:
		return forbidden, false
	case m.follows[[2]int{a, b}]:
		return "", false
	case m.users[b].approves:
		m.requests[[2]int{a, b}] = true
		return "", false
	}
	delete(m.requests, [2]int{a, b})
	m.follows[[2]int{a, b}] = true
	return "", true
}

func (m *model) unfollow(a, b int) {
	delete(m.requests, [2]int{a, b})
	delete(m.follows, [2]int{a, b})
}

// accept makes b, who has asked, a follower of a.
func (m *model) accept(a, b int) (code string, begun bool) {
	if !m.requests[[2]int{b, a}] {
		if m.follows[[2]int{b, a}] {
			return "", false
		}
		return notFound, false
	}
	delete(m.requests, [2]int{b, a})
	m.follows[[2]int{b, a}] = true
	return "", true
}

func (m *model) reject(a, b int) string {
	if m.follows[[2]int{b, a}] {
		return notFound
	}
	delete(m.requests, [2]int{b, a})
	return ""
}

func (m *model) block(a, b int) {
	m.blocks[[2]int{a, b}] = true
	m.unfollow(a, b)
	m.unfollow(b, a)
}

// change returns the refusal, if any, of a change of the post by a.
func (m *model) change(a, post int) string {
	switch {
	case !m.sees(a, post):
		return notFound
	case m.posts[post].author != a:
		return forbidden
	}
	return ""
}

func (m *model) remove(post int) {
	m.posts[post].deleted = true
	for like := range m.likes {
		if like[1] == post {
			delete(m.likes, like)
		}
	}
}
