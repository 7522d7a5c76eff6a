package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tideline/storage/storagetest"
)

// The address holds the search, so a reload and the way back and forward keep it. A tag in the search box leads to its page.
func TestSearchIsInTheAddress(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, zoe := s.signUp("ada"), s.signUp("zoe")
	zoe.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"name": "Zoë Holm"}, nil)
	ada.post("a #Tide")
	a := ada.browse()
	const box = `document.querySelector('#search')`
	found := func(query, handles string) {
		t.Helper()
		a.see(fmt.Sprintf(`location.pathname === '/search' && new URLSearchParams(location.search).get('q') === %s && document.title === %s`, js(query), js("Search: "+query+" · Tideline")))
		a.see(box + `?.value === ` + js(query))
		a.see(fmt.Sprintf(`[...document.querySelectorAll('main > .people .who span')].map((e) => e.textContent).join() === %s`, js(handles)))
		a.see(`document.querySelector('nav a[href="/people"]').ariaCurrent === 'page' && document.querySelector('.suggestions') === null`)
	}
	a.click("People")
	a.fill("Search", "holm ZOË")
	found("holm ZOË", "@zoe")
	a.see(`document.activeElement === ` + box)
	a.reload()
	found("holm ZOË", "@zoe")
	a.clickOn(`document.querySelector('main .person a')`)
	a.see(`document.querySelector('h1').textContent === 'Zoë Holm'`)
	a.do(chromedp.NavigateBack())
	found("holm ZOË", "@zoe")
	a.do(chromedp.NavigateBack())
	a.see(`location.pathname === '/' && document.querySelector('h1').textContent === 'Home'`)
	a.do(chromedp.NavigateForward())
	found("holm ZOË", "@zoe")
	a.retype(box, "zo")
	found("zo", "@zoe")
	a.retype(box, " ")
	a.see(`location.pathname === '/people' && document.querySelector('.suggestions') !== null`)

	a.retype(box, "tide")
	found("tide", "")
	a.clickOn(`document.querySelector('main .rows a')`)
	a.see(`location.pathname === '/tag/tide'`)
	a.shows("a #Tide")
	a.do(chromedp.NavigateBack())
	found("tide", "")
	a.retype(box, "#Tide")
	a.see(box + `.value === '#Tide'`)
	a.key(kb.Enter)
	a.see(`location.pathname === '/tag/Tide' && document.querySelector('h1').textContent === '#Tide'`)
	a.visit(s.url + "/search?q=%EF%BC%83%21")
	a.sees("This is not a tag.")
}

// often is a script that makes a page read lists without events ten times a second.
const often = `{
	const every = setInterval
	window.setInterval = (run, delay, ...rest) => every(run, delay === 30000 ? 100 : delay, ...rest)
}`

// A tag page announces new posts, and drops posts that are gone. It checks when the reader comes back to it, and regularly.
func TestTagPageIsLive(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	gone := bob.post("first #tide")
	bob.post("second #tide")
	a, seldom := ada.browse(begins(often)), ada.browse()
	for _, p := range []*page{a, seldom} {
		p.visit(s.url + "/tag/tide")
		p.shows("second #tide", "first #tide")
	}
	third := bob.post("third #tide")
	a.see(pill + ` === '1 new post'`)
	a.shows("second #tide", "first #tide")
	bob.must(`mutation($i: DeletePostInput!) { deletePost(input: $i) { deletedPostId } }`, map[string]any{"postId": gone}, nil)
	a.shows("second #tide")
	a.key(".")
	a.shows("third #tide", "second #tide")
	a.see(`document.activeElement.id === ` + js(third) + ` && document.querySelector('.new-posts') === null`)
	seldom.see(`(dispatchEvent(new Event('focus')), ` + pill + ` === '1 new post')`)

	// More than a page of new posts begin the list again, without a gap.
	for i := range 23 {
		bob.post(fmt.Sprintf("%d #tide", i))
	}
	a.see(pill + ` === '20 new posts'`)
	a.shows("third #tide", "second #tide")
	a.see(`(document.querySelector('.new-posts')?.click(), ` + texts + `[0] === '22 #tide')`)
	a.see(`(document.querySelector('.more')?.click(), document.querySelectorAll('article').length === 25)`)
	a.see(texts + `.slice(-3).join() === '0 #tide,third #tide,second #tide'`)
}
