package oracle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
)

// The tests in this file try the model itself, on examples that the rules state in words. Nothing of
// the product runs.

// circle is a model with named users.
type circle struct {
	*model
	t *testing.T
}

// Users of a circle. Ada is a friend of Bob, Cleo and Dan. Bob and Cleo are no friends of each
// other. Dan is a friend of all three. Eve follows nobody.
const (
	ada = iota
	bob
	cleo
	dan
	eve
)

func newCircle(t *testing.T) *circle {
	c := &circle{newModel(), t}
	for i := range 5 {
		c.users = append(c.users, person{id: int64(i + 1), handle: []string{"u0", "u1", "u2", "u3", "u4"}[i]})
	}
	for _, pair := range [][2]int{{ada, bob}, {ada, cleo}, {ada, dan}, {bob, dan}, {cleo, dan}} {
		c.befriend(pair[0], pair[1])
	}
	return c
}

func (c *circle) befriend(a, b int) {
	c.follows[[2]int{a, b}], c.follows[[2]int{b, a}] = true, true
}

func (c *circle) add(n note) int {
	n.id = int64(len(c.posts)+1) << 12
	c.posts = append(c.posts, n)
	return len(c.posts) - 1
}

func (c *circle) post(author int, v schema.Visibility) int { return c.add(newNote(0, author, v)) }

func (c *circle) answer(author, to int, v schema.Visibility) int {
	n := newNote(0, author, v)
	require.Empty(c.t, c.reply(&n, to))
	return c.add(n)
}

func (c *circle) passOn(author, post int) int {
	exists, code := c.repost(author, post)
	require.Empty(c.t, code)
	require.Equal(c.t, none, exists)
	return c.add(c.newRepost(0, author, post, schema.Public))
}

// shown requires that exactly these users see the post directly.
func (c *circle) shown(post int, to ...int) {
	c.t.Helper()
	var list []int
	for u := range c.users {
		if !c.users[u].hidden && c.sees(u, post) {
			list = append(list, u)
		}
	}
	require.Equal(c.t, to, list)
}

func TestModelShowsCommentsToFriendsOfTheirAuthors(t *testing.T) {
	c := newCircle(t)
	moment := c.post(ada, schema.Mutuals)
	byBob, byCleo := c.answer(bob, moment, schema.Mutuals), c.answer(cleo, moment, schema.Mutuals)

	c.shown(moment, ada, bob, cleo, dan)
	c.shown(byBob, ada, bob, dan)
	c.shown(byCleo, ada, cleo, dan)
	require.Equal(t, []int{byBob, byCleo}, c.conversation(ada, moment))
	require.Equal(t, []int{byBob}, c.conversation(bob, moment))
	require.Equal(t, []int{byCleo}, c.replies(cleo, moment))
	require.Equal(t, []int{byBob, byCleo}, c.conversation(dan, moment))
	require.True(t, c.tallies(2, func(n note) bool { return n.parent == moment }), "a count is the same for all")
}

func TestModelHidesRepliesWithTheirRoot(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	first := c.answer(bob, root, schema.Public)
	second := c.answer(eve, first, schema.Public)
	all := []int{ada, bob, cleo, dan, eve}
	c.shown(first, all...)
	c.shown(second, all...)

	c.posts[root].visibility = schema.Private
	c.shown(first, ada, bob)
	c.shown(second, ada, eve)
	require.Equal(t, []int{second}, c.conversation(eve, root), "authors keep what they wrote")
	require.Empty(t, c.ancestors(eve, second))
	c.posts[root].visibility = schema.Public
	c.shown(first, all...)

	c.posts[root].hidden = true
	c.shown(first, ada, bob)
	c.posts[root].hidden = false
	c.shown(second, all...)

	c.users[ada].hidden = true
	c.shown(first, bob)
	c.shown(second, eve)
	c.users[ada].hidden = false
	require.Equal(t, []int{root, first}, c.ancestors(cleo, second))

	c.remove(root)
	c.shown(first, bob)
	c.shown(second, eve)
	require.Equal(t, notFound, c.mayReply(eve, second), "a conversation ends with its root")
}

