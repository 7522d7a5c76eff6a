package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// role gives a person a role, on the command line.
func (s *site) role(p *person, role string) {
	s.t.Helper()
	out, err := s.command("users", "role", p.id, role).CombinedOutput()
	require.NoError(s.t, err, string(out))
}

func (p *person) replyTo(post, text string) string {
	p.s.t.Helper()
	var answer struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	p.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, map[string]any{"text": text, "replyTo": post}, &answer)
	return answer.CreatePost.Post.ID
}

func (p *person) report(post, reason, comment string) {
	p.s.t.Helper()
	p.must(`mutation($i: ReportPostInput!) { reportPost(input: $i) { reported } }`, map[string]any{"postId": post, "reason": reason, "comment": comment}, nil)
}

// decided returns the notes of the reports with a status, by the text of the post.
func (p *person) decided(status string) map[string]string {
	p.s.t.Helper()
	var answer struct {
		Reports struct{ Nodes []struct{ Text, Note string } }
	}
	require.NoError(p.s.t, p.ask(`query($i: ReportStatus!) { reports(status: $i) { nodes { text note } } }`, status, &answer))
	notes := map[string]string{}
	for _, r := range answer.Reports.Nodes {
		notes[r.Text] = r.Note
	}
	return notes
}

// A moderator decides ten reports with the keyboard alone.
func TestAModeratorWorksThroughTenReports(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob, mod := s.signUp("ada"), s.signUp("bob"), s.signUp("mod")
	s.role(mod, "moderator")
	const card = `document.activeElement.closest('article.report')`
	root := ada.post("the root of it")
	for n := range 9 {
		post := bob.replyTo(root, fmt.Sprintf("advertisement %d", n))
		ada.report(post, "SPAM", fmt.Sprintf("complaint %d", n))
		if n == 0 {
			ada.replyTo(post, "go away")
			bob.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": post, "text": "nothing bad"}, nil)
			mod.report(post, "OTHER", "a second report of the same post")
		}
	}
	m := mod.browse()
	m.see(`document.querySelector('nav a[href="/moderation"] .badge .hidden')?.textContent === '10 open reports'`)
	m.tabTo("Moderation")
	m.key(kb.Enter)
	m.see(`location.pathname === '/moderation' && document.querySelectorAll('article.report').length === 10`)

	// The first report: claimed, read in its conversation, and its post hidden.
	m.key("j")
	m.see(card + `?.textContent.includes('complaint 0')`)
	m.key("c")
	m.see(card + `?.querySelector('.note')?.textContent.startsWith('You have claimed this until')`)
	m.see(`[...document.querySelectorAll('article.report .note')].length === 2`) // of both reports of the post
	m.key("o")
	m.see(`['the root of it', 'advertisement 0', 'nothing bad', 'go away'].every((text) => ` + card + `?.textContent.includes(text))`)
	m.see(card + `?.querySelector('[aria-label="Earlier versions"]')?.textContent.includes('advertisement 0')`)
	m.key("o")
	m.see(`document.querySelector('.conversation') === null`)
	m.key("x")
	m.see(`document.activeElement.name === 'note'`)
	m.write("an advertisement")
	m.key(kb.Enter, chromedp.ModifierCtrl)
	m.see(`document.querySelector('dialog') === null && ` + card + `?.querySelector('.tag')?.textContent === 'hidden'`)
	m.key("u")
	m.see(`document.activeElement.name === 'note'`)
	m.write("advertises")
	m.tabTo("Uphold")
	m.key(kb.Enter)
	m.sees("2 reports upheld.")
	m.see(`document.querySelectorAll('article.report').length === 8`)
	m.see(`document.querySelector('nav .badge .hidden')?.textContent === '8 open reports'`)

	// The focus is on the next report each time, so no further key is needed.
	for n := 1; n < 8; n++ {
		m.see(card + fmt.Sprintf(`?.textContent.includes('complaint %d')`, n))
		m.key("d")
		m.see(`document.activeElement.name === 'note'`)
		m.write(fmt.Sprintf("harmless %d", n))
		m.key(kb.Enter, chromedp.ModifierCtrl)
		m.see(fmt.Sprintf(`document.querySelector('dialog') === null && document.querySelectorAll('article.report').length === %d`, 8-n))
	}

	// The last one: the user is suspended, with a reason, and the report upheld.
	m.see(card + `?.textContent.includes('complaint 8')`)
	m.key("s")
	m.see(`document.activeElement.name === 'reason'`)
	m.write("You advertise.")
	m.tabTo("Note for the audit log")
	m.write("again")
	m.key(kb.Enter, chromedp.ModifierCtrl)
	m.see(`document.querySelector('dialog') === null && ` + card + `?.textContent.includes('The reason that the user reads: You advertise.')`)
	m.key("u")
	m.see(`document.activeElement.name === 'note'`)
	m.key(kb.Escape)
	m.see(`document.querySelector('dialog') === null && ` + card + ` !== null`)
	m.key("u")
	m.see(`document.activeElement.name === 'note'`)
	m.key(kb.Enter, chromedp.ModifierCtrl)
	m.sees("No report waits for a decision.")
	m.see(`document.querySelector('nav a[href="/moderation"] .badge') === null`)

	upheld, dismissed := mod.decided("UPHELD"), mod.decided("DISMISSED")
	require.Equal(t, "advertises", upheld["advertisement 0"])
	require.Len(t, dismissed, 7)
	require.Equal(t, "harmless 3", dismissed["advertisement 3"])

	// The keys are listed for moderators. The decided reports keep the buttons for what can be undone.
	m.key("?")
	m.see(`document.querySelector('dialog h3')?.textContent === 'Moderation' && [...document.querySelectorAll('dialog kbd')].some((e) => e.textContent === 'x')`)
	m.key(kb.Escape)
	m.see(`document.querySelector('dialog') === null`)
	m.tabTo("Upheld")
	m.key(kb.Enter)
	m.see(`location.pathname === '/moderation/upheld' && document.querySelectorAll('article.report').length === 3`)
	m.sees("Upheld by @mod")
	m.key("j")
	m.see(card + `?.textContent.includes('complaint 8')`)
	m.key("s")
	m.see(`document.querySelector('dialog')?.textContent.includes('End the suspension of @bob?')`)
	m.key(kb.Enter, chromedp.ModifierCtrl)
	m.see(`document.querySelector('dialog') === null && ![...document.querySelectorAll('.report .tag')].some((e) => e.textContent === 'suspended')`)
	bob.logIn("bob", password)
}

