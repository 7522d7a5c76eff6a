package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// unread is an expression that asks the server for the unread count.
const unread = `fetch('/graphql', { method: 'POST', headers: { 'Content-Type': 'application/json',
	Authorization: 'Bearer ' + JSON.parse(localStorage['tideline:session']).token },
	body: '{"query":"{timeline{unreadCount}}"}' }).then((r) => r.json()).then((r) => r.data.timeline.unreadCount)`

// postMany creates n posts, ten per request.
func (p *person) postMany(n int) {
	p.s.t.Helper()
	const batch = 10
	for first := 0; first < n; first += batch {
		var mutation strings.Builder
		for i := first; i < min(first+batch, n); i++ {
			fmt.Fprintf(&mutation, `p%d: createPost(input: { text: "post %d" }) { post { id } } `, i, i)
		}
		p.must("mutation { "+mutation.String()+"}", nil, nil)
	}
}

// glances is a script that counts how often the page checked which posts are in view (in
// window.glances) and how many read marks it sent (in window.marks).
const glances = `{
	window.glances = 0
	window.marks = 0
	const later = setTimeout
	window.setTimeout = (run, delay, ...rest) => later(delay === 1000 ? () => (run(), window.glances++) : run, delay, ...rest)
	const send = fetch
	window.fetch = (address, init) => (init?.body?.includes?.('mutation MarkRead') && window.marks++, send(address, init))
}`

// Only posts that the reader scrolled past count as read. Until then the line stays in place:
// after a reload, after a switch to the other order and back, and after a visit to another page.
func TestReadIsWhatWasScrolledPast(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("read before")
	a := ada.browse(begins(glances))
	a.see(unread + `.then((n) => n === 0)`)
	a.visit(s.url + "/settings")
	bob.postMany(60)

	const line = `document.querySelector('.tideline')?.nextElementSibling.textContent.includes('read before')`
	hasLine := func(when string) {
		t.Helper()
		a.see(`document.querySelector('.unread')?.textContent === '60 new since you last read'`)
		a.see(`window.glances > 1`)
		require.EqualValues(t, 0, a.value(`window.marks`), when)
	}
	a.visit(s.url)
	hasLine("at first")
	a.reload()
	hasLine("after a reload")
	a.click("Ranked")
	a.click("Latest")
	hasLine("in the other order and back")
	a.click("People")
	a.click("Home")
	hasLine("on another page and back")
	require.EqualValues(t, 60, a.value(unread))

	// The reader scrolls down half of the new posts, reloads, and scrolls on.
	down := func(until string) {
		t.Helper()
		a.see(`new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(() => {
			const at = ` + until + `
			if (!at) scrollBy({ top: 300, behavior: 'instant' })
			seen(at === true)
		})))`)
	}
	down(`[...document.querySelectorAll('article')].some((e) => e.textContent.includes('post 30') && e.getBoundingClientRect().bottom < 500)`)
	a.see(`window.glances > 2`)
	require.EqualValues(t, 0, a.value(`window.marks`), "half of it")
	a.reload()
	a.see(live)
	down(`document.querySelector('.tideline') !== null && document.querySelector('.tideline').getBoundingClientRect().top < innerHeight`)
	require.Equal(t, true, a.value(line))
	a.see(unread + `.then((n) => n === 0)`)
	a.see(line) // the line stays until the view is opened again
	a.reload()
	a.see(live)
	a.see(`document.querySelector('.tideline') === null && document.querySelector('.unread') === null`)
}

// A reader who comes back goes to the line, however far down it is, or marks everything as read.
func TestTheWayToTheLine(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("read before")
	a := ada.browse()
	a.see(unread + `.then((n) => n === 0)`)
	a.visit(s.url + "/settings")
	bob.postMany(60)
	a.visit(s.url)
	a.see(`document.querySelector('.unread')?.textContent === '60 new since you last read'`)
	require.Equal(t, true, a.value(`document.querySelector('.tideline') === null`))
	a.clickOn(`document.querySelector('.unread')`)
	a.see(`(({ top, bottom }) => top > 0 && bottom < innerHeight)(document.querySelector('.tideline').getBoundingClientRect())`)
	a.see(`document.querySelector('.tideline').nextElementSibling.textContent.includes('read before')`)
	a.see(`document.activeElement.textContent.includes('post 0')`)

	a.click("Home")
	a.click("Mark all as read")
	a.see(`document.querySelector('.unread') === null && document.querySelector('.tideline') === null`)
	a.see(unread + `.then((n) => n === 0)`)
}