func TestModelKeepsAReplyWhoseParentIsDeleted(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	parent := c.answer(bob, root, schema.Public)
	leaf := c.answer(cleo, parent, schema.Public)
	c.remove(parent)
	c.shown(leaf, ada, bob, cleo, dan, eve)
	require.Equal(t, []int{root}, c.ancestors(dan, leaf))
	require.Equal(t, []int{leaf}, c.conversation(dan, root))
	require.True(t, c.tallies(0, func(n note) bool { return n.parent == root }))
}

func TestModelShowsARepostOfAReply(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	answer := c.answer(bob, root, schema.Public)
	again := c.passOn(dan, answer)
	require.Equal(t, again, c.repostBy(dan, answer))
	c.shown(again, ada, bob, cleo, dan, eve)
	require.True(t, c.gets(cleo, again), "a reposted reply is not subject to the setting for replies")
	require.False(t, c.gets(cleo, answer), "Cleo does not follow Bob")

	require.Equal(t, answer, c.newRepost(0, cleo, again, schema.Public).repostOf, "a repost of a repost leads to the original")

	c.posts[root].visibility = schema.Private
	c.shown(again, ada, bob)
	require.False(t, c.gets(dan, again), "the reposter does not see the original")
	require.True(t, c.belongs(cleo, again), "the inbox keeps it")
	c.posts[root].visibility = schema.Public
	require.True(t, c.gets(cleo, again))

	c.mutes[[2]int{cleo, bob}] = true
	require.False(t, c.gets(cleo, again), "Cleo mutes the author of the original")
	require.True(t, c.onProfile(cleo, again))
	c.blocks[[2]int{bob, cleo}] = true
	require.False(t, c.sees(cleo, again))

	c.undoRepost(dan, answer)
	require.Equal(t, none, c.repostBy(dan, answer))
	require.True(t, c.tallies(0, func(n note) bool { return n.repostOf == answer }))
}

func TestModelHidesARepostWhoseOriginalHasAMutedWord(t *testing.T) {
	c := newCircle(t)
	original := c.post(eve, schema.Public)
	c.posts[original].word = 1
	again := c.passOn(bob, original)
	require.True(t, c.gets(ada, again))
	c.words[[2]int{ada, 1}] = true
	require.False(t, c.gets(ada, again))
	require.True(t, c.sees(ada, again))
}

func TestModelMutesAConversation(t *testing.T) {
	c := newCircle(t)
	root := c.post(bob, schema.Public)
	answer := c.answer(dan, root, schema.Public)
	own := c.answer(ada, answer, schema.Public)
	ofRoot, ofAnswer, byAda := c.passOn(dan, root), c.passOn(bob, answer), c.passOn(ada, answer)
	everything := []int{byAda, ofAnswer, ofRoot, own, answer, root}
	require.Equal(t, everything, c.timeline(ada))

	c.muteConversation(ada, own, true)
	require.Equal(t, []int{byAda, ofRoot, own, root}, c.timeline(ada), "the root, its reposts and Ada's own posts stay")
	require.True(t, c.belongs(ada, answer), "the inbox keeps it")
	require.Equal(t, []int{answer, own}, c.conversation(ada, root))
	require.True(t, c.onProfile(ada, answer))
	require.True(t, c.gets(bob, answer), "it concerns Ada alone")

	c.posts[root].visibility = schema.Private
	c.muteConversation(ada, root, false)
	c.posts[root].visibility = schema.Public
	require.Equal(t, everything, c.timeline(ada), "the root need not be visible")

	c.posts[answer].hidden = true
	c.muteConversation(ada, answer, true)
	c.posts[answer].hidden = false
	require.Equal(t, everything, c.timeline(ada), "a reply that is not visible does not tell of its conversation")
}

func TestModelShowsAReplyToThoseItAnswers(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	parent := c.answer(eve, root, schema.Public)
	leaf := c.answer(bob, parent, schema.Private)
	c.shown(leaf, ada, bob, eve)
	for _, v := range []int{ada, eve} {
		require.False(t, c.onProfile(v, leaf))
		require.False(t, c.gets(v, leaf))
		require.Equal(t, []int{leaf}, c.replies(v, parent))
	}
	c.posts[leaf].hidden = true
	c.shown(leaf, bob)
	c.posts[leaf].hidden = false
	c.block(ada, bob)
	c.shown(leaf, bob, eve) // Bob does not see the root, but the reply is his
}