// Two moderators do not work on the same report. What one types is kept when the other is faster.
func TestModeratorsSeeWhatOthersDo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob, mod, other := s.signUp("ada"), s.signUp("bob"), s.signUp("mod"), s.signUp("other")
	s.role(mod, "moderator")
	s.role(other, "moderator")
	for _, text := range []string{"first", "second"} {
		ada.report(bob.post(text), "SPAM", "")
	}
	var answer struct {
		Reports struct{ Nodes []struct{ ID string } }
	}
	other.must(`{ reports { nodes { id } } }`, nil, &answer)
	on := func(n int) map[string]any { return map[string]any{"reportId": answer.Reports.Nodes[n].ID} }
	claim := `mutation($i: ClaimReportInput!) { claimReport(input: $i) { report { id } } }`
	decide := `mutation($i: DecideReportInput!) { decideReport(input: $i) { decided } }`

	m := mod.browse()
	m.visit(s.url + "/moderation")
	m.see(`document.querySelectorAll('article.report').length === 2`)
	other.must(claim, on(0), nil)
	m.key("j")
	m.key("u")
	m.see(`document.activeElement.name === 'note'`)
	m.write("my note")
	m.key(kb.Enter, chromedp.ModifierCtrl)
	m.see(`document.querySelector('dialog [role=alert]')?.textContent === 'Another moderator has claimed this report.'`)
	m.see(`document.querySelector('dialog textarea').value === 'my note'`)
	m.key(kb.Escape)
	m.see(`document.querySelector('.report .note')?.textContent.startsWith('@other has claimed this until')`)
	m.key("c")
	m.see(`document.querySelector('.report [role=alert]')?.textContent === 'Another moderator has claimed this report.'`)

	// A report that another moderator decides disappears when the moderator comes back to the page.
	decision := on(0)
	decision["decision"] = "UPHELD"
	other.must(decide, decision, nil)
	m.value(`window.dispatchEvent(new Event('focus'))`)
	m.see(`document.querySelectorAll('article.report').length === 1 && document.activeElement === document.querySelector('article.report')`)
	m.see(`document.querySelector('article.report').textContent.includes('second')`)
	decision = on(1)
	decision["decision"] = "DISMISSED"
	other.must(decide, decision, nil)
	m.key("c")
	m.sees("This report has already been decided.")
	m.sees("No report waits for a decision.")
}

