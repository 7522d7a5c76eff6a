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

// at returns an expression for the element with this selector in the form with this heading or label.
func at(form, selector string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('dialog[open] form, form')].find((f) =>
		(f.ariaLabel ?? document.getElementById(f.getAttribute('aria-labelledby'))?.textContent) === %s)?.querySelector(%s)`, js(form), js(selector))
}

// retype replaces what the field that the expression returns holds.
func (p *page) retype(field, text string) {
	p.t.Helper()
	p.clickOn(field)
	p.see(`document.activeElement === ` + field + ` && (` + field + `.select(), true)`)
	p.write(text)
}

// faulty waits until the field that the expression returns has the focus, is invalid, and is described by the text.
func (p *page) faulty(field, text string) {
	p.t.Helper()
	p.see(fmt.Sprintf(`((e) => e === document.activeElement && e.ariaInvalid === 'true' &&
		e.getAttribute('aria-describedby').split(' ').map((id) => document.getElementById(id).textContent).includes(%s))(%s)`, js(text), field))
}

// logIn starts another session of the person, on a phone.
func (p *person) logIn(handle, secret string) *person {
	p.s.t.Helper()
	var answer struct{ LogIn struct{ Token string } }
	other := &person{s: p.s, id: p.id, agent: "Mozilla/5.0 (Android 16; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0"}
	other.must(`mutation($i: LogInInput!) { logIn(input: $i) { token } }`, map[string]any{"handle": handle, "password": secret}, &answer)
	other.token = answer.LogIn.Token
	return other
}

// A walk through everything that a person can do with the account.
func TestAccount(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	s.signUp("bob")
	a := ada.browse()
	a.draft("kept for later")
	a.click("Settings")
	a.click("Account")
	a.see(`location.pathname === '/settings/account' && document.title === 'Account · Tideline'`)

	const change = "Change handle"
	handle := at(change, "input")
	a.retype(handle, "bob")
	a.key(kb.Enter)
	a.faulty(handle, "Somebody else has this handle.")
	a.retype(handle, "Ada!")
	a.see(handle + `.ariaInvalid !== 'true'`) // typing removes the fault
	a.key(kb.Enter)
	a.faulty(handle, "A handle has only a to z, 0 to 9 and _.")
	a.retype(handle, "@Ada_L")
	a.key(kb.Enter)
	a.sees("You are now @ada_l.")
	a.see(handle + `.value === 'ada_l' && document.activeElement === ` + handle)
	a.see(`document.querySelector('nav a[href="/@ada_l"]') !== null`)
	a.click("Home")
	a.see(`document.querySelector('textarea')?.value === 'kept for later'`)

	// Another session is listed, and ends. It is refused at once.
	other := ada.logIn("ada_l", password)
	a.visit(s.url + "/settings/sessions")
	a.see(`document.querySelectorAll('.rows li').length === 2`)
	a.see(`[...document.querySelectorAll('.rows li')].map((e) => e.querySelector('.tag')?.textContent ?? '').sort().join() === ',this device'`)
	a.sees("Firefox on Android")
	a.clickOn(`document.querySelector('.rows li:not(:has(.tag)) button')`)
	a.see(`document.querySelectorAll('.rows li').length === 1`)
	require.Error(t, other.ask(`mutation($i: MuteWordInput!) { muteWord(input: $i) { word } }`, map[string]any{"word": "x"}, nil))

	// All other sessions end at once.
	first, last := ada.logIn("ada_l", password), ada.logIn("ada_l", password)
	a.reload()
	a.see(`document.querySelectorAll('.rows li').length === 3`)
	last.must(`mutation { logOut }`, nil, nil) // it is the first one on the list
	a.click("Log out elsewhere")
	a.clickOn(`document.querySelector('dialog .grave')`)
	a.sees("Logged out everywhere else.")
	a.see(`document.querySelectorAll('.rows li').length === 1 && document.querySelector('.rows .tag') !== null`)
	require.Error(t, first.ask(`{ viewer { id } }`, nil, nil))

	// A new password ends the session of another browser. That browser says so without an error,
	// and a log-in leads back to the same page.
	b := open(t, s.url)
	b.click("I have an account")
	b.fill("Handle", "ada_l")
	b.fill("Password", password)
	b.key(kb.Enter)
	b.see(live)
	b.visit(s.url + "/settings/words")
	b.sees("You mute no words.")
	b.see(live)
	a.click("Back")
	a.click("Account")
	const set = "Change password"
	current, next := at(set, "[name=currentPassword]"), at(set, "[name=newPassword]")
	a.see(current + ` != null`)
	a.clickOn(at(set, "button:not([type])"))
	a.faulty(current, "This must not be empty.")
	a.see(next + `.ariaInvalid === 'true'`)
	a.write("wrong")
	a.fillIn(next, "short")
	a.key(kb.Enter)
	a.faulty(next, "5 characters are too few; at least 8 are needed.")
	a.retype(next, "staple battery")
	a.key(kb.Enter)
	a.faulty(current, "This is not your password.")
	a.clickOn(at(set, "[aria-label='Show: New password']"))
	a.see(next + `.type === 'text'`)
	a.retype(current, password)
	a.key(kb.Enter)
	a.sees("Password changed. 1 other session has ended.")
	a.see(next + `.value === ''`)

	b.see(`document.querySelector('.note[role=status]')?.textContent === 'Your session has ended. Log in to go on where you were.'`)
	b.see(`document.querySelector('[role=alert]') === null && document.querySelector('.notices').textContent === ''`)
	b.fill("Password", "staple battery")
	b.key(kb.Enter)
	b.sees("You mute no words.")
	b.see(`location.pathname === '/settings/words'`)
	b.forgive() // the ended session gets 401

	// The export says how much has arrived. A download that breaks off can be repeated.
	a.reload()
	a.see(live)
	a.value(`{
		const send = fetch, address = URL.createObjectURL
		let broken = false
		window.fetch = async (path, init) => {
			if (broken || !String(path).startsWith('/account/export')) return send(path, init)
			broken = true
			return new Response(new ReadableStream({ start(to) { to.enqueue(new Uint8Array(1500)), window.breaks = () => to.error(new TypeError()) } }))
		}
		URL.createObjectURL = (file) => (window.exported = file, address.call(URL, file))
	}`)
	a.fillIn(at("Export your data", "[name=password]"), "staple battery")
	a.key(kb.Enter)
	a.sees("Downloading: 2 kB so far")
	a.value(`window.breaks()`)
	a.sees("The download broke off before the file was complete.")
	a.click("Try again")
	a.sees("The file is complete: 1 kB.")
	a.see(`exported.text().then((text) => text.includes('"handle":"ada_l"') && text.trim().split('\n').every((line) => JSON.parse(line)))`)

	// A deleted account disappears. A log-in restores it.
	a.clickOn(`[...document.querySelectorAll('main button.grave')].at(-1)`)
	a.sees("Delete @ada_l?")
	a.fill("Your password, to confirm", "wrong")
	a.key(kb.Enter)
	a.faulty(`document.querySelector('dialog [name=password]')`, "This is not your password.")
	a.retype(`document.querySelector('dialog [name=password]')`, "staple battery")
	a.key(kb.Enter)
	a.sees("Your account is deleted. Nobody can see it. A log-in with your password restores it until")
	a.see(`location.pathname === '/settings/account'`)
	require.Nil(t, a.value(`localStorage['tideline:session']`))
	b.sees("Your session has ended.")
	b.visit(s.url + "/@ada_l")
	b.sees("There is nobody called @ada_l.")
	a.fill("Password", "staple battery")
	a.key(kb.Enter)
	a.sees("Welcome back. Your account is restored")
	a.click("Close")
	a.seesNot("Welcome back.")
	b.reload()
	b.sees("Joined")

	// Everywhere means here, too.
	a.visit(s.url + "/settings/sessions")
	a.click("Log out everywhere")
	a.clickOn(`document.querySelector('dialog .grave')`)
	a.see(`document.querySelector('.welcome input[name=name]') !== null`)
	a.forgive()
	b.forgive()
}

// A session that ends under a page for everybody leaves the page, with a line above it.
func TestSessionEndsOnAPublicPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.post("by bob")
	a := ada.browse()
	a.visit(s.url + "/@bob")
	a.shows("by bob")
	a.see(live)
	ada.must(`mutation { logOutEverywhere { endedSessions } }`, nil, nil)
	a.sees("Your session has ended. Log in to go on where you were.")
	a.shows("by bob")
	a.clickOn(`document.querySelector('.bar a.button')`)
	a.see(`location.pathname === '/login' && document.title === 'Log in · Tideline'`)
	a.reload()
	a.see(named("Password") + ` != null`)
	a.retype(named("Handle"), "ADA")
	a.fill("Password", password)
	a.key(kb.Enter)
	a.see(named("Follow @bob") + ` != null`)
	a.see(`location.pathname === '/@bob'`)
	a.visit(s.url + "/login") // a member has nothing to do there
	a.see(`location.pathname === '/' && document.querySelector('h1').textContent === 'Home'`)
	a.forgive() // the ended session gets 401
}

// Each fault of a form is named beside its field, in the language of the reader.
func TestFaultsOfTheSignUpForm(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.signUp("ada")
	a := open(t, s.url, speaks("zh-CN,zh"))
	handle, secret := `document.querySelector('[name=handle]')`, `document.querySelector('[name=password]')`
	a.sees("大写字母会变为小写")
	a.click("注册")
	a.faulty(handle, "内容不能为空。")
	a.see(secret + `.ariaInvalid === 'true'`)
	a.write("Ada")
	a.fillIn(secret, "short")
	a.key(kb.Enter)
	a.faulty(secret, "共 5 个字符，至少需要 8 个。")
	a.retype(secret, password)
	a.click("显示")
	a.see(secret + `.type === 'text' && ` + secret + `.value === ` + js(password))
	a.clickOn(secret)
	a.key(kb.Enter)
	a.faulty(handle, "该用户名已被占用。")
	a.click("我已有账号")
	a.fillIn(handle, "ada")
	a.fillIn(secret, "not her password")
	a.key(kb.Enter)
	a.faulty(secret, "用户名或密码错误。")
	a.forgive() // a wrong password gets 401
}

// The lists of the settings: words, muted and blocked people, sent requests, likes. A row can redo what it undid.
func TestListsOfTheSettings(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob, eve := s.signUp("ada"), s.signUp("bob"), s.signUp("eve")
	eve.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	ada.relate("follow", bob)
	liked := bob.post("low tide")
	bob.post("low Spring tide")
	a := ada.browse()
	a.shows("low Spring tide", "low tide")

	a.click("Settings")
	a.click("Muted words")
	a.sees("You mute no words.")
	a.fill("Word or phrase", "SPRING tide")
	a.key(kb.Enter)
	a.sees("spring tide")
	a.click("Home")
	a.shows("low tide")
	a.value(`history.back()`)
	for _, button := range []string{"Unmute: spring tide", "Mute: spring tide", "Unmute: spring tide"} {
		a.see(named(button) + ` != null`)
		a.tabTo(button)
		a.key(kb.Enter)
	}
	a.see(named("Mute: spring tide") + ` === document.activeElement`)
	a.reload()
	a.sees("You mute no words.")
	a.click("Home")
	a.shows("low Spring tide", "low tide")

	for _, list := range []struct{ how, section, none, undo, redo string }{
		{"mute", "muted", "You mute nobody.", "Unmute @bob", "Mute @bob"},
		{"block", "blocked", "You block nobody.", "Unblock @bob", "Block @bob"},
	} {
		ada.relate(list.how, bob)
		a.visit(s.url + "/settings/" + list.section)
		a.click(list.undo)
		a.click(list.redo)
		a.click(list.undo)
		a.see(named(list.redo) + ` != null`)
		a.reload()
		a.sees(list.none)
	}

	ada.relate("follow", eve)
	a.visit(s.url + "/settings/requests")
	a.click("Requested @eve")
	a.see(named("Follow @eve") + ` != null`)
	a.reload()
	a.sees("No request waits for an answer.")

	a.visit(s.url + "/settings/likes")
	a.sees("You like no posts yet.")
	a.visit(s.url + "/@bob")
	a.pressIn("low tide", "Like, 0 likes")
	bob.awaitLikes(liked, 1) // the page shows the like before the server has it
	a.visit(s.url + "/settings/likes")
	a.shows("low tide")
	a.pressIn("low tide", "Like, 1 like")
	a.see(`document.querySelector('.like').ariaPressed === 'false'`)
}

// The app asks before a step that the user cannot undo without others. It does not send a report without a reason.
func TestAskedOnce(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	bob.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	ada.relate("follow", bob)
	bob.relate("acceptFollower", ada)
	bob.relate("follow", ada)
	a := ada.browse()
	a.visit(s.url + "/@bob")
	a.click("Following @bob")
	a.sees("Unfollow @bob?")
	a.key(kb.Escape)
	a.see(named("Following @bob") + ` === document.activeElement`)
	a.click("Following @bob")
	a.click("Unfollow")
	a.see(named("Follow @bob") + ` != null`)

	a.chooseFrom("More: @bob", "Report")
	a.clickOn(`document.querySelector('dialog .end button:last-child')`)
	a.see(`document.activeElement.name === 'reason' && document.activeElement.closest('[role=radiogroup]').ariaInvalid === 'true'`)
	a.sees("Choose one.")
	a.key(kb.Escape)
	a.visit(s.url + "/@ada/followers")
	a.sees("1 follower")
	a.chooseFrom("More: @bob", "Remove follower")
	a.click("Remove follower")
	a.sees("@bob no longer follows you.")
	a.sees("0 followers")
	a.see(`!document.querySelector('main .people').textContent.includes('follows you')`)

	a.click("Home")
	a.draft("a secret")
	a.choose(`document.querySelector('.compose select')`, "PRIVATE")
	a.click("Post")
	const choice = `document.querySelector('article:not(.pending) .acts select')`
	a.see(`[...document.querySelectorAll('article option')].some((e) => e.textContent === 'Friends – followers whom you follow back')`)
	a.choose(choice, "PUBLIC")
	a.sees("Show this post to everyone?")
	a.key(kb.Escape)
	a.see(choice + `.value === 'PRIVATE'`)
	a.choose(choice, "FOLLOWERS") // not everyone: nothing to ask
	a.sees("Seen by: Followers")
	a.choose(choice, "PUBLIC")
	a.click("Everyone")
	a.sees("Seen by: Everyone")
	a.see(choice + `.value === 'PUBLIC'`)
}

// A reader chooses among the rankings of the server.
func TestRankings(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := prepare(t)
	s.settings = []string{`TIDELINE_RANKINGS={"oldest": "-posted"}`}
	s.start()
	ada := s.signUp("ada")
	ada.post("first")
	ada.post("second")
	a := ada.browse()
	a.shows("second", "first")
	a.see(`document.querySelector('.ranking') === null`)
	a.click("Ranked")
	a.shows("second", "first")
	const choice = `document.querySelector('.ranking select')`
	a.size(320, 640, true)
	a.see(`document.documentElement.scrollWidth <= 320`)
	a.size(1280, 900, false)
	assert.Equal(t, "hot,oldest", a.value(`[...`+choice+`.options].map((o) => o.value).join()`))
	a.choose(choice, "oldest")
	a.shows("first", "second")
	a.click("Latest")
	a.shows("second", "first")
	a.do(chromedp.Reload())
	a.see(live)
	a.click("Ranked")
	a.shows("first", "second")
	a.choose(choice, "hot")
	a.shows("second", "first")
}
