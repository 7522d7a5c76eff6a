package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

const (
	pill  = `document.querySelector('.new-posts')?.textContent`
	texts = `[...document.querySelectorAll('.posts article:not(.pending) .text')].map((e) => e.textContent)`
)

// shows waits until the page shows exactly these posts, from top to bottom.
func (p *page) shows(want ...string) {
	p.t.Helper()
	p.see(fmt.Sprintf(`JSON.stringify(%s) === %s`, texts, js(js(append([]string{}, want...)))))
}

// pressIn presses the control with this name in the post with this text.
func (p *page) pressIn(post, name string) {
	p.t.Helper()
	p.clickOn(fmt.Sprintf(`[...document.querySelectorAll('article')].find((e) => e.textContent.includes(%s))
		?.querySelector('button[aria-label^=' + %s + ']')`, js(post), js(js(name))))
}

// draft types into the box for a new post.
func (p *page) draft(text string) {
	p.t.Helper()
	p.fillIn(`document.querySelector('textarea')`, text)
}

// choose selects a value in the select element that the expression returns.
func (p *page) choose(expression, value string) {
	p.t.Helper()
	p.see(expression + ` != null`)
	p.value(fmt.Sprintf(`((s) => { s.value = %s; s.dispatchEvent(new Event('change', { bubbles: true })) })(%s)`, js(value), expression))
}

func TestTwoPeople(t *testing.T) {
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
	bob.draft("Low water")
	bob.click("Post")
	bob.shows("Low water")

	// Ada's timeline is empty, so the page suggests users to her.
	ada.sees("Still water")
	ada.click("Follow @bob")
	ada.shows("Low water")
	ada.see(`document.querySelector('.tideline') === null`)

	bob.draft("High water")
	bob.key(kb.Enter, chromedp.ModifierCtrl)
	bob.shows("High water", "Low water")
	bob.see(pill + ` === undefined`)

	ada.see(pill + ` === '1 new post'`)
	ada.shows("Low water") // the new post waits until Ada presses the button
	ada.see(`document.title === '(1) Home · Tideline'`)
	ada.click("1 new post")
	ada.shows("High water", "Low water")
	ada.sees("You read up to here")
	ada.see(`document.title === 'Home · Tideline'`)

	ada.pressIn("High water", "Like, 0 likes")
	ada.see(`document.querySelector('.like').ariaPressed === 'true' && document.querySelector('.like').ariaLabel === 'Like, 1 like'`)

	// The ranked order puts a liked post before a slightly newer one.
	ada.pressIn("High water", "Like, 1 like")
	ada.see(`document.querySelector('.like').ariaPressed === 'false'`)
	ada.pressIn("Low water", "Like, 0 likes")
	bob.pressIn("Low water", "Like")
	// The pages show likes before the server has them, so wait for the server.
	ada.see(`new Promise((later) => setTimeout(later, 100)).then(() => fetch('/graphql', {
		method: 'POST', headers: { 'Content-Type': 'application/json' },
		body: JSON.stringify({ query: '{ user(handle: "bob") { posts(first: 2) { nodes { text likeCount } } } }' }),
	})).then((answer) => answer.json()).then(({ data }) => data.user.posts.nodes.map((p) => p.text + ' ' + p.likeCount).join() === 'High water 0,Low water 2')`)
	ada.click("Ranked")
	ada.shows("Low water", "High water")
	ada.click("Latest")
	ada.shows("High water", "Low water")

	// The session and the read marker survive a reload.
	ada.reload()
	ada.see(live)
	ada.shows("High water", "Low water")
	bob.reload()
	bob.shows("High water", "Low water")
	assert.Equal(t, "Like, 2 likes", bob.value(`[...document.querySelectorAll('.like')][1].ariaLabel`))
}