// An admin gives a role and takes it, and reads about it in the audit log. Others see no way in.
func TestAnAdminGivesARole(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, boss := s.signUp("ada"), s.signUp("boss")
	s.role(boss, "admin")
	a := ada.browse()
	a.see(`document.querySelector('nav a[href="/settings"]') !== null && document.querySelector('nav a[href="/moderation"]') === null`)
	a.visit(s.url + "/moderation")
	a.sees("This page is for moderators.")

	b := boss.browse()
	b.visit(s.url + "/moderation/roles")
	b.fill("Handle", "nobody")
	b.key(kb.Enter)
	b.faulty(at("Find", "[name=handle]"), "There is nobody called @nobody.")
	b.retype(at("Find", "[name=handle]"), "@ada")
	b.key(kb.Enter)
	b.see(at("Role of @ada", "[name=role]:checked") + `?.value === 'USER'`)
	b.clickOn(at("Role of @ada", "[value=MODERATOR]"))
	b.fillIn(at("Role of @ada", "[name=note]"), "helps out")
	b.clickOn(at("Role of @ada", "button"))
	b.sees("@ada now has the role: Moderator.")

	// The app of the new moderator learns the role without a new log-in.
	a.reload()
	a.see(`document.querySelector('nav a[href="/moderation"]') !== null`)
	a.sees("No report waits for a decision.")
	a.visit(s.url + "/moderation/log")
	a.sees("This page is for admins.")

	b.visit(s.url + "/@ada")
	b.click("More: @ada")
	b.click("Change role")
	b.see(`document.querySelector('dialog [name=role]:checked')?.value === 'MODERATOR'`)
	b.clickOn(`document.querySelector('dialog [value=USER]')`)
	b.click("Save")
	b.sees("@ada now has the role: User.")
	b.visit(s.url + "/moderation/log")
	b.see(`document.querySelectorAll('.log li').length === 3`)
	b.see(`document.querySelector('.log li:nth-child(2)').innerText.replaceAll(/\s+/g, ' ').startsWith('@boss changed the role of @ada')`)
	b.sees("User → Moderator")
	b.sees("helps out")
	b.sees("The command line changed the role of @boss")
}