func TestModelFollowsTheSettingForReplies(t *testing.T) {
	c := newCircle(t)
	root := c.post(eve, schema.Public)
	answer := c.answer(bob, root, schema.Public)
	toAda := c.answer(dan, c.post(ada, schema.Public), schema.Public)
	require.False(t, c.gets(ada, answer), "Ada does not follow Eve")
	require.True(t, c.gets(bob, answer))
	require.True(t, c.gets(ada, toAda))
	c.setHomeReplies(ada, schema.AllReplies)
	require.True(t, c.gets(ada, answer))
	c.mutes[[2]int{ada, eve}] = true
	require.False(t, c.gets(ada, answer), "Ada mutes the author of the root")
	delete(c.mutes, [2]int{ada, eve})
	c.setHomeReplies(ada, schema.NoReplies)
	require.False(t, c.gets(ada, toAda))
	require.True(t, c.gets(dan, toAda))
}

func TestModelInvitesAnAudience(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	c.follows[[2]int{eve, ada}] = true
	c.posts[root].says(c.model, 3)
	may := func(check func(int, int) string, post int) (list []int) {
		for u := range c.users {
			if check(u, post) == "" {
				list = append(list, u)
			}
		}
		return list
	}
	answer := c.answer(dan, root, schema.Public)
	for audience, want := range map[schema.Audience][]int{
		schema.Everyone: {ada, bob, cleo, dan, eve}, schema.OnlyFollowers: {ada, bob, cleo, dan, eve}, schema.OnlyMutuals: {ada, bob, cleo, dan},
		schema.OnlyMentioned: {ada, bob}, schema.OnlyAuthors: {ada},
	} {
		require.Empty(t, c.setAudience(ada, root, audience, audience))
		require.Equal(t, want, may(c.mayReply, root), audience)
		require.Equal(t, want, may(c.mayReply, answer), audience)
		require.Equal(t, want, may(c.mayQuote, root), audience)
	}
	require.Equal(t, forbidden, c.setAudience(bob, root, schema.Everyone, ""))
	require.Equal(t, badInput, c.setAudience(dan, answer, schema.Everyone, ""))
}

func TestModelCountsQuotes(t *testing.T) {
	c := newCircle(t)
	quoted := c.post(ada, schema.Public)
	n := newNote(0, bob, schema.Public)
	require.Empty(t, c.quote(&n, quoted))
	quote := c.add(n)
	count := func(n int) bool {
		return c.tallies(n, func(n note) bool { return n.quoteOf == quoted && !n.withdrawn })
	}
	require.True(t, count(1))
	require.Equal(t, []int{quote}, c.quotes(cleo, quoted))
	require.Equal(t, notFound, c.withdrawQuote(bob, quote))
	require.Empty(t, c.withdrawQuote(ada, quote))
	require.True(t, count(0))
	c.shown(quote, ada, bob, cleo, dan, eve)
}

func TestModelForgetsTheCountsOfADeletedUser(t *testing.T) {
	c := newCircle(t)
	root := c.post(ada, schema.Public)
	c.answer(bob, root, schema.Public)
	c.passOn(bob, root)
	n := newNote(0, bob, schema.Public)
	require.Empty(t, c.quote(&n, root))
	c.add(n)
	for _, match := range []func(n note) bool{
		func(n note) bool { return n.parent == root }, func(n note) bool { return n.repostOf == root }, func(n note) bool { return n.quoteOf == root },
	} {
		c.users[bob] = person{id: 2}
		require.True(t, c.tallies(1, match))
		require.False(t, c.tallies(0, match))
		c.users[bob].hidden, c.users[bob].leaving = true, true
		require.True(t, c.tallies(1, match))
		require.True(t, c.tallies(0, match))
		c.bury(bob)
		require.False(t, c.tallies(1, match))
		require.True(t, c.tallies(0, match))
	}
}
