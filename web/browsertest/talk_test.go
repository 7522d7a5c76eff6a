package browsertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"tideline/storage/storagetest"
)

// card returns an expression for the post with this text of its own.
func card(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('article')].find((e) => e.querySelector('.body > .text')?.textContent === %s)`, js(text))
}

// within returns an expression for the first element that the selector finds in the post with this text.
func within(text, selector string) string {
	return fmt.Sprintf(`%s?.querySelector(%s)`, card(text), js(selector))
}

// menu chooses an item in the repost menu of a post.
func (p *page) menu(post, item string) {
	p.t.Helper()
	p.clickOn(within(post, ".repost summary"))
	p.see(within(post, ".repost") + `.open`)
	p.clickOn(fmt.Sprintf(`[...%s.querySelectorAll('.repost button')].find((e) => e.textContent === %s)`, card(post), js(item)))
}

// shot writes a picture of the page if the test runs with -screenshots.
func (p *page) shot(name string) {
	p.t.Helper()
	if *screenshots != "" {
		p.picture(filepath.Join(*screenshots, name+".png"), 1280, 900)
	}
}

// Two people sign up and talk in two browsers at once: each sees what the other does.
func TestTwoPeopleTalk(t *testing.T) {
	t.Parallel()
	s := serve(t)
	bob, ada := open(t, s.url), open(t, s.url)
	for _, who := range []struct {
		p            *page
		handle, name string
	}{{bob, "bob", "Bob"}, {ada, "ada", "Ada"}} {
		who.p.fill("Handle", who.handle)
		who.p.fill("Name", who.name)
		who.p.fill("Password", password)
		who.p.click("Sign up")
		who.p.see(live)
	}
	const news, answer = "Low water at six", "Are you bringing boots?"
	bob.draft(news)
	bob.click("Post")
	bob.shows(news)
	ada.click("Follow @bob")
	ada.shows(news)
	bob.visit(s.url + "/@ada")
	bob.click("Follow @ada")
	bob.sees("friends")
	bob.click("Home")

	// Ada replies below the post. Her reply is in her own timeline at once.
	ada.pressIn(news, "Reply")
	ada.see(`document.activeElement === document.querySelector('article textarea')`)
	ada.write(answer)
	ada.key(kb.Enter, chromedp.ModifierCtrl)
	ada.sees("Replied.")
	ada.shows(answer, news)
	ada.see(within(answer, ".replying") + `?.textContent === 'Replying to @bob'`)
	ada.see(within(news, ".reply") + `?.ariaLabel === 'Reply, 1 reply'`)
	ada.see(pill + ` === undefined`)

	// Bob gets it, and the count.
	bob.see(within(news, ".reply") + `?.ariaLabel === 'Reply, 1 reply'`)
	bob.click("1 new post")
	bob.shows(answer, news)
	bob.shot("talk-home")

	// He answers in the thread, with her handle completed by the keyboard.
	bob.clickOn(within(answer, ".when"))
	bob.see(`document.querySelector('.thread .text')?.textContent === ` + js(answer))
	bob.see(`document.querySelector('.ancestor .text')?.textContent === ` + js(news))
	bob.sees("No replies yet.")
	bob.fillIn(`document.querySelector('.thread ~ .compose textarea')`, "Two pairs, @ad")
	bob.see(`document.querySelector('[role=listbox] [aria-selected=true]')?.textContent === 'AAda @ada'`)
	bob.see(`document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).ariaSelected === 'true'`)
	bob.shot("talk-completion")
	bob.key(kb.Enter)
	bob.see(`document.querySelector('[role=listbox]') === null && document.activeElement.value === 'Two pairs, @ada '`)
	bob.key(kb.Enter, chromedp.ModifierCtrl)
	const pairs = "Two pairs, @ada"
	bob.see(within(pairs, ".text a") + `?.pathname === '/@ada'`)
	bob.see(`document.querySelector('.thread ~ .head h2').textContent === '1 reply'`)
	bob.shot("talk-thread")
	bob.click("Home")

	// Ada gets the answer, too, and reposts the first post: it stays where she reads it.
	ada.click("1 new post")
	ada.shows(pairs, answer, news)
	ada.menu(news, "Repost")
	ada.see(within(news, ".repost summary") + `?.ariaLabel === 'Repost, 1 repost'`)
	ada.shows(pairs, answer, news)
	ada.see(pill + ` === undefined`)

	// Bob has it under the repost, once.
	bob.see(`new Set(` + texts + `).size === 3`)
	bob.see(pill + ` === '1 new post'`)
	bob.click("1 new post")
	bob.shows(news, pairs, answer)
	bob.see(within(news, ".reposted") + `?.innerText === 'Reposted by Ada'`)
	ada.menu(news, "Undo repost")
	ada.see(within(news, ".repost summary") + `?.ariaLabel === 'Repost, 0 reposts'`)
	bob.shows(pairs, answer, news)
	bob.see(within(news, ".reposted") + ` === null`)

	// Ada quotes, and Bob withdraws his post from her quote.
	ada.menu(news, "Quote")
	const comment = "Worth getting up for"
	ada.see(`document.querySelector('dialog .excerpt')?.textContent === ` + js(news))
	ada.see(`document.activeElement === document.querySelector('dialog textarea')`)
	ada.write(comment)
	ada.shot("talk-quote-box")
	ada.key(kb.Enter, chromedp.ModifierCtrl)
	ada.see(`document.querySelector('dialog') === null`)
	ada.shows(comment, pairs, answer, news)
	ada.see(within(comment, ".excerpt") + `?.textContent === ` + js(news))
	bob.click("1 new post")
	bob.shows(comment, pairs, answer, news)
	bob.see(within(news, ".repost summary") + `?.ariaLabel === 'Repost, 1 (0 reposts, 1 quote)'`)
	bob.shot("talk-quote")
	bob.clickOn(within(comment, ".withdraw"))
	bob.sees("This cannot be undone.")
	bob.click("Withdraw the quote")
	const withdrawn = "The author of the quoted post withdrew the quote."
	bob.see(within(comment, ".quoted") + `?.textContent === ` + js(withdrawn))
	ada.see(within(comment, ".quoted") + `?.textContent === ` + js(withdrawn))
	assert.EqualValues(t, 0, ada.value(`document.querySelectorAll('.wrong').length`))
}

// A repost that fails is taken back, with a notice.
func TestAFailedRepostIsTakenBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	post := bob.post("one")
	a := ada.browse()
	a.shows("one")
	a.offline(true)
	a.see(`document.querySelector('.live').textContent === 'Offline'`)
	a.menu("one", "Repost")
	a.sees("The server cannot be reached.")
	a.see(within("one", ".repost summary") + `.ariaLabel === 'Repost, 0 reposts' && ` + within("one", ".repost.done") + ` === null`)
	a.offline(false)
	a.see(live)

	// What else changed meanwhile stays.
	a.value(holds("Repost"))
	a.menu("one", "Repost")
	a.see(within("one", ".repost.done") + ` !== null`)
	a.pressIn("one", "Like, 0 likes")
	bob.awaitLikes(post, 1)
	a.answer(false)
	a.see(within("one", ".repost.done") + ` === null && ` + within("one", ".like") + `.ariaPressed === 'true'`)
	a.menu("one", "Repost")
	a.answer(true)
	a.see(within("one", ".repost.done summary") + `?.ariaLabel === 'Repost, 1 repost'`)
	a.reload()
	a.see(within("one", ".repost.done") + ` != null`)
	a.see(within("one", ".reposted") + `?.innerText === 'Reposted by you'`)

	// A post that is shown because of the viewer's repost stays if that cannot be undone.
	ada.relate("unfollow", bob)
	a.reload()
	a.see(within("one", ".reposted") + `?.innerText === 'Reposted by you'`)
	a.value(holds("UndoRepost"))
	a.menu("one", "Undo repost")
	a.answer(false)
	a.sees("The server cannot be reached.")
	a.see(within("one", ".repost.done") + ` != null`)
	a.forgive()
}

// An original is shown once under its newest repost, also when reposts are undone and when the original itself comes.
func TestAnOriginalIsShownOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob, cyd, dan := s.signUp("ada"), s.signUp("bob"), s.signUp("cyd"), s.signUp("dan")
	ada.relate("follow", bob)
	ada.relate("follow", cyd)
	original := dan.post("original")
	input := map[string]any{"postId": original}
	repost := func(by *person) {
		by.must(`mutation($i: RepostInput!) { repost(input: $i) { post { id } } }`, input, nil)
	}
	undo := func(by *person) {
		by.must(`mutation($i: PostInput!) { undoRepost(input: $i) { post { id } } }`, input, nil)
	}
	repost(bob)
	bob.post("between")
	a := ada.browse()
	a.shows("between", "original")
	a.see(within("original", ".reposted") + `.innerText === 'Reposted by Bob'`)
	repost(cyd)
	a.click("1 new post")
	a.shows("original", "between")
	a.see(within("original", ".reposted") + `.innerText === 'Reposted by Cyd and 1 other'`)
	undo(cyd)
	a.shows("between", "original")
	a.see(within("original", ".reposted") + `.innerText === 'Reposted by Bob'`)

	// A like of the repost is a like of the original.
	a.pressIn("original", "Like, 0 likes")
	dan.awaitLikes(original, 1)

	a.visit(s.url + "/@dan")
	a.click("Follow @dan")
	a.sees("Following")
	a.click("Home")
	a.shows("between", "original")
	undo(bob)
	a.see(within("original", ".reposted") + ` === null`)
	a.shows("between", "original")
	repost(bob)
	a.click("1 new post")
	a.shows("original", "between")
	bob.write(map[string]any{"text": "see @dan", "quoteOf": original})
	a.click("1 new post")
	a.shows("see @dan", "original", "between")
	a.see(within("see @dan", ".excerpt") + `.textContent === 'original'`)
	dan.must(`mutation($i: DeletePostInput!) { deletePost(input: $i) { deletedPostId } }`, input, nil)
	a.shows("see @dan", "between")

	// A mention leads to its user after a change of the handle.
	dan.must(`mutation($i: ChangeHandleInput!) { changeHandle(input: $i) { user { id } } }`, map[string]any{"handle": "daniel"}, nil)
	a.reload()
	a.see(within("see @dan", ".quoted") + `?.textContent === 'The quoted post is not available.'`)
	a.see(within("see @dan", ".text a") + `?.pathname === '/@daniel'`)
}

// The author of a post decides who may reply, and the app gives the reason to those who may not.
func TestWhoMayReply(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	b := bob.browse()
	b.draft("followers only")
	b.choose(`document.querySelector('.compose select[aria-label="Who may reply"]')`, "FOLLOWERS")
	b.click("Post")
	b.shows("followers only")
	const reason = "Only followers of the author may reply."
	a := ada.browse()
	a.visit(s.url + "/@bob")
	a.see(within("followers only", ".reply") + `?.ariaDisabled === 'true'`)
	a.see(within("followers only", ".reply") + `.ariaLabel === 'Reply, 0 replies, ` + reason + `'`)
	a.pressIn("followers only", "Reply")
	a.see(`document.querySelector('.notices').innerText === ` + js(reason))
	a.see(`document.querySelector('article textarea') === null`)
	a.click("Follow @bob")
	a.see(within("followers only", ".reply") + `?.ariaDisabled === null`)
	a.clickOn(within("followers only", ".when"))
	a.fillIn(`document.querySelector('.thread ~ .compose textarea')`, "thanks")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.shows("thanks")

	// Bob wants no replies in his timeline. They stay in the conversation.
	bob.relate("follow", ada)
	b.visit(s.url)
	b.shows("thanks", "followers only")
	b.click("Settings")
	b.click("Profile Name")
	b.clickOn(`document.querySelector('input[name=replies][value=NONE]')`)
	b.click("Save")
	b.sees("Saved.")
	b.click("Home")
	b.shows("followers only")
	b.clickOn(within("followers only", ".when"))
	b.shows("thanks")

	// He changes who may reply. What was said stays.
	b.choose(`document.querySelector('.thread select[aria-label="Who may reply"]')`, "NOBODY")
	b.see(`document.querySelector('.notices').innerText === 'No replies'`)
	a.reload()
	a.see(`document.querySelector('.closed')?.innerText === 'The author accepts no replies.'`)
	a.shows("thanks")
}

// The viewer mutes a conversation in the menu of a post: its replies leave the timeline, the first post
// stays, and the page of the thread has everything.
func TestMutingAConversation(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	root := bob.post("root")
	first := bob.write(map[string]any{"text": "first", "replyTo": root})
	a, visitor := ada.browse(), open(t, s.url)
	a.shows("first", "root")
	further := func(post, item string) {
		t.Helper()
		a.clickOn(within(post, ".further summary"))
		a.clickOn(fmt.Sprintf(`[...%s.querySelectorAll('.further button')].find((e) => e.textContent === %s)`, card(post), js(item)))
	}
	further("first", "Mute conversation")
	a.sees("Conversation muted: its replies stay out of your timeline.")
	a.shows("root")
	bob.write(map[string]any{"text": "second", "replyTo": first})
	bob.post("later")
	a.click("1 new post")
	a.shows("later", "root")
	a.visit(s.url + "/settings/conversations")
	a.shows("root")

	a.clickOn(within("root", ".when"))
	a.shows("first")
	a.see(within("first", ".further button") + `.textContent === 'Unmute conversation'`)
	further("root", "Unmute conversation")
	a.sees("Conversation no longer muted.")
	a.see(within("first", ".further button") + `.textContent === 'Mute conversation'`)
	a.visit(s.url + "/settings/conversations")
	a.sees("You mute no conversations.")
	a.click("Home")
	a.shows("later", "second", "first", "root")

	visitor.visit(s.url + "/post/" + root)
	visitor.shows("first")
	visitor.see(`document.querySelector('.further') === null`)
}

// The page of a post loads its replies page by page, in three orders, and offers the ones that come later.
func TestRepliesOfAThread(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	root := bob.post("root")
	const n = 25
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("reply %02d", i))
		reply := bob.write(map[string]any{"text": want[i], "replyTo": root})
		if i == 7 {
			ada.must(`mutation($i: LikePostInput!) { likePost(input: $i) { post { id } } }`, map[string]any{"postId": reply}, nil)
			ada.awaitLikes(reply, 1)
		}
	}
	a := ada.browse()
	a.visit(s.url + "/post/" + root)
	a.see(texts + `.length === 20`)
	a.click("Load more")
	a.shows(want...)
	a.click("Newest")
	a.see(texts + `.length === 20 && ` + texts + `[0] === 'reply 24'`)
	a.click("Top")
	a.see(texts + `.length === 20 && ` + texts + `[0] === 'reply 07'`)
	a.click("Newest")
	a.see(texts + `[0] === 'reply 24'`)
	bob.write(map[string]any{"text": "later", "replyTo": root})
	// It waits, because it would move what is being read.
	a.see(newReplies + ` === '1 new reply' && ` + texts + `[0] === 'reply 24'`)
	a.click("1 new reply")
	a.see(texts + `[0] === 'later' && document.activeElement.querySelector('.text')?.textContent === 'later'`)
	a.see(newReplies + ` === undefined`)

	// A visitor reads the conversation as well.
	v := open(t, s.url)
	v.visit(s.url + "/post/" + root)
	v.see(texts + `.length === 20`)
	v.sees("26 replies")
	v.see(`document.querySelector('.compose, .acts button') === null`)
}

// newReplies is an expression for the text of the button that shows waiting replies.
const newReplies = `document.querySelector('.arrived button')?.innerText`

// Two people read a thread in two browsers: replies appear, change and vanish without a reload, at every depth.
func TestAThreadIsLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob, cyd := s.signUp("ada"), s.signUp("bob"), s.signUp("cyd")
	root := cyd.post("root")
	first := cyd.write(map[string]any{"text": "first", "replyTo": root})
	a, b := ada.browse(), bob.browse()
	for _, p := range []*page{a, b} {
		p.visit(s.url + "/post/" + root)
		p.shows("first")
	}

	// Ada replies. Bob sees it at once, and the count with it.
	a.fillIn(`document.querySelector('.thread ~ .compose textarea')`, "from ada")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	for _, p := range []*page{a, b} {
		p.shows("first", "from ada")
		p.see(`document.querySelector('.thread ~ .head h2').textContent === '2 replies'`)
	}
	a.see(`document.querySelector('.thread ~ .compose textarea').value === ''`)

	// A reply to a reply is not in the list, but it counts.
	cyd.write(map[string]any{"text": "deep", "replyTo": first})
	b.see(within("first", ".reply") + `?.ariaLabel === 'Reply, 1 reply'`)
	b.shows("first", "from ada")

	// A reply and the root are edited, and the reply is hidden and shown again.
	edit := func(id, text string) {
		cyd.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": id, "text": text}, nil)
	}
	edit(first, "edited")
	edit(root, "the root, edited")
	for _, p := range []*page{a, b} {
		p.see(`document.querySelector('.thread .text')?.textContent === 'the root, edited'`)
		p.shows("edited", "from ada")
	}
	setVisibility := func(id, visibility string) {
		cyd.must(`mutation($i: SetPostVisibilityInput!) { setPostVisibility(input: $i) { post { id } } }`, map[string]any{"postId": id, "visibility": visibility}, nil)
	}
	setVisibility(first, "PRIVATE")
	a.shows("from ada")
	setVisibility(first, "PUBLIC")
	// It belongs above what ada reads.
	a.see(newReplies + ` === '1 new reply'`)
	a.click("1 new reply")
	a.shows("edited", "from ada")
	a.see(`document.activeElement.querySelector('.text')?.textContent === 'edited'`)

	// Without a connection nothing arrives. Afterwards everything is there.
	b.offline(true)
	b.see(`document.querySelector('.live').textContent === 'Offline'`)
	cyd.write(map[string]any{"text": "meanwhile", "replyTo": root})
	a.shows("edited", "from ada", "meanwhile")
	b.offline(false)
	b.see(live)
	b.see(texts + `.includes('meanwhile')`)
	b.forgive()

	// A conversation goes with its root.
	cyd.must(`mutation($i: DeletePostInput!) { deletePost(input: $i) { deletedPostId } }`, map[string]any{"postId": root}, nil)
	a.sees("This post does not exist, or you may not see it.")
	a.shows()
}

// A reply that the server refuses leaves the thread, and its text is back in the box.
func TestARefusedReplyIsTakenBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	root := bob.post("root")
	a := ada.browse()
	a.visit(s.url + "/post/" + root)
	a.see(`document.querySelector('.thread') !== null`)
	box := `document.querySelector('.thread ~ .compose textarea')`
	a.fillIn(box, "too late")
	bob.must(`mutation($i: SetAudienceInput!) { setAudience(input: $i) { post { id } } }`, map[string]any{"postId": root, "replyAudience": "NOBODY"}, nil)
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.see(`document.querySelector('.compose .wrong')?.innerText.startsWith('Not posted.')`)
	a.see(box + `.value === 'too late'`)
	a.shows()
}

// What the reader looks at does not move when replies come.
func TestTheReaderOfAThreadKeepsThePlace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	root := bob.post("root")
	for i := range 18 {
		bob.write(map[string]any{"text": fmt.Sprintf("reply %02d", i), "replyTo": root})
	}
	a := ada.browse()
	a.visit(s.url + "/post/" + root)
	a.see(texts + `.length === 18`)
	for _, order := range []string{"Oldest", "Newest", "Top"} {
		a.click(order)
		a.see(texts + `.length >= 18 && document.querySelector('[aria-busy=true]') === null`)
		a.value(`document.querySelectorAll('article')[9].scrollIntoView({ behavior: 'instant' }), null`)
		const top = `Math.round(document.querySelectorAll('article')[9].getBoundingClientRect().top) + ' ' + document.querySelectorAll('article')[9].id`
		before := a.value(top)
		bob.write(map[string]any{"text": "later than " + order, "replyTo": root})
		if order == "Oldest" {
			a.see(texts + `.at(-1) === 'later than Oldest'`)
		} else {
			a.see(newReplies + ` === '1 new reply'`)
		}
		assert.Equal(t, before, a.value(top), order)
	}
}

// The author chooses who may quote a post, and changes it later.
func TestWhoMayQuote(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	b := bob.browse()
	b.draft("no quotes, please")
	b.choose(`document.querySelector('.compose select[aria-label="Who may quote"]')`, "NOBODY")
	b.click("Post")
	b.shows("no quotes, please")
	a := ada.browse()
	a.visit(s.url + "/@bob")
	const quote = ".repost button + button"
	a.see(within("no quotes, please", quote) + `?.disabled === true`)
	b.clickOn(within("no quotes, please", ".when"))
	b.choose(`document.querySelector('.thread select[aria-label="Who may quote"]')`, "EVERYONE")
	b.see(`document.querySelector('.notices').innerText === 'Everyone may quote'`)
	b.see(`document.querySelector('.thread select[aria-label="Who may quote"]').value === 'EVERYONE' && document.querySelector('.thread select[aria-label="Who may reply"]').value === 'EVERYONE'`)
	a.reload()
	a.see(within("no quotes, please", quote) + `?.disabled === false`)
}

// The counts on the page of a post lead to who reposted it, and to its quotes.
func TestListsOfAPost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob, cyd := s.signUp("ada"), s.signUp("bob"), s.signUp("cyd")
	root := bob.post("root")
	ada.must(`mutation($i: RepostInput!) { repost(input: $i) { post { id } } }`, map[string]any{"postId": root}, nil)
	cyd.must(`mutation($i: RepostInput!) { repost(input: $i) { post { id } } }`, map[string]any{"postId": root}, nil)
	cyd.write(map[string]any{"text": "hear, hear", "quoteOf": root})
	a := ada.browse()
	a.visit(s.url + "/post/" + root)
	a.see(`document.querySelector('.lists')?.innerText.replace(/\s+/g, ' ') === '2 reposts 1 quote'`)
	a.tabTo("2 reposts")
	a.key(kb.Enter)
	a.see(`[...document.querySelectorAll('main .people b')].map((e) => e.innerText).join() === 'Cyd,Ada'`)
	a.see(`document.querySelector('main nav [aria-current=page]').innerText === 'Reposted by'`)
	a.click("Quotes")
	a.shows("hear, hear")
	a.see(`document.querySelector('main nav [aria-current=page]').innerText === 'Quotes'`)
	ada.write(map[string]any{"text": "indeed", "quoteOf": root})
	a.shows("indeed", "hear, hear") // the viewer's own quote is there at once
	a.click("Back")
	a.see(`document.querySelectorAll('main .people b').length === 2`)
	a.click("Back")
	a.see(`document.querySelector('.thread .text')?.textContent === 'root'`)

	// A visitor sees them, too.
	v := open(t, s.url)
	v.visit(s.url + "/post/" + root + "/quotes")
	v.shows("indeed", "hear, hear")
	v.visit(s.url + "/post/" + bob.post("nothing yet") + "/reposts")
	v.sees("No reposts to show.")
}

// said is what the users of a conversation say, by language.
type said struct{ root, reply, deep, own, quote, gone string }

var speeches = map[string]said{
	"en": {
		root: "Spring tide on Sunday, 5.4 m. Who helps to move the boats above the line?", reply: "I can bring the trailer, and @ines has ropes.",
		deep: "Ropes, yes. Courage has to come from somebody else.", own: "Count me in after breakfast.",
		quote: "This is how it starts every year.", gone: "I take that back.",
	},
	"zh": {
		root: "星期天大潮，5.4 米。谁来帮忙把船移到潮线以上？", reply: "我可以带拖车，@ines 有绳子。", deep: "绳子有。勇气得别人带。", own: "早饭后算我一个。",
		quote: "每年都是这样开始的。", gone: "我收回那句话。",
	},
}

// TestConversationViews opens the views of a conversation in every look, on a small phone as well, and in both
// languages. It takes long because the accessibility checker runs on each.
func TestConversationViews(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	script := accessibility(t)
	for _, in := range tongues {
		t.Run(in.code, func(t *testing.T) {
			t.Parallel()
			say := speeches[in.code]
			s := serve(t)
			people := map[string]*person{}
			for _, handle := range []string{"ada", "marina", "tomas", "yuki", "ines"} {
				people[handle] = s.signUp(handle)
				people[handle].must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"name": in.name[handle]}, nil)
			}
			ada, marina, tomas, ines := people["ada"], people["marina"], people["tomas"], people["ines"]
			for _, handle := range []string{"marina", "tomas", "yuki", "ines"} {
				ada.relate("follow", people[handle])
			}
			marina.relate("follow", ada)
			root := marina.write(map[string]any{"text": say.root})
			reply := tomas.write(map[string]any{"text": say.reply, "replyTo": root})
			ines.write(map[string]any{"text": say.deep, "replyTo": reply})
			ines.write(map[string]any{"text": say.quote, "quoteOf": root})
			ada.write(map[string]any{"text": say.own, "replyTo": root})
			own := ada.write(map[string]any{"text": in.own})
			withdrawn := people["yuki"].write(map[string]any{"text": say.gone, "quoteOf": own})
			ada.must(`mutation($i: PostInput!) { withdrawQuote(input: $i) { post { id } } }`, map[string]any{"postId": withdrawn}, nil)
			people["yuki"].write(map[string]any{"text": say.quote, "quoteOf": own})
			closed := marina.write(map[string]any{"text": in.post["marina"][0], "replyAudience": "NOBODY"})
			for _, handle := range []string{"tomas", "yuki", "ines"} {
				people[handle].must(`mutation($i: RepostInput!) { repost(input: $i) { post { id } } }`, map[string]any{"postId": root}, nil)
			}

			p := ada.browse(speaks(in.code))
			look := func(name string) {
				t.Helper()
				p.looks("talk-"+name, script, in.code)
				p.look("talk-"+name+"-small-light", 360, 740, "light", in.code)
				p.size(1280, 900, false)
			}
			p.see(card(say.root) + ` !== undefined`)
			p.see(within(say.root, ".reposted") + ` !== null`)
			look("home")
			p.clickOn(within(say.root, ".repost summary"))
			look("menu")
			p.clickOn(within(say.root, ".repost button + button"))
			p.see(`document.querySelector('dialog textarea') === document.activeElement`)
			look("quote")
			p.write("@i")
			p.see(`document.querySelector('[role=option]') !== null`)
			look("completion")
			p.key(kb.Escape)
			p.see(`document.querySelector('[role=option]') === null && document.querySelector('dialog') !== null`)
			p.clickOn(`document.querySelector('dialog button')`)
			p.see(`document.querySelector('dialog') === null`)
			p.clickOn(within(say.root, ".reply"))
			p.see(`document.querySelector('article textarea') === document.activeElement`)
			look("reply")
			goTo("/post/"+root, func(tongue) string { return say.own })(p, in)
			look("thread")
			p.clickOn(`document.querySelector('.tabs button + button')`)
			p.see(texts + `[0] === ` + js(say.own))
			tomas.write(map[string]any{"text": say.gone, "replyTo": root})
			p.see(newReplies + ` !== undefined`)
			look("new-reply")
			goTo("/post/"+reply, func(tongue) string { return say.deep })(p, in)
			p.see(`document.querySelector('.ancestor') !== null`)
			look("ancestors")
			goTo("/post/"+closed, func(tongue) string { return in.post["marina"][0] })(p, in)
			p.see(`document.querySelector('.closed') !== null`)
			look("closed")
			goTo("/post/"+strings.Repeat("A", 12), func(in tongue) string { return "" })(p, in)
			p.see(`document.querySelector('.empty') !== null`)
			look("missing")
			p.offline(true)
			p.clickOn(`document.querySelector('nav a')`)
			p.clickOn(within(say.root, ".when"))
			p.see(`document.querySelector('.failure') !== null`)
			look("failing")
			p.offline(false) // the page tries again by itself
			p.see(`document.querySelector('.thread') !== null`)
			goTo("/post/"+root+"/reposts", func(in tongue) string { return in.name["ines"] })(p, in)
			look("reposts")
			p.clickOn(`document.querySelector('main nav a + a')`)
			p.see(card(say.quote) + ` !== undefined`)
			look("quotes")
			goTo("/post/"+closed+"/quotes", func(tongue) string { return "" })(p, in)
			p.see(`document.querySelector('.empty') !== null`)
			look("no-quotes")
			goTo("/post/"+strings.Repeat("A", 12)+"/reposts", func(tongue) string { return "" })(p, in)
			p.see(`document.querySelector('.empty') !== null`)
			goTo("/post/"+own, func(tongue) string { return in.own })(p, in)
			p.see(`document.querySelectorAll('.thread .choice').length === 3`)
			look("own-thread")
			p.offline(true)
			p.clickOn(`document.querySelector('.lists a')`)
			p.see(`document.querySelector('.failure') !== null`)
			look("quotes-failing")
			p.offline(false) // the page tries again by itself
			p.see(card(say.quote) + ` !== undefined`)
			p.forgive()
		})
	}
}

// write creates a post and returns its id.
func (p *person) write(input map[string]any) string {
	p.s.t.Helper()
	var answer struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	p.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, input, &answer)
	return answer.CreatePost.Post.ID
}
