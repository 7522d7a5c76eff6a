package browsertest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
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
	bob.see(`document.activeElement.role === 'combobox' && document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).ariaSelected === 'true'`)
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
	bob.see(within(news, ".repost summary") + `?.ariaLabel === 'Repost, 0 reposts, 1 quote'`)
	bob.shot("talk-quote")
	bob.clickOn(within(comment, ".withdraw"))
	bob.sees("This cannot be undone.")
	bob.click("Withdraw the quote")
	const withdrawn = "The author of the quoted post withdrew the quote."
	bob.see(within(comment, ".quoted") + `?.textContent === ` + js(withdrawn))
	ada.see(within(comment, ".quoted") + `?.textContent === ` + js(withdrawn))
	assert.EqualValues(t, 0, ada.value(`document.querySelectorAll('.wrong').length`))
}
