package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// chooseFrom opens the menu with this name and presses a button in it.
func (p *page) chooseFrom(menu, name string) {
	p.t.Helper()
	p.click(menu)
	p.click(name)
}

func TestRequestsAreDeclined(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	bob.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, map[string]any{"text": "for followers", "visibility": "FOLLOWERS"}, nil)
	a := ada.browse()
	a.visit(s.url + "/@bob")
	a.sees("approves followers")
	a.click("Follow @bob")
	a.see(named("Requested @bob") + ` != null`)

	b := bob.browse()
	b.click("People")
	b.click("Decline @ada")
	b.seesNot("Follow requests")
	b.see(`document.querySelector('nav .badge') === null`)
	a.reload()
	a.see(named("Follow @bob") + ` != null`)
	a.sees("No posts to show.")

	// Ada asks again, and withdraws the request.
	a.click("Follow @bob")
	a.click("Requested @bob")
	a.see(named("Follow @bob") + ` != null`)
	b.reload()
	b.see(live)
	b.see(`document.querySelector('nav .badge') === null`)
}

func TestBlockMuteAndBack(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("by bob")
	a := ada.browse()
	a.shows("by bob")
	a.visit(s.url + "/@bob")
	a.shows("by bob")

	a.chooseFrom("More: @bob", "Mute")
	a.sees("You mute @bob")
	a.click("Home")
	a.shows()
	a.value(`history.back()`)
	a.sees("You mute @bob")
	a.chooseFrom("More: @bob", "Unmute")
	a.seesNot("You mute @bob")
	a.click("Home")
	a.shows("by bob")

	a.value(`history.back()`)
	a.see(named("More: @bob") + ` != null`)
	a.chooseFrom("More: @bob", "Block")
	a.sees("Block @bob?")
	a.click("Cancel")
	a.shows("by bob")
	a.chooseFrom("More: @bob", "Block")
	a.click("Block")
	a.sees("You block @bob")
	a.shows()
	a.chooseFrom("More: @bob", "Unblock")
	a.seesNot("You block @bob")
	a.shows("by bob")
	// Unblocking does not restore the follow.
	a.click("Follow @bob")
	a.see(named("Following @bob") + ` != null`)
	a.click("Following @bob")
	a.see(named("Follow @bob") + ` != null`)
}

// Reports appear in the moderators' queue. Reporting the same post twice is not an error.
func TestReporting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("buy this")
	ada.post("my own")
	a := ada.browse()
	a.shows("my own", "buy this")
	a.see(`document.querySelectorAll('.complain').length === 1`)
	for range 2 {
		a.pressIn("buy this", "Report this post")
		a.clickOn(`document.querySelector('dialog input[value=SPAM]')`)
		a.fillIn(`document.querySelector('dialog textarea')`, "an advertisement")
		a.clickOn(`document.querySelector('dialog .end button:last-child')`)
		a.sees("Reported. Thank you.")
		a.see(`document.querySelector('dialog') === null`)
	}
	a.visit(s.url + "/@bob")
	a.see(named("More: @bob") + ` != null`)
	a.chooseFrom("More: @bob", "Report")
	a.sees("Report @bob")
	a.clickOn(`document.querySelector('dialog input[value=OTHER]')`)
	a.clickOn(`document.querySelector('dialog .end button:last-child')`)
	a.see(`document.querySelector('dialog') === null`)

	out, err := s.command("users", "role", "bob", "moderator").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = s.command("users", "role", "ada", "moderator").CombinedOutput()
	require.NoError(t, err, string(out))
	var queue struct {
		Reports struct {
			Nodes []struct {
				Text            *string
				Reason, Comment string
			}
		}
	}
	ada.must(`{ reports { nodes { text reason comment } } }`, nil, &queue)
	require.Len(t, queue.Reports.Nodes, 2)
	require.Equal(t, []string{"SPAM", "an advertisement", "buy this"}, []string{queue.Reports.Nodes[0].Reason, queue.Reports.Nodes[0].Comment, *queue.Reports.Nodes[0].Text})
	require.Equal(t, "OTHER", queue.Reports.Nodes[1].Reason)
	bob.must(`{ reports { nodes { text reason comment } } }`, nil, &queue)
	require.Empty(t, queue.Reports.Nodes, "nobody sees what is about them")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	for handle, name := range map[string]string{"marina": "Marina Holm", "holmes": "Sherlock", "zed": "Zoë"} {
		s.signUp(handle).must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"name": name}, nil)
	}
	a := ada.browse()
	a.click("People")
	found := func(query, want string) {
		t.Helper()
		a.value(`document.querySelector('#search').select()`)
		a.fill("Search", query)
		a.see(fmt.Sprintf(`[...document.querySelectorAll('main > .people .who span')].map((e) => e.textContent).sort().join() === %s`, js(want)))
	}
	a.sees("People to follow") // until the first search
	found("zed", "@zed")
	a.value(`document.querySelector('#search').value = ''`)
	found("Marina H", "@marina")
	a.value(`document.querySelector('#search').value = ''`)
	found("holm", "@holmes,@marina")
	a.value(`document.querySelector('#search').value = ''`)
	a.fill("Search", "nobody at all")
	a.sees("Nobody found.")
}