// A reload restores the scroll position, however far down. If the post there is gone, the next
// one takes its place.
func TestReloadKeepsThePlace(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.postMany(180)
	a := ada.browse()
	const drawn = `document.querySelectorAll('article').length`
	for n := 0.0; n < 180; n = a.value(drawn).(float64) {
		a.see(fmt.Sprintf(`(scrollBy(0, -300), scrollTo(0, document.body.scrollHeight), `+drawn+`) > %v`, n))
	}
	a.value(`document.querySelectorAll('article')[150].scrollIntoView()`)
	const top = `[...document.querySelectorAll('article')].find((e) => e.getBoundingClientRect().bottom > 0)`
	const place = `JSON.stringify([` + top + `.id, Math.round(` + top + `.getBoundingClientRect().top / 2)])`
	before := a.value(place)
	id := a.value(top + `.id`).(string)
	next := a.value(top + `.nextElementSibling.id`)
	a.reload()
	a.see(live)
	a.see(place + ` === ` + js(before))

	a.visit(s.url + "/settings")
	bob.must(`mutation($i: DeletePostInput!) { deletePost(input: $i) { deletedPostId } }`, map[string]any{"postId": id}, nil)
	a.visit(s.url)
	a.see(live)
	a.see(top + `.id === ` + js(next))
}

// holds is a script that holds each mutation with a name that begins so, until the test calls answer.
func holds(name string) string {
	return `{
	const send = fetch
	window.fetch = (address, init) => !init?.body?.includes?.('mutation ` + name + `') ? send(address, init) : new Promise((done, failed) => {
		window.answer = (reaches) => (window.answer = undefined, reaches ? done(send(address, init)) : failed(new TypeError('cut')))
	})
}`
}

// answer waits for a mutation that holds holds, and lets it reach the server or fail.
func (p *page) answer(reaches bool) {
	p.t.Helper()
	p.see(`typeof window.answer === 'function'`)
	p.value(fmt.Sprintf(`(window.answer(%v), null)`, reaches))
}

// The author sees a refused post again, whichever view is open by then.
func TestRefusedPostIsInSight(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := s.signUp("ada").browse(begins(holds("CreatePost")))
	const dialog = `document.querySelector('dialog textarea')`
	a.click("People")
	a.click("New post")
	a.fillIn(dialog, "from afar")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.see(`document.querySelector('dialog form button:last-child')?.textContent === 'Sending…'`)
	a.answer(false)
	a.see(`document.querySelector('dialog .wrong')?.textContent.startsWith('Not posted.')`)
	a.see(dialog + `.value === 'from afar'`)
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.answer(true)
	a.see(`document.querySelector('dialog') === null`)

	// The author closes the dialog, or goes to another view, before the answer arrives.
	a.click("New post")
	a.fillIn(dialog, "closed")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.see(`typeof window.answer === 'function'`)
	a.key(kb.Escape)
	a.see(`document.querySelector('dialog') === null`)
	a.answer(false)
	a.sees("Not posted.")
	if *screenshots != "" {
		a.size(390, 844, true)
		a.picture(*screenshots+"/refused-phone.png", 390, 844)
		a.size(1280, 900, false)
	}
	a.click("Open it")
	a.see(dialog + `.value === 'closed'`)
	a.seesNot("Open it")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.answer(true)
	a.see(`document.querySelector('dialog') === null`)

	a.click("Home")
	a.shows("closed", "from afar")
	a.draft("left behind")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.click("Settings")
	a.answer(false)
	a.click("Open it")
	a.see(dialog + `.value === 'left behind'`)
	a.forgive()
}

// A new post appears at once on the author's profile, also in its count. A post with a tag
// appears on the page of the tag.
func TestOwnPostIsOnTheOwnPageAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post("before")
	a := ada.browse()
	write := func(text string) {
		t.Helper()
		a.click("New post")
		a.fillIn(`document.querySelector('dialog textarea')`, text)
		a.key(kb.Enter, chromedp.ModifierCtrl)
		a.see(`document.querySelector('dialog') === null`)
	}
	a.click("Profile")
	a.shows("before")
	a.sees("1 post")
	write("now")
	a.shows("now", "before")
	a.sees("2 posts")
	ada.post("on another device")
	a.shows("on another device", "now", "before")
	a.sees("3 posts")

	a.click("Home")
	a.click("1 new post")
	a.shows("on another device", "now", "before")
	a.visit(s.url + "/tag/tide")
	a.sees("No posts with #tide")
	write("a #Tide")
	a.shows("a #Tide")
}