// Likes of other users appear on the page at once, also beside the viewer's own like.
func TestLikesOfOthersShow(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob, cyd := s.signUp("ada"), s.signUp("bob"), s.signUp("cyd")
	ada.relate("follow", bob)
	post := bob.post("one")
	likes := func(p *person) {
		p.must(`mutation($i: LikePostInput!) { likePost(input: $i) { post { id } } }`, map[string]any{"postId": post}, nil)
	}
	a := ada.browse()
	a.shows("one")
	likes(bob)
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 1 like'`)
	a.pressIn("one", "Like, 1 like")
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 2 likes'`)
	likes(cyd)
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 3 likes'`)
	a.see(`document.querySelector('.like').ariaPressed === 'true'`)

	// The page of the post also updates for a user who does not follow the author.
	c := cyd.browse()
	c.visit(s.url + "/post/" + post)
	c.see(`document.querySelector('.like').ariaLabel === 'Like, 3 likes'`)
	ada.must(`mutation($i: LikePostInput!) { unlikePost(input: $i) { post { id } } }`, map[string]any{"postId": post}, nil)
	c.see(`document.querySelector('.like').ariaLabel === 'Like, 2 likes'`)
}

// The counter shows how much longer a text may become. A longer text cannot be posted.
func TestTextThatIsTooLong(t *testing.T) {
	t.Parallel()
	a := serve(t).signUp("ada").browse()
	const post = `document.querySelector('.compose button:last-child')`
	a.draft(strings.Repeat("🐙", 5001))
	a.see(`document.querySelector('.compose .wrong.count')?.textContent === '1 too many' && document.activeElement.ariaInvalid === 'true'`)
	a.see(post + `.disabled`)
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.key(kb.Backspace)
	a.see(`document.querySelector('.compose .muted.count')?.textContent === '0 left'`)
	a.see(`!` + post + `.disabled`)
	assert.EqualValues(t, 0, a.value(`document.querySelectorAll('article').length`))
}

func TestUnreadLine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("one")
	a := ada.browse()
	a.shows("one")
	a.see(`document.querySelector('.unread')?.textContent === '1 new since you last read'`)
	// The app marks the post as read after it has been in view for a second.
	a.see(unread + `.then((n) => n === 0)`)
	a.visit(s.url + "/settings")
	bob.post("two")
	bob.post("three")
	a.visit(s.url)
	a.shows("three", "two", "one")
	a.see(`document.querySelector('.unread')?.textContent === '2 new since you last read'`)
	a.see(`document.querySelector('.tideline').nextElementSibling.textContent.includes('one')`)
}

// An author who deletes a post on its own page is told that it is deleted.
func TestDeleteOnItsOwnPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post("regretted")
	a := ada.browse()
	a.clickOn(within("regretted", ".when"))
	a.see(`document.querySelector('.thread article') !== null`)
	a.pressIn("regretted", "Delete")
	a.sees("Delete this post?")
	a.click("Delete")
	a.see(`document.querySelector('main .empty')?.innerText.trim() === 'Post deleted.'`)
	a.reload()
	a.sees("This post does not exist, or you may not see it.")
}

// Posts that were read on another device are not new on this page, even while it is hidden.
func TestReadOnAnotherDevice(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("one")
	bob.post("two")
	a := ada.browse(begins(`Object.defineProperty(document, 'visibilityState', { value: 'hidden' })`))
	a.shows("two", "one")
	a.see(`document.querySelector('.unread')?.textContent === '2 new since you last read'`)
	read := func(i int) {
		var page struct {
			Timeline struct{ Edges []struct{ Cursor string } }
		}
		ada.must(`{ timeline { edges { cursor } } }`, nil, &page)
		ada.must(`mutation($i: MarkTimelineReadInput!) { markTimelineRead(input: $i) { unreadCount } }`, map[string]any{"upTo": page.Timeline.Edges[i].Cursor}, nil)
	}
	read(1)
	a.see(`document.querySelector('.unread')?.textContent === '1 new since you last read'`)
	a.see(`document.querySelector('.tideline').nextElementSibling.textContent.includes('one')`)
	read(0)
	a.see(`document.querySelector('.unread') === null && document.querySelector('.tideline') === null`)
}

// "Mark all as read" leaves the posts that wait, also below an own post, which is shown at once.
func TestAllReadLeavesWhatWaits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("one")
	a := ada.browse(begins(`Object.defineProperty(document, 'visibilityState', { value: 'hidden' })`))
	a.shows("one")
	bob.post("two")
	a.see(pill + ` === '1 new post'`)
	a.draft("mine")
	a.click("Post")
	a.shows("mine", "one")
	a.click("Mark all as read")
	require.Eventually(t, func() bool {
		var page struct{ Timeline struct{ UnreadCount int } }
		ada.must(`{ timeline { unreadCount } }`, nil, &page)
		require.NotZero(t, page.Timeline.UnreadCount)
		return page.Timeline.UnreadCount == 1
	}, time.Minute, 20*time.Millisecond)
}