// A moderator hides a post and suspends its author where they are shown, and can undo both. The suspended user
// is told at the log-in.
func TestAModeratorActsFromAPostAndAProfile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	bob, mod := s.signUp("bob"), s.signUp("mod")
	s.role(mod, "moderator")
	mod.relate("follow", bob)
	mod.must(`{ timeline { unreadCount } }`, nil, nil) // makes the user active, so that posts are delivered
	post := bob.post("buy this")
	m := mod.browse()
	m.sees("buy this")
	m.see(`document.querySelector('nav a[href="/moderation"]') !== null`)
	m.clickOn(`document.querySelector('article .further summary')`)
	m.click("Hide as a moderator")
	m.see(`document.activeElement.name === 'note'`)
	m.write("spam")
	m.click("Hide post")
	m.sees("Post hidden.")
	m.see(`document.querySelector('main article') === null`)
	m.click("Undo")
	m.sees("The post is shown again.")
	m.visit(s.url + "/post/" + post)
	m.sees("buy this")

	m.visit(s.url + "/@bob")
	m.click("More: @bob")
	m.see(named("Change role") + ` == null`)
	m.click("Suspend")
	m.see(`document.activeElement.name === 'reason'`)
	m.write("You advertise.")
	m.choose(`document.querySelector('dialog select')`, "7")
	m.click("Suspend")
	m.sees("@bob is suspended.")
	m.see(`document.querySelector('main .tag')?.textContent.startsWith('suspended until')`)
	m.sees("The reason that the user reads: You advertise.")

	b := open(t, s.url)
	b.visit(s.url + "/login")
	b.fill("Handle", "bob")
	b.fill("Password", password)
	b.key(kb.Enter)
	b.see(`/^This account is suspended until \w+ \d+, \d{4} at .*\. The reason: You advertise\.$/.test(document.querySelector('form [role=alert]')?.textContent)`)
	m.click("Undo")
	m.sees("@bob is no longer suspended.")
	m.shows("buy this")
	b.key(kb.Enter)
	b.see(live)

	// Where another moderator was faster, there is nothing to undo.
	other, dan := s.signUp("other"), s.signUp("dan")
	s.role(other, "moderator")
	m.visit(s.url + "/@dan")
	m.click("More: @dan")
	m.click("Suspend")
	m.see(`document.activeElement.name === 'reason'`)
	other.must(`mutation($i: ModerateUserInput!) { suspendUser(input: $i) { changed } }`, map[string]any{"userId": dan.id}, nil)
	m.click("Suspend")
	m.sees("This had been done already. Nothing changed.")
	m.see(named("Undo") + ` == null`)
	other.must(`mutation($i: ModerateUserInput!) { unsuspendUser(input: $i) { changed } }`, map[string]any{"userId": dan.id}, nil)

	// Where there is no undo, the profile ends the suspension. Others are told nothing there.
	cem := s.signUp("cem")
	cem.post("buy that")
	mod.must(`mutation($i: ModerateUserInput!) { suspendUser(input: $i) { changed } }`, map[string]any{"userId": cem.id}, nil)
	b.visit(s.url + "/@cem")
	b.sees("There is nobody called @cem.")
	m.visit(s.url + "/@cem")
	m.click("End suspension")
	m.see(`document.activeElement.name === 'note'`)
	m.click("End suspension")
	m.shows("buy that")
	m.visit(s.url + "/@nobody")
	m.sees("There is nobody called @nobody.")

	// The list of suspended users leads to each of them.
	m.visit(s.url + "/moderation/suspended")
	m.sees("Nobody is suspended.")
	mod.must(`mutation($i: ModerateUserInput!) { suspendUser(input: $i) { changed } }`, map[string]any{"userId": cem.id, "reason": "You advertise."}, nil)
	m.reload()
	m.see(`document.querySelector('section.panel a')?.getAttribute('href') === '/@cem'`)
	m.sees("The reason that the user reads: You advertise.")
	m.click("End suspension")
	m.see(`document.activeElement.name === 'note'`)
	m.click("End suspension")
	m.sees("Nobody is suspended.")
}