// The keyboard can begin and end an edit. An unsaved edit survives a change of view and a
// reload.
func TestAnEditKeepsTheFocusAndItsText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post("Low watr")
	a := ada.browse()
	const field = `document.querySelector('form.edit textarea')`
	a.tabTo("Edit post")
	a.key(kb.Enter)
	a.see(`document.activeElement === ` + field)
	a.key(kb.Escape)
	a.see(`document.activeElement.ariaLabel === 'Edit post'`)
	a.key(kb.Enter)
	a.see(`document.activeElement === ` + field)
	a.write("!")
	a.see(field + `.value === 'Low watr!'`)
	a.click("People")
	a.click("Home")
	a.see(field + `?.value === 'Low watr!' && document.activeElement !== ` + field)
	a.reload()
	a.see(live)
	a.see(field + `?.value === 'Low watr!'`)
	a.click("Save")
	a.shows("Low watr!")
	a.see(`document.activeElement.ariaLabel === 'Edit post'`)
	a.reload()
	a.see(live)
	a.shows("Low watr!")
	a.see(field + ` === null`)
}

// The author's own post, with all its controls, fits the width of a small phone.
func TestAnOwnPostFitsASmallPhone(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.relate("follow", ada)
	bob.must(`{ timeline { unreadCount } }`, nil, nil) // makes the user active, so that posts are delivered
	post := ada.post("hello")
	a := ada.browse()
	a.size(360, 740, true)
	for _, visibility := range []string{"PUBLIC", "FOLLOWERS"} {
		ada.must(`mutation($i: SetPostVisibilityInput!) { setPostVisibility(input: $i) { post { id } } }`, map[string]any{"postId": post, "visibility": visibility}, nil)
		a.visit(s.url + "/post/" + post)
		a.see(`document.querySelector('.delivery') !== null`)
		assert.EqualValues(t, 360, a.value(`document.documentElement.scrollWidth`))
	}
	if *screenshots != "" {
		a.picture(*screenshots+"/own-post-small.png", 360, 740)
	}
}

// The author of a post sees that moderators hid it.
func TestAnAuthorSeesThatAPostIsHidden(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.relate("follow", ada)
	post := ada.post("buy this")
	out, err := s.command("users", "role", "bob", "moderator").CombinedOutput()
	require.NoError(t, err, string(out))
	bob.must(`mutation($i: ModeratePostInput!) { hidePost(input: $i) { changed } }`, map[string]any{"postId": post}, nil)
	a := ada.browse()
	for _, address := range []string{"/", "/@ada", "/post/" + post} {
		a.visit(s.url + address)
		a.sees("Moderators hid this post. Only you see it.")
		a.see(`document.querySelector('.edits').disabled`)
	}
}

// A follow request appears at once, and disappears when it is withdrawn.
func TestFollowRequestsAreLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	b := bob.browse()
	b.see(`document.querySelector('.live').textContent === 'Live'`)
	bob.post("here")
	b.sees("1 new post") // by an event, so the subscription has begun
	const asked = `[...document.querySelectorAll('nav .badge')].some(badge => badge.textContent.includes('1 follow request'))`
	b.see("!" + asked)
	ada.relate("follow", bob)
	b.see(asked)
	ada.relate("unfollow", bob)
	b.see("!" + asked)
}

// The app says that posts arrive late, for as long as they do.
func TestLatePostsAreTold(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	a := ada.browse(begins(`window.late = 34; window.WebSocket = class extends WebSocket {
		set onmessage(tell) {
			super.onmessage = tell && ((event) => tell(new MessageEvent('message', { data: event.data.replace(/"lateBy":\d+/, '"lateBy":' + window.late) })))
		}
	}`))
	bob.relate("follow", ada) // causes a heartbeat
	a.see(`document.querySelector('.live').textContent === 'Posts arrive 34 seconds late'`)
	a.value(`window.late = 1`)
	bob.relate("unfollow", ada)
	a.see(`document.querySelector('.live').textContent === 'Live'`)
}