// A page keeps up with what the viewer changes on another device, and does not change it back.
func TestTwoDevicesOfOneUser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	a := ada.browse()
	a.visit(s.url + "/settings/profile")
	const name = `document.querySelector('[name=name]')`
	a.see(name + ` !== null`)
	const update = `mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`
	ada.must(update, map[string]any{"approvesFollowers": true, "defaultVisibility": "FOLLOWERS"}, nil)
	a.retype(name, "Ada L")
	a.click("Save")
	a.sees("Saved.")
	var found struct {
		Viewer struct {
			Name              string
			ApprovesFollowers bool
			DefaultVisibility string
		}
	}
	ada.must(`{ viewer { name approvesFollowers defaultVisibility } }`, nil, &found)
	require.Equal(t, "Ada L", found.Viewer.Name)
	require.True(t, found.Viewer.ApprovesFollowers)
	require.Equal(t, "FOLLOWERS", found.Viewer.DefaultVisibility)

	ada.must(update, map[string]any{"defaultVisibility": "MUTUALS"}, nil)
	a.value(`(document.dispatchEvent(new Event('visibilitychange')), null)`)
	a.click("Home")
	a.see(`document.querySelector('form.compose select')?.value === 'MUTUALS'`)
}

func TestWhatMayNoLongerBeSeenGoesAtOnce(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	for _, text := range []string{"stays", "is deleted", "is hidden"} {
		bob.post(text)
	}
	a, b := ada.browse(), bob.browse()
	a.shows("is hidden", "is deleted", "stays")
	b.shows("is hidden", "is deleted", "stays")

	b.pressIn("is deleted", "Delete")
	b.sees("Delete this post?")
	b.click("Delete")
	b.shows("is hidden", "stays")
	a.shows("is hidden", "stays")

	b.choose(`document.querySelector('article select')`, "PRIVATE")
	b.sees("Seen by: Only me")
	a.shows("stays")

	// An open profile page changes as well.
	profile := open(t, s.url)
	profile.value(fmt.Sprintf(`localStorage['tideline:session'] = %s`, js(a.value(`localStorage['tideline:session']`))))
	profile.visit(s.url + "/@bob")
	profile.shows("stays")
	profile.see(live)

	b.visit(s.url + "/@ada")
	b.click("More: @ada")
	b.click("Block")
	b.sees("Block @ada?")
	b.click("Block")
	b.sees("You block @ada")
	a.shows()
	profile.shows()
}

func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	gone := bob.post("before, deleted")
	bob.post("before")
	a := ada.browse()
	a.shows("before", "before, deleted")
	a.draft("half a thought")

	s.stop()
	a.see(`document.querySelector('.live').textContent === 'Reconnecting'`)
	s.start()
	bob.must(`mutation($i: DeletePostInput!) { deletePost(input: $i) { deletedPostId } }`, map[string]any{"postId": gone}, nil)
	bob.post("after")
	a.see(live)
	a.see(pill + ` === '1 new post'`)
	a.shows("before")
	assert.Equal(t, "half a thought", a.value(`document.querySelector('textarea').value`))
	a.click("1 new post")
	a.shows("after", "before")
	bob.post("and live again")
	a.see(pill + ` === '1 new post'`)
	a.forgive()
}

func TestOfflineAndBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("before")
	a := ada.browse()
	a.shows("before")

	a.offline(true)
	a.see(`document.querySelector('.live').textContent === 'Offline'`)
	a.draft("from the boat")
	a.click("Post")
	a.sees("Not posted.")
	a.shows("before")
	assert.Equal(t, "from the boat", a.value(`document.querySelector('textarea').value`))
	bob.post("meanwhile")

	a.offline(false)
	a.see(live)
	a.see(pill + ` === '1 new post'`)
	a.click("Post")
	a.shows("from the boat", "before")
	a.click("1 new post")
	a.shows("from the boat", "meanwhile", "before")
	a.forgive()
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	a := ada.browse()
	a.draft("not yet said")
	token := a.value(`JSON.parse(localStorage['tideline:session']).token`).(string)
	elsewhere := &person{s: s, token: token}
	elsewhere.must(`mutation { logOut }`, nil, nil)
	a.sees("Your session has ended. Log in to go on where you were. What you were writing is kept.")
	assert.Equal(t, "ada", a.value(`document.querySelector('input').value`))
	a.fill("Password", "wrong password")
	a.key(kb.Enter)
	a.sees("Handle or password is wrong.")
	a.value(`document.querySelector('input[type=password]').value = ''`)
	a.fill("Password", password)
	a.key(kb.Enter)
	a.see(live)
	assert.Equal(t, "not yet said", a.value(`document.querySelector('textarea').value`))
	a.forgive() // without a valid session the answer is 401
}

