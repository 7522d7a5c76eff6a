package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// profileWith returns a page that shows a post for each of the texts, the last one first.
func profileWith(t *testing.T, texts []string) *page {
	t.Helper()
	ada := serve(t).signUp("ada")
	for _, text := range texts {
		ada.post(text)
	}
	a := ada.browse()
	a.visit("http://" + a.site + "/@ada")
	for more := true; more; { // load all pages
		a.see(`document.querySelector('main [aria-busy=true]') === null && document.querySelector('article') !== null`)
		more = a.value(`((more) => { more?.click(); return more !== null })(document.querySelector('.more'))`) == true
	}
	a.see(fmt.Sprintf(`document.querySelectorAll('article').length === %d`, len(texts)))
	return a
}

// The app links exactly the tags that the server finds. Both are tested with the same cases.
func TestAppLinksTags(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	file, err := os.ReadFile("../../feed/tag/testdata/cases.json")
	require.NoError(t, err)
	var cases []struct {
		Text    string
		Written []string
	}
	require.NoError(t, json.Unmarshal(file, &cases))
	texts, want := make([]string, len(cases)), make([][]string, len(cases))
	for i, c := range cases {
		texts[i], want[len(cases)-1-i] = c.Text, c.Written
	}
	a := profileWith(t, texts)
	found := a.value(`JSON.stringify([...document.querySelectorAll('article .text')].map((text) =>
		[...text.querySelectorAll('a[href^="/tag/"]')].map((link) => decodeURIComponent(link.pathname.slice('/tag/'.length)))))`)
	require.Equal(t, js(want), found)
	require.Equal(t, true, a.value(`[...document.querySelectorAll('a[href^="/tag/"]')].every((link) =>
		/^[#＃]/.test(link.textContent) && link.textContent.slice(1) === decodeURIComponent(link.pathname.slice('/tag/'.length)))`))
}

// A tag in a post links to a paged list of all posts with that tag. Visitors can open it, too.
func TestTagPage(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	for i := range 25 {
		bob.post(fmt.Sprintf("%d #Tide", i))
	}
	bob.post("no tag: tide")
	ada.post("mine #tide, #潮水!")
	a := ada.browse()
	a.clickOn(`document.querySelector('article a[href="/tag/tide"]')`)
	a.see(`location.pathname === '/tag/tide' && document.querySelector('h1').textContent === '#tide' && document.title === '#tide · Tideline'`)
	a.see(`document.querySelector('article .text').textContent === 'mine #tide, #潮水!'`)
	a.clickOn(`document.querySelector('.more')`)
	a.see(`document.querySelectorAll('article').length === 26 && document.querySelector('.more') === null`)
	a.see(`[...document.querySelectorAll('article .text')].at(-1).textContent === '0 #Tide'`)
	a.clickOn(`[...document.querySelectorAll('article a')].find((link) => link.textContent === '#潮水')`)
	a.see(`document.querySelector('h1').textContent === '#潮水' && document.querySelectorAll('article').length === 1`)
	a.value(`history.back()`)
	a.see(`document.querySelector('h1').textContent === '#tide' && document.querySelectorAll('article').length >= 20`)

	v := open(t, s.url+"/tag/%E6%BD%AE%E6%B0%B4")
	v.see(`document.querySelector('h1')?.textContent === '#潮水' && document.querySelectorAll('article').length === 1`)
	v.visit("http://" + v.site + "/tag/nothing")
	v.sees("No posts with #nothing to show.")
}