func TestSuggestionsForANewcomer(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	bob := s.signUp("bob")
	bob.post("by bob")
	a := s.signUp("ada").browse()
	a.sees("Still water")
	a.sees("their posts wash up here")
	a.see(`document.querySelector('main .suggestions .who').textContent.includes('@bob')`)
	a.see(`document.querySelector('main .suggestions').textContent.includes('@ada') === false`)
	a.click("Follow @bob")
	a.shows("by bob")

	// The suggestions stay for the next follow, until the view is opened again.
	a.see(`document.querySelector('main .suggestions').textContent.includes('@bob')`)
	a.click("People")
	a.click("Home")
	a.shows("by bob")
	a.see(`document.querySelector('main .suggestions') === null`)
}

// The menu of a post leads to muting and blocking its author.
func TestBlockFromAPost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	ada.relate("follow", bob)
	bob.post("unwelcome")
	a := ada.browse()
	a.shows("unwelcome")
	a.clickOn(within("unwelcome", ".further summary"))
	a.click("Block @bob")
	a.clickOn(`document.querySelector('dialog .grave')`)
	a.sees("You block @bob. Neither of you sees the other’s posts.")
	a.see(`document.querySelector('main article') === null`)
}

// The menu of a post offers to mute its author, or to unmute if another device has muted meanwhile.
func TestUnmuteFromAPost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.post("loud")
	a := ada.browse()
	a.visit(s.url + "/@bob")
	open := func() { a.clickOn(within("loud", ".further summary")) }
	open()
	a.click("Mute @bob")
	a.sees("You mute @bob: their posts stay out of your timeline.")
	open()
	a.click("Unmute @bob")
	a.sees("You no longer mute @bob.")
	ada.relate("mute", bob)
	a.reload()
	open()
	a.click("Unmute @bob")
	a.sees("You no longer mute @bob.")
}

// The followees of a followee are suggested before the newest users.
func TestSuggestionsOfFriends(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	cem, bob, ada := s.signUp("cem"), s.signUp("bob"), s.signUp("ada")
	s.signUp("dan")
	bob.relate("follow", cem)
	ada.relate("follow", bob)
	a := ada.browse()
	a.click("People")
	a.see(`[...document.querySelectorAll('.suggestions .who .muted')].slice(0, 2).map((e) => e.textContent).join() === '@cem,@dan'`)
}

func TestDeliveryReceipt(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob, cem := s.signUp("ada"), s.signUp("bob"), s.signUp("cem")
	for _, follower := range []*person{bob, cem} {
		follower.relate("follow", ada)
		follower.must(`{ timeline { unreadCount } }`, nil, nil)
	}
	a, b := ada.browse(), bob.browse()
	a.draft("Hello")
	a.click("Post")
	a.see(`document.querySelector('.delivery .words')?.textContent === 'Delivered to 2 followers'`)
	a.see(`document.querySelector('.delivery').title.startsWith('In 2 timelines within')`)
	b.click("1 new post")
	b.shows("Hello")
	b.see(`document.querySelector('.delivery') === null`) // only the author sees it

	// The receipt is also on the profile, and in another language.
	a.visit(s.url + "/@ada")
	a.see(`document.querySelector('.delivery .words')?.textContent === 'Delivered to 2 followers'`)
	a.click("Settings")
	a.choose(`document.querySelector('select[aria-label=Language]')`, "zh")
	a.visit(s.url + "/@ada")
	a.see(`document.querySelector('.delivery .words')?.textContent === '已送达 2 位关注者'`)
}

func TestLikes(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	post := bob.post("by bob")
	ada.relate("follow", bob)
	a := ada.browse()
	a.pressIn("by bob", "Like, 0 likes")
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 1 like'`)
	bob.awaitLikes(post, 1) // the page shows the like before the server has it
	a.reload()
	a.see(`document.querySelector('.like')?.ariaPressed === 'true'`)
	a.visit(s.url + "/@bob")
	a.pressIn("by bob", "Like, 1 like")
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 0 likes'`)
	bob.awaitLikes(post, 0)
	a.click("Home")
	a.see(`document.querySelector('.like')?.ariaPressed === 'false'`) // the timeline shows the change, too

	// If a like does not reach the server, the app says so and undoes it.
	a.offline(true)
	a.pressIn("by bob", "Like, 0 likes")
	a.sees("The server cannot be reached.")
	a.see(`document.querySelector('.like').ariaLabel === 'Like, 0 likes'`)
	a.offline(false)
	a.see(live)
	a.forgive()
}