// The pages for moderators in every look and language, as TestViews does it for all other pages.
func TestModerationViews(t *testing.T) {
	t.Parallel()
	script := accessibility(t)
	for _, in := range tongues {
		t.Run(in.code, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			ada, boss, marina, tomas := s.signUp("ada"), s.signUp("boss"), s.signUp("marina"), s.signUp("tomas_the_boat_builder_of_olh")
			s.role(boss, "admin")
			root := marina.post(in.post["marina"][0])
			reply := tomas.replyTo(root, in.post["tomas"][0])
			ada.replyTo(reply, in.own)
			tomas.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": reply, "text": in.post["tomas"][1]}, nil)
			ada.report(reply, "HARASSMENT", in.bio["ines"])
			tomas.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": reply, "text": in.bio["tomas"]}, nil)
			ada.must(`mutation($i: ReportUserInput!) { reportUser(input: $i) { reported } }`, map[string]any{"userId": marina.id, "reason": "IMPERSONATION"}, nil)
			spam := marina.post(strings.Repeat("https://example.org/", 5))
			ada.report(spam, "SPAM", "")
			boss.must(`mutation($i: ModeratePostInput!) { hidePost(input: $i) { changed } }`, map[string]any{"postId": spam, "note": in.bio["yuki"]}, nil)
			p := boss.browse(speaks(in.code))
			for _, v := range []view{
				{"moderation", func(p *page, _ tongue) {
					p.visit(s.url + "/moderation")
					p.see(`document.querySelectorAll('article.report').length === 3`)
					p.key("j")
					p.key("c")
					p.see(`document.querySelector('.report .note') !== null`)
					p.key("o")
					p.see(`document.querySelectorAll('.conversation section').length === 4`)
				}},
				{"moderation suspend", func(p *page, _ tongue) {
					p.key("s")
					p.see(`document.querySelector('dialog') !== null`)
				}},
				{"moderation uphold", func(p *page, _ tongue) {
					p.key(kb.Escape)
					p.see(`document.querySelector('dialog') === null`)
					p.key("u")
					p.see(`document.querySelector('dialog') !== null`)
				}},
				{"moderation keys", func(p *page, _ tongue) {
					p.key(kb.Escape)
					p.see(`document.querySelector('dialog') === null`)
					p.key("?")
					p.see(`document.querySelector('dialog h3') !== null`)
				}},
				{"moderation upheld", func(p *page, in tongue) {
					p.key(kb.Escape)
					p.see(`document.querySelector('dialog') === null`)
					p.key("j")
					p.key("u")
					p.see(`document.activeElement.name === 'note'`)
					p.write(in.bio["olu"])
					p.key(kb.Enter, chromedp.ModifierCtrl)
					p.see(`document.querySelectorAll('article.report').length === 2`)
					goTo("/moderation/upheld", func(tongue) string { return in.bio["olu"] })(p, in)
				}},
				{"moderation dismissed", goTo("/moderation/dismissed", func(tongue) string { return "" })},
				{"moderation roles", func(p *page, _ tongue) {
					p.visit(s.url + "/moderation/roles")
					p.fillIn(`document.querySelector('[name=handle]')`, "marina")
					p.key(kb.Enter)
					p.see(`document.querySelector('[value=USER]:checked') !== null`)
				}},
				{"moderation log", goTo("/moderation/log", func(in tongue) string { return in.bio["olu"] })},
				{"moderation suspended user", func(p *page, in tongue) {
					boss.must(`mutation($i: ModerateUserInput!) { suspendUser(input: $i) { changed } }`, map[string]any{"userId": tomas.id, "reason": in.bio["tomas"]}, nil)
					goTo("/@tomas_the_boat_builder_of_olh", func(in tongue) string { return in.bio["tomas"] })(p, in)
				}},
				{"moderation suspended", goTo("/moderation/suspended", func(in tongue) string { return in.bio["tomas"] })},
			} {
				v.to(p, in)
				p.looks(v.name, script, in.code)
				p.size(320, 640, true)
				assert.LessOrEqual(t, p.value(`document.documentElement.scrollWidth`), 320.0, v.name+" is too wide for a small phone")
				p.size(1280, 900, false)
			}
		})
	}
}
