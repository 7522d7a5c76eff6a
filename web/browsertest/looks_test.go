package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"tideline/storage/storagetest"
)

// rename changes the name that the person shows.
func (p *person) rename(name string) {
	p.s.t.Helper()
	p.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"name": name}, nil)
}

// contrast is a script that defines the contrast of two elements' backgrounds, from 1 to 21.
const contrast = `{
	const light = (e) => {
		const context = new OffscreenCanvas(1, 1).getContext('2d')
		context.fillStyle = getComputedStyle(e).backgroundColor
		context.fillRect(0, 0, 1, 1)
		const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
	}
	window.contrast = (a, b) => Math.max(light(a) / light(b), light(b) / light(a))
}`

// The selected tab stands out from the others, in both colour schemes.
func TestSelectedTabsStandOut(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	a := serve(t).signUp("ada").browse()
	a.value(contrast)
	for _, scheme := range []string{"light", "dark"} {
		a.call(emulation.SetEmulatedMedia.Method, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		a.see(`contrast(document.querySelector('.tabs [aria-pressed=true]'), document.querySelector('.tabs')) >= 3`)
	}
}

// Long names wrap between words, handles stay in one line, and rows wrap on small screens. Names and texts in scripts that
// run from right to left do so.
func TestNamesAndTextsOfEveryShape(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob := s.signUp("ada"), s.signUp("bob")
	long := s.signUp(strings.Repeat("handle_", 4) + "30")
	long.rename("Maximiliane Charlotte von Hohenstein-Wittelsbach X")
	bob.rename("שירה לוי")
	ada.relate("follow", bob)
	ada.relate("follow", long)
	bob.relate("follow", ada)
	long.relate("follow", ada)
	long.post("hello @" + strings.Repeat("handle_", 4) + "30")
	bob.post("שלום עולם\nand English")
	a := ada.browse()
	for _, width := range []int64{320, 390, 1280} {
		a.size(width, 800, width < 500)
		for _, address := range []string{"/", "/@ada/followers", "/@" + strings.Repeat("handle_", 4) + "30", "/search?q=handle", "/@bob"} {
			a.visit(s.url + address)
			a.see(live)
			a.see(`document.querySelector('main [aria-busy=true]') === null`)
			at := fmt.Sprint(address, " at ", width)
			assert.LessOrEqual(t, a.value(`document.documentElement.scrollWidth`), float64(width), at)
			assert.Empty(t, a.value(`[...document.querySelectorAll('.who .muted')].filter((e) => e.getClientRects().length > 1 || e.offsetHeight > 30).map((e) => e.textContent)`), at)
			assert.Empty(t, a.value(`[...document.querySelectorAll('.person .who')].filter((e) => e.parentElement.offsetWidth < 110).map((e) => e.textContent)`), at)
			if *screenshots != "" {
				a.picture(fmt.Sprintf("%s/shapes-%d-%s.png", *screenshots, width, strings.NewReplacer("/", "_", "?", "_").Replace(address)), width, 800)
			}
		}
	}
	// On the page of bob: the first line begins at the right, the second at the left. The name stays at the left.
	a.see(`(() => {
		const text = document.querySelector('.text'), box = text.getBoundingClientRect()
		const lines = ['שלום', 'and'].map((word) => {
			const range = new Range(), at = text.textContent.indexOf(word)
			range.setStart(text.firstChild, at)
			range.setEnd(text.firstChild, at + word.length)
			return range.getBoundingClientRect()
		})
		const name = new Range()
		name.selectNodeContents(document.querySelector('h1'))
		return Math.abs(box.right - lines[0].right) < 2 && Math.abs(box.left - lines[1].left) < 2 && name.getBoundingClientRect().left < innerWidth / 2
	})()`)
	a.visit(s.url)
	a.draft("שלום")
	a.see(`getComputedStyle(document.querySelector('textarea')).direction === 'rtl'`)
}

// The side column shows a few follow requests, so that there is room for the rest. The page of people has all of them.
func TestManyFollowRequests(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	ada.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	const asking = 23
	for i := range asking {
		s.signUp(fmt.Sprintf("asks%d", i)).relate("follow", ada)
	}
	a := ada.browse()
	a.see(`document.querySelectorAll('aside .asks').length === 3 && document.querySelector('aside .suggestions') !== null`)
	a.click("Accept @asks22")
	a.see(`document.querySelectorAll('aside .asks').length === 3 && document.querySelector('aside .asks').textContent.includes('@asks21')`)
	a.click("All requests")
	a.see(`location.pathname === '/people' && document.querySelectorAll('main .asks').length >= 19`)
	a.click("Load more")
	a.see(fmt.Sprintf(`document.querySelectorAll('main .asks').length === %d`, asking-1))
	// A renewal keeps the requests that were loaded.
	s.signUp("late").relate("follow", ada)
	a.see(fmt.Sprintf(`document.querySelectorAll('main .asks').length === %d && document.querySelector('main .asks').textContent.includes('@late')`, asking))
	if *screenshots != "" {
		a.size(320, 640, true)
		a.picture(*screenshots+"/requests-320.png", 320, 640)
	}
}

// Fields say how much of their limit is left. A text that is too long stays, and is a fault.
func TestLimitsCountDown(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	// Notices stay for a minute, so that a slow machine sees them.
	a := serve(t).signUp("ada").browse(begins(`{
		const later = setTimeout
		window.setTimeout = (run, delay, ...rest) => later(run, delay === 5000 ? 60000 : delay, ...rest)
	}`))
	a.visit("http://" + a.site + "/settings/profile")
	const name = `document.querySelector('[name=name]')`
	const left = name + `.closest('.field').querySelector('.count').textContent`
	a.see(name + ` != null && ` + left + ` === '47 left'`)
	a.retype(name, strings.Repeat("🐙", 51))
	a.see(left + ` === '1 too many'`)
	a.click("Save")
	a.faulty(name, "51 characters are too many; at most 50 are allowed.")
	a.key(kb.Backspace)
	a.see(left + ` === '0 left'`)
	// The notice covers no field, also not while the page scrolls.
	a.size(390, 500, true)
	a.click("Save")
	a.sees("Saved.")
	const free = `(() => {
		const notice = document.querySelector('.notices p').getBoundingClientRect()
		return [...document.querySelectorAll('input, textarea')].every((field) => {
			const box = field.getBoundingClientRect()
			return box.bottom <= notice.top || box.top >= notice.bottom || box.right <= notice.left || box.left >= notice.right
		})
	})()`
	a.see(free)
	if *screenshots != "" {
		a.picture(*screenshots+"/notice-390.png", 390, 500)
	}
	a.value(`{
		const notice = document.querySelector('.notices p').getBoundingClientRect()
		scrollBy(0, document.querySelector('[name=link]').getBoundingClientRect().top - notice.top)
	}`)
	a.see(free)

	a.visit("http://" + a.site + "/settings/words")
	a.fill("Word or phrase", "tide")
	a.key(kb.Enter)
	a.see(`document.querySelector('.rows')?.textContent.includes('tide') && document.querySelector('.field .count').textContent === ''`)
}

// A fault in the box for a post and in the form for an edit is connected with the field, for screen readers.
func TestFaultsOfBoxesAreDescribed(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada := s.signUp("ada")
	post := ada.post("Low watr")
	a := ada.browse()
	a.pressIn("Low watr", "Edit post")
	const field = `document.querySelector('form.edit textarea')`
	a.see(`document.activeElement === ` + field)
	a.write("!")
	ada.must(`mutation($i: UpdatePostInput!) { updatePost(input: $i) { post { id } } }`, map[string]any{"postId": post, "text": "Low water"}, nil)
	a.click("Save")
	a.see(`document.getElementById(` + field + `.getAttribute('aria-describedby'))?.textContent.startsWith('The post was edited since') && ` + field + `.ariaInvalid === 'true'`)
	a.key(kb.Escape)
	a.offline(true)
	a.draft("from the boat")
	a.click("Post")
	const box = `document.querySelector('.compose textarea')`
	a.see(`document.getElementById(` + box + `.getAttribute('aria-describedby'))?.textContent.startsWith('Not posted.') && ` + box + `.ariaInvalid === 'true'`)
	a.offline(false)
	a.see(live)
	a.forgive()
}