// Everybody sees an edit at once. Only the author can open the earlier versions. An edit of a
// version that another device has replaced is refused.
func TestEditingAPost(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	post := bob.post("Low watr")
	ada.relate("follow", bob)
	a, b := ada.browse(), bob.browse()
	a.shows("Low watr")
	say := func(text string) {
		t.Helper()
		const field = `document.querySelector('form.edit textarea')`
		b.clickOn(field)
		b.see(`document.activeElement === ` + field + ` && (` + field + `.select(), true)`)
		b.write(text)
	}
	b.pressIn("Low watr", "Edit post")
	say("Low water")
	b.click("Save")
	b.shows("Low water")
	a.shows("Low water")
	a.see(`document.querySelector('.post span.edited')?.textContent === 'edited'`)
	b.pressIn("Low water", "edited, Earlier versions")
	b.see(`document.querySelector('dialog .versions')?.textContent.includes('Low watr')`)
	b.clickOn(`[...document.querySelectorAll('dialog button')].find((e) => e.textContent === 'Close')`)
	b.see(`document.querySelector('dialog') === null`)

	b.pressIn("Low water", "Edit post")
	say("Lowest water")
	bob.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": post, "text": "Low water at six"}, nil)
	a.shows("Low water at six")
	b.click("Save")
	b.sees("The post was edited since")
	b.click("Cancel")
	b.shows("Low water at six")
}

func TestRefusedPostComesBack(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	a := s.signUp("ada").browse()
	a.draft(" said ")
	a.click("Post")
	a.shows("said")
	// A text that the server refuses returns to its box, with the reason.
	a.value(`{ const send = fetch; window.fetch = (address, init) => send(address, init?.body?.includes('CreatePost')
		? { ...init, body: init.body.replace('"visibility":"PUBLIC"', '"visibility":"NOBODY"') } : init) }`)
	a.draft("refused")
	a.key(kb.Enter, chromedp.ModifierCtrl)
	a.sees("Not posted.")
	a.sees("Your text is back in the box.")
	a.shows("said")
	assert.Equal(t, "refused", a.value(`document.querySelector('textarea').value`))
	a.reload()
	a.see(`document.querySelector('textarea')?.value === 'refused'`) // the app saves the draft
	a.click("Post")
	a.shows("refused", "said")
	a.seesNot("Not posted.")
	a.forgive()
}

func TestThemeAndDefaults(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	a := s.signUp("ada").browse()
	const background = `getComputedStyle(document.querySelector('main')).backgroundColor`
	light := a.value(background)
	a.click("Settings")
	a.choose(`document.querySelector('.line select')`, "dark")
	a.see(background + ` !== ` + js(light))
	a.click("Profile Name")
	a.click("Friends")
	// One empty link field follows the filled ones.
	const links = `JSON.stringify([...document.querySelectorAll('input[name=link]')].map((field) => field.value))`
	a.see(links + ` === '[""]'`)
	a.fillIn(`document.querySelector('input[name=link]')`, "https://tide.example/")
	a.see(links + ` === '["https://tide.example/",""]'`)
	a.click("Save")
	a.sees("Saved.")
	a.reload()
	a.see(links + ` === '["https://tide.example/",""]'`)
	a.see(background + ` !== ` + js(light)) // still dark after the reload
	a.see(`document.querySelector('input[name=visibility]:checked')?.value === 'MUTUALS'`)
	a.click("Home")
	a.see(`document.querySelector('.compose select').value === 'MUTUALS'`)
	a.draft("among friends")
	a.click("Post")
	a.see(`document.querySelector('article:not(.pending) select')?.value === 'MUTUALS'`)

	// A new visitor gets the language of the browser.
	c := open(t, s.url, speaks("zh-CN,zh"))
	c.see(`document.documentElement.lang === 'zh'`)
	c.sees("注册")
	c.choose(`document.querySelector('select[aria-label="语言"]')`, "en")
	c.sees("Sign up")
	c.reload()
	c.sees("Sign up")
}

func TestLinksOfAPost(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	s.signUp("bob")
	post := ada.post("Tides: https://example.org/a_(b)?c=d. Ask @Bob, not me@home.test or @bob@other; (http://example.org/e) javascript:alert(1) (https://example.org/A_(b_(c))).")
	a := ada.browse()
	a.see(`[...document.querySelectorAll('.text a')].map((a) => a.getAttribute('href')).join(' ') ===
		'https://example.org/a_(b)?c=d /@bob http://example.org/e https://example.org/A_(b_(c))'`)
	a.see(`[...document.querySelectorAll('.text a[target]')].every((a) => a.rel.includes('noopener') && a.rel.includes('nofollow'))`)
	a.clickOn(`document.querySelector('.text a[href="/@bob"]')`)
	a.see(`location.pathname === '/@bob'`)
	a.see(named("Follow @bob") + ` != null`)

	// Back leads from the page of a post to the previous view, or to the timeline if there is none.
	a.do(chromedp.NavigateBack())
	a.see(`location.pathname === '/'`)
	a.clickOn(`document.querySelector('.post .when')`)
	a.see(`document.querySelector('h1').textContent === 'Post' && document.title === 'Post · Tideline'`)
	a.click("Back")
	a.see(`location.pathname === '/' && document.querySelector('.post') != null`)
	a.visit(s.url + "/post/" + post)
	a.click("Back")
	a.see(`location.pathname === '/' && document.querySelector('.post') != null`)

	a.visit(s.url + "/@ada")
	a.click("Edit profile")
	a.see(`location.pathname === '/settings/profile'`)
}