func TestEndlessScroll(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	const posts = 240
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	// Create many posts in one request, because the test is about reading.
	const batch = 10
	for first := 0; first < posts; first += batch {
		var mutation strings.Builder
		for i := first; i < first+batch; i++ {
			fmt.Fprintf(&mutation, `p%d: createPost(input: { text: "post %d" }) { post { id } } `, i, i)
		}
		bob.must("mutation { "+mutation.String()+"}", nil, nil)
	}

	a := ada.browse()
	const drawn = `document.querySelectorAll('article').length`
	for n := 0.0; n < posts; n = a.value(drawn).(float64) {
		// Scroll until the next page arrives, as a user does.
		a.see(fmt.Sprintf(`(scrollBy(0, -300), scrollTo(0, document.body.scrollHeight), `+drawn+`) > %v`, n))
	}
	a.sees("You have reached the beginning.")
	assert.EqualValues(t, posts, a.value(drawn))
	assert.EqualValues(t, posts, a.value(`new Set([...document.querySelectorAll('article')].map((e) => e.id)).size`))
	assert.EqualValues(t, posts, a.value(`new Set(`+texts+`).size`))

	// Nothing moves when a post arrives, or when the reader leaves the view and comes back.
	const place = `(() => { const e = [...document.querySelectorAll('article')].find((e) => e.getBoundingClientRect().top >= 0)
		return [e.id, e.getBoundingClientRect().top] })()`
	// Within one pixel, because the browser may round.
	still := func(before any) {
		t.Helper()
		was, is := before.([]any), a.value(place).([]any)
		assert.Equal(t, was[0], is[0])
		assert.InDelta(t, was[1], is[1], 1)
	}
	a.value(`scrollTo(0, document.body.scrollHeight / 2)`)
	before := a.value(place)
	bob.post("news")
	a.see(pill + ` === '1 new post'`)
	still(before)
	a.click("Profile")
	a.see(`document.querySelector('h1')?.textContent === 'Ada'`)
	a.click("Home")
	a.see(`document.querySelector('h1')?.textContent === 'Home'`)
	still(before)
	a.click("Settings")
	a.see(`document.querySelector('h1')?.textContent === 'Settings'`)
	a.value(`history.back()`)
	a.see(`document.querySelector('h1')?.textContent === 'Home'`)
	still(before)

	a.click("1 new post")
	a.see(texts + `[0] === 'news'`)
	a.see(`scrollY === 0`)

	// A reload restores the scroll position.
	a.value(`document.querySelectorAll('article')[50].scrollIntoView()`)
	before = a.value(place)
	a.reload()
	a.see(live)
	still(before)
}

// A busy browser calls observers late, with the entries of several moments in one call.
func TestScrollOfABusyBrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	const posts = 50
	for i := range posts {
		bob.post(fmt.Sprintf("post %d", i))
	}
	a := ada.browse(begins(`window.IntersectionObserver = class extends IntersectionObserver {
		constructor(tell, options) {
			let late = []
			super((entries, self) => {
				if (late.push(...entries) === entries.length) setTimeout(() => tell(late.splice(0), self), 500)
			}, options)
		}
	}`))
	const drawn = `document.querySelectorAll('article').length`
	a.size(1280, 400, false)
	a.see(drawn + ` === 20`)
	a.value(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
	for n := 20.0; n < posts; n = a.value(drawn).(float64) {
		a.see(fmt.Sprintf(`(scrollBy(0, -300), scrollTo(0, document.body.scrollHeight), `+drawn+`) > %v`, n))
	}
	a.sees("You have reached the beginning.")
}

func TestKeyboardOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	bob := s.signUp("bob")
	bob.post("by bob")
	a := open(t, s.url)
	a.tabTo("Handle")
	a.write("ada")
	a.tabTo("Name")
	a.write("Ada")
	a.tabTo("Password")
	a.write(password)
	a.key(kb.Enter)
	a.see(live)

	a.tabTo("Follow @bob")
	a.key(kb.Enter)
	a.shows("by bob")

	a.key("n")
	a.see(`document.activeElement.closest('dialog') !== null`)
	a.write("by ada")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.shows("by ada", "by bob")
	a.see(`document.querySelector('dialog') === null`) // the event may bring the post before the answer closes the dialog

	bob.post("again by bob")
	a.see(pill + ` === '1 new post'`)
	a.key(".")
	a.shows("again by bob", "by ada", "by bob")
	a.see(`document.activeElement === document.querySelector('article')`)
	a.key("l")
	a.see(`document.querySelector('article .like').ariaPressed === 'true'`)
	a.key("j")
	a.see(`document.activeElement === document.querySelectorAll('article')[1]`)
	a.key("k")
	a.key("p")
	a.see(`location.pathname === '/@bob'`)
	a.do(chromedp.NavigateBack())
	a.shows("again by bob", "by ada", "by bob")
	a.key("jj")
	a.key(kb.Enter)
	a.see(`location.pathname.startsWith('/post/') && document.querySelector('.thread .text')?.textContent === 'by ada'`)
	a.do(chromedp.NavigateBack())
	a.shows("again by bob", "by ada", "by bob")
	a.key("jj")
	a.key("e")
	a.see(`document.activeElement === document.querySelector('form.edit textarea')`)
	a.key(kb.Escape)
	a.tabTo("Delete")
	a.key(kb.Enter)
	a.sees("Delete this post?")
	a.key(kb.Escape)
	a.seesNot("Delete this post?")
	a.see(`document.activeElement.ariaLabel === 'Delete'`)
	a.key(kb.Enter)
	a.sees("Delete this post?")
	a.tabTo("Delete")
	a.key(kb.Enter)
	a.shows("again by bob", "by bob")

	a.key("/")
	a.see(`document.activeElement.id === 'search'`)
	a.write("bo")
	a.see(`document.querySelector('.people')?.textContent.includes('@bob')`)
	a.tabTo("Bob @bob")
	a.key(kb.Enter)
	a.see(`location.pathname === '/@bob' && document.activeElement.id === 'content'`)
	a.tabTo("More: @bob")
	a.key(kb.Enter)
	a.tabTo("Mute")
	a.key(kb.Enter)
	a.sees("You mute @bob")
	a.key("?")
	a.sees("This list")
	a.see(`[...document.querySelectorAll('dialog kbd')].map((e) => e.textContent).join(' ') === 'n . j / k Enter p l r e h / ? Ctrl Enter'`)
	a.key(kb.Escape)
	a.seesNot("This list")
	a.key("h")
	a.see(`location.pathname === '/'`)
	a.shows()
}

func TestPeopleAndSettings(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	a, b := ada.browse(), bob.browse()

	b.click("Settings")
	b.click("Profile Name")
	b.fill("About you", "Keeper of the light.")
	b.click("Only me")
	b.click("Approve followers")
	b.click("Save")
	b.sees("Saved.")
	b.click("Home")
	b.draft("a secret")
	b.click("Post")
	b.see(`document.querySelector('article select')?.value === 'PRIVATE'`) // the new default visibility

	a.click("People")
	a.fill("Search", "BO")
	a.clickOn(named("Bob @bob"))
	a.sees("Keeper of the light.")
	a.sees("No posts to show.")
	a.click("Follow @bob")
	a.see(named("Requested @bob") + ` != null`)

	b.reload()
	b.see(live)
	b.see(`document.querySelector('nav .badge')?.textContent.includes('1 follow request')`)
	b.click("Accept @ada")
	b.click("Profile")
	b.sees("1 follower")
	b.click("1 follower")
	b.sees("@ada")
	a.reload()
	a.see(named("Following @bob") + ` != null`)

	b.click("Settings")
	b.choose(`document.querySelector('select[aria-label=Language]')`, "zh")
	b.sees("设置")
	assert.Equal(t, "zh", b.value(`document.documentElement.lang`))
	b.reload()
	b.sees("个人资料")
	b.click("退出登录")
	b.sees("注册")
	assert.Nil(t, b.value(`localStorage['tideline:session']`))
	b.forgive() // without a valid session the answer is 401
}