// A list shows the beginning of a long post, and all of it on demand. The page of the post shows all of it.
func TestLongPostsFold(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post(strings.Repeat("line\n", 11) + "twelfth")
	post := ada.post(strings.Repeat("line\n", 12) + "thirteenth #tide")
	ada.post(strings.Repeat("字", 701))
	a := ada.browse()
	a.see(`[...document.querySelectorAll('article')].map((e) => e.querySelector('.folded') !== null).join() === 'true,true,false'`)
	for _, width := range []int64{390, 1280} {
		a.size(width, 900, width < 500)
		a.see(`[...document.querySelectorAll('.folded')].every((e) => e.scrollHeight > e.clientHeight + 16)`)
	}
	a.clickOn(`document.querySelectorAll('article')[0].querySelector('.unfold')`)
	a.see(`document.querySelectorAll('.folded').length === 1 && document.activeElement === document.querySelector('article')`)
	// The keyboard never reaches a link that is not shown.
	a.value(`document.querySelector('article [href="/tag/tide"]').focus()`)
	a.see(`document.querySelector('.folded, .unfold') === null`)
	a.visit(s.url + "/post/" + post)
	a.see(`document.querySelector('.thread .text')?.textContent.endsWith('#tide')`)
	a.see(`document.querySelector('.folded, .unfold') === null`)
}

// A page that failed to load tries again by itself when the server answers again.
func TestFailedPagesLoadWhenTheServerIsBack(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post("here")
	a, visitor := ada.browse(), open(t, s.url+"/@nobody")
	failed := func(p *page) {
		t.Helper()
		p.clickOn(`document.querySelector('a[href="/@ada"]') ?? document.querySelector('.brand')`)
		p.see(`document.querySelector('main .failure')?.textContent.startsWith('The server cannot be reached.')`)
	}
	a.offline(true)
	failed(a)
	a.offline(false)
	a.shows("here")

	// Also for a visitor, and after a restart of the server.
	visitor.visit(s.url + "/tag/tide")
	visitor.sees("No posts with #tide")
	s.stop()
	visitor.value(`{ const link = document.createElement('a'); link.href = '/@ada'; link.textContent = 'ada'; document.querySelector('main').append(link) }`)
	failed(visitor)
	s.start()
	visitor.shows("here")
	a.see(live)
	a.forgive()
	visitor.forgive()
}

// A session that ends under a page raises no error, whichever page it is.
func TestSessionEndsOnEveryPage(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	post := ada.post("here #tide")
	for _, address := range []string{"/", "/@ada", "/post/" + post, "/tag/tide", "/search?q=ada", "/settings/profile", "/settings/sessions"} {
		session := ada.logIn("ada", password)
		a := open(t, s.url, begins(`if (!sessionStorage['kept']) {
			sessionStorage['kept'] = true
			localStorage['tideline:session'] = JSON.stringify({ ...`+string(ada.session)+`, token: `+js(session.token)+` })
		}`))
		a.see(live)
		a.visit(s.url + address)
		a.see(live)
		a.see(`document.querySelector('[aria-busy=true]') === null`)
		a.see(`document.querySelector("main").textContent.length > 50`)
		session.must(`mutation { logOut }`, nil, nil)
		a.sees("Your session has ended.")
		a.see(`document.querySelector('[role=alert]') === null && document.querySelector('.notices').textContent === ''`)
		a.forgive() // the ended session gets 401
	}
}

// A session that ends while the connection for counts fails raises no error either.
func TestSessionEndsWhileTheConnectionFails(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.post("here")
	a := ada.browse(begins(`{
		const Real = WebSocket
		window.opened = window.tried = window.failed = 0
		window.WebSocket = function (...address) {
			if (!window.down) return window.opened++, new Real(...address)
			window.tried++
			const never = { readyState: 0, send() {}, close() {} }
			setTimeout(() => (never.onclose?.({ code: 1006, reason: '' }), window.failed++), 4000)
			return never
		}
		Object.assign(window.WebSocket, { CONNECTING: 0, OPEN: 1, CLOSING: 2, CLOSED: 3 })
	}`))
	a.shows("here")
	a.see(`window.opened === 2`) // of the timeline and of the counts
	a.value(`window.down = true`)
	s.stop()
	a.see(`window.tried === 2`)
	a.value(`localStorage.removeItem('tideline:session'), dispatchEvent(new StorageEvent('storage', { key: 'tideline:session' }))`)
	a.sees("Your session has ended.")
	a.see(`window.failed === 2`)
	a.forgive()
}
