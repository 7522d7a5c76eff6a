package browsertest

import (
	"fmt"
	"net/http"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

const postTitle = `'Ada (@ada) · Tideline'`

// A visitor reads the public posts, opens one, logs in, and is back at the post.
func TestAVisitorIsBackAtThePostAfterLogIn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	s.signUp("bob")
	v := open(t, s.url)
	v.click("Read what people say")
	v.sees("Nobody has written a public post yet.")
	v.see(`location.pathname === '/public' && document.title === 'Public posts · Tideline'`)
	id := ada.post("Low water")
	ada.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, map[string]any{"text": "Hush", "visibility": "FOLLOWERS"}, nil)
	v.see(`fetch('/graphql?query={publicPosts{nodes{id}}}').then((answer) => answer.text()).then((text) => text.includes(` + js(id) + `))`)
	v.reload()
	v.shows("Low water")
	v.see(`document.querySelector('link[rel=canonical]').href === location.href`)
	v.clickOn(`document.querySelector('article .when')`)
	v.see(`location.pathname === ` + js("/post/"+id) + ` && document.querySelector('.thread') !== null`)
	v.see(`document.querySelector('link[rel=canonical]') === null`) // or the browser would share the page that was loaded

	v.reload()
	v.sees("Low water")
	v.see(`document.title === ` + postTitle + ` && document.querySelector('meta[name=description]').content === 'Low water'`)
	v.see(`document.querySelector('link[rel=canonical]').href === location.href`)
	v.click("Log in")
	v.see(`location.pathname === '/login'`)
	v.fill("Handle", "bob")
	v.fill("Password", password)
	v.key(kb.Enter)
	v.see(live)
	v.see(`location.pathname === ` + js("/post/"+id))
	v.sees("Low water")
	v.see(`document.querySelector('main > div > .compose') !== null`) // a member may reply
}

// A member's own new post is on top of the public posts at once. The list goes on page by page, and says what fails.
func TestPublicPosts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	for i := range 25 {
		bob.post(fmt.Sprint("post ", i))
	}
	a := ada.browse()
	a.click("People")
	a.offline(true)
	a.click("Public posts")
	a.see(`document.querySelector('main .failure') !== null`)
	a.offline(false)
	a.see(`document.querySelectorAll('article').length >= 20`)
	a.see(`document.querySelector('article .text').textContent === 'post 24'`)
	a.see(`(document.querySelector('.more')?.click(), document.querySelectorAll('article').length === 25 && document.querySelector('.more') === null)`)
	write := func(text, audience string) {
		t.Helper()
		a.click("New post")
		a.fillIn(`document.querySelector('dialog textarea')`, text)
		a.choose(`document.querySelector('dialog select')`, audience)
		a.key(kb.Enter, chromedp.ModifierCtrl)
		a.see(`document.querySelector('dialog') === null`)
	}
	write("to everyone", "PUBLIC")
	a.see(texts + `[0] === 'to everyone'`)
	write("to friends", "MUTUALS")
	a.see(`!document.body.innerText.includes('Sending')`)
	a.reload()
	a.see(texts + `[0] === 'to everyone'`)
	a.seesNot("to friends")
	a.forgive() // requests fail while offline
}

// A link to a post that is not for everyone, or to nothing, has the status 404, and the app in its body: it shows the post to those
// who may see it, and tells the others that there is nothing.
func TestALinkThatIsNotForEveryone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	var answer struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	ada.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`, map[string]any{"text": "Hush", "visibility": "PRIVATE"}, &answer)
	private := "/post/" + answer.CreatePost.Post.ID
	status := func(address string) int {
		response, err := http.Get(s.url + address)
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode
	}
	a := ada.browse()
	for _, address := range []string{private, "/no/such/page"} {
		require.Equal(t, http.StatusNotFound, status(address), address)
	}
	a.visit(s.url + private)
	a.sees("Hush")
	a.visit(s.url + "/no/such/page")
	a.sees("There is nothing at this address.")
	a.click("Go to your timeline")
	a.see(`location.pathname === '/'`)

	v := open(t, s.url+private)
	v.sees("This post does not exist, or you may not see it.")
	v.visit(s.url + "/no/such/page")
	v.sees("There is nothing at this address.")
	v.click("Read what people say")
	v.see(`location.pathname === '/public'`)
}

// The browser reads the manifest and the icons: the policy of the page allows them.
func TestManifest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	v := open(t, s.url)
	v.see(`new Promise((tell) => {
		const link = document.querySelector('link[rel=manifest]')
		fetch(link.href).then((answer) => answer.json()).then(async ({ name, icons }) => {
			const sizes = await Promise.all(icons.map(async ({ src, sizes }) => {
				const image = new Image()
				image.src = src
				await image.decode()
				return image.naturalWidth + 'x' + image.naturalHeight === sizes
			}))
			tell(name === 'Tideline' && sizes.every(Boolean))
		})
	})`)
	manifest, err := chromedp.Call(v.ctx, cdppage.GetAppManifest, cdppage.GetAppManifestParams{})
	require.NoError(t, err)
	require.Empty(t, manifest.Errors)
	require.Equal(t, s.url+"/manifest.webmanifest", manifest.URL)
	require.NotEmpty(t, manifest.Data)
}
