package seed

import (
	"tideline/ent/schema"
	"tideline/feed/mention"
)

// none is the index of a post that a post does not have.
const none = -1

// nearby is how many of the posts before a post it may answer, repost or quote.
const nearby = 120

// The shares of the posts that are replies, reposts and quotes, if there is something nearby.
const (
	replyShare  = 0.22
	repostShare = 0.06
	quoteShare  = 0.04
)

// mentioning is a mention in a post.
type mentioning struct {
	person, post, start, end int
}

// talk makes some of the posts replies, reposts and quotes of posts before them, and mentions of the
// handles in their texts. Only public posts are answered. The demo user always has a conversation.
func (m *maker) talk() {
	t := talker{maker: m, blocked: map[[2]int]bool{}, follows: map[[2]int]bool{}, reposted: map[[2]int]bool{}}
	for _, b := range m.blocks {
		t.blocked[[2]int{b.from, b.to}], t.blocked[[2]int{b.to, b.from}] = true, true
	}
	for _, f := range m.follows {
		t.follows[[2]int{f.from, f.to}] = true
	}
	t.demo()
	for i := range m.posts {
		p := &m.posts[i]
		if p.kept || p.talks() || i == 0 {
			continue
		}
		d := m.Float64()
		if d > replyShare+repostShare+quoteShare {
			continue
		}
		other := t.other(i)
		switch {
		case other == none:
		case d < replyShare:
			t.reply(i, other)
		case d < replyShare+repostShare:
			t.repost(i, other)
		default:
			t.quote(i, other)
		}
	}
	t.mention()
}

// talker makes conversations.
type talker struct {
	*maker
	blocked, follows map[[2]int]bool // pairs of people
	reposted         map[[2]int]bool // person and original
}

// demo makes the first posts after a public post of the demo user a conversation with the demo user's
// friend.
func (t *talker) demo() {
	const demo, friend = 0, 1
	root, last, step := none, none, 0
	for i := range t.posts {
		p := &t.posts[i]
		if root == none {
			if p.kept && p.author == demo && p.visibility == schema.Public {
				root, last = i, i
			}
			continue
		}
		if p.kept {
			continue
		}
		switch step {
		case 0, 2, 4:
			p.author = friend
			t.reply(i, last)
			last = i
		case 1, 3:
			p.author = demo
			t.reply(i, last)
			last = i
		case 5:
			p.author = friend
			t.repost(i, root)
		case 6:
			p.author = friend
			t.quote(i, root)
		default:
			return
		}
		step++
	}
}

// talks reports whether the post is a reply, a repost or a quote.
func (p *post) talks() bool { return p.parent != none || p.original != none || p.quoted != none }

// other returns a public post shortly before the post i that its author may answer, preferably by
// somebody that the author follows, or none.
func (t *talker) other(i int) int {
	author, found := t.posts[i].author, none
	for range 40 {
		j := i - 1 - t.IntN(min(nearby, i))
		p := &t.posts[j]
		if p.author == author || p.original != none || p.visibility != schema.Public || t.blocked[[2]int{author, p.author}] {
			continue
		}
		if p.root != none && t.blocked[[2]int{author, t.posts[p.root].author}] {
			continue
		}
		if found = j; t.follows[[2]int{author, p.author}] {
			break
		}
	}
	return found
}

func (t *talker) reply(i, parent int) {
	p, to := &t.posts[i], &t.posts[parent]
	p.parent, p.root, p.visibility = parent, to.root, schema.Public
	if p.root == none {
		p.root = parent
	}
	if t.Float64() < 0.5 {
		p.text = t.fill(one(t.maker, replies), words)
	}
	if t.Float64() < 0.5 {
		p.text = "@" + t.people[to.author].handle + " " + p.text
	}
	to.replies++
}

func (t *talker) repost(i, original int) {
	p, of := &t.posts[i], &t.posts[original]
	if pair := [2]int{p.author, original}; !t.reposted[pair] {
		t.reposted[pair] = true
		p.original, p.root, p.text, p.visibility = original, of.root, "", schema.Public
		of.reposts++
	}
}

func (t *talker) quote(i, quoted int) {
	t.posts[i].quoted = quoted
	t.posts[quoted].quotes++
}

// mention finds the mentions in all texts, as for posts that are written.
func (t *talker) mention() {
	people := map[string]int{}
	for i, p := range t.people {
		people[p.handle] = i
	}
	for i, p := range t.posts {
		for _, m := range mention.In(p.text) {
			if person, ok := people[m.Handle]; ok && !t.blocked[[2]int{p.author, person}] {
				t.mentions = append(t.mentions, mentioning{person, i, m.Start, m.End})
			}
		}
	}
}
