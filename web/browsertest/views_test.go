package browsertest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

var screenshots = flag.String("screenshots", "", "write a picture of each view into this `directory`")

// axe is the path of the accessibility checker that npm installs.
const axe = "../node_modules/axe-core/axe.min.js"

// tongue is a language of the app, with names and texts for the test users.
type tongue struct {
	code string
	name map[string]string
	bio  map[string]string
	post map[string][]string // by author, oldest first
	own  string
	tag  string // a post with #潮
}

var tongues = []tongue{
	{
		code: "en",
		name: map[string]string{"ada": "Ada Lindqvist", "marina": "Marina Holm", "tomas": "Tomás Reyes", "yuki": "Yuki Tanaka",
			"ines": "Inês Duarte", "olu": "Olu Adeyemi", "haiyan": "Hai Yan Li"},
		bio: map[string]string{
			"ada": "Walks the shore before breakfast.", "marina": "Lighthouse keeper. Weather, birds, and the odd wreck.",
			"tomas": "Boats, mostly wooden.", "yuki": "Tide tables by day, noodles by night.", "ines": "Cartographer of things that move.",
			"olu": "I photograph harbours at five in the morning.", "haiyan": "Librarian by the sea.",
		},
		post: map[string][]string{
			"tomas": {"Third coat of varnish on the *Petrel*. She will float by Sunday, or I will have learned something.", "Sunday it is. Bring a towel."},
			"marina": {
				"Fog all morning. Counted eleven gannets and one very lost heron, who stood on the rail as if he paid rent.",
				"The heron is back. I have started calling him Landlord.",
			},
			"yuki": {"Low water 05:42, high water 11:58. If you are going out to the island, be back before ten.", "Spring tide tonight, 5.4 m. Worth staying up for."},
		},
		own: "Found a bottle with a shopping list in it: eggs, rope, courage.",
		tag: "The sign at the quay says #潮, which is the tide.",
	},
	{
		code: "zh",
		name: map[string]string{"ada": "林潮", "marina": "何望海", "tomas": "陈木舟", "yuki": "田中雪", "ines": "杜映月", "olu": "欧阳帆", "haiyan": "李海燕"},
		bio: map[string]string{
			"ada": "早饭前在海边散步。", "marina": "守灯塔。写天气、海鸟，偶尔也写沉船。", "tomas": "造船，多半是木船。", "yuki": "白天看潮汐表，晚上吃面。",
			"ines": "给流动的东西画地图。", "olu": "凌晨五点拍港口。", "haiyan": "海边的图书管理员。",
		},
		post: map[string][]string{
			"tomas":  {"“海燕号”上完第三遍清漆了。星期天要么下水，要么我又学到了点什么。", "就定在星期天。记得带毛巾。"},
			"marina": {"一上午都是雾。数到十一只鲣鸟，还有一只彻底迷路的苍鹭，站在栏杆上，好像付了房租似的。", "苍鹭又来了。我开始叫它“房东”。"},
			"yuki":   {"低潮 05:42，高潮 11:58。要上岛的话，十点前回来。", "今晚大潮，5.4 米，值得熬夜。"},
		},
		own: "捡到一个漂流瓶，里面是一张购物清单：鸡蛋、绳子、勇气。",
		tag: "码头的牌子上写着 #潮 。",
	},
}

// village starts a site where ada follows users with posts, likes and requests. It returns ada's browser.
func village(t *testing.T, in tongue) *page {
	t.Helper()
	s := serve(t)
	people := map[string]*person{}
	for _, handle := range []string{"ada", "marina", "tomas", "yuki", "ines", "olu", "haiyan"} {
		people[handle] = s.signUp(handle)
		people[handle].must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`,
			map[string]any{"name": in.name[handle], "bio": in.bio[handle], "approvesFollowers": handle == "ada"}, nil)
	}
	ada := people["ada"]
	for _, handle := range []string{"marina", "tomas", "yuki"} {
		ada.relate("follow", people[handle])
		people["ines"].relate("follow", people[handle])
	}
	people["marina"].relate("follow", ada)
	ada.relate("acceptFollower", people["marina"])
	people["marina"].must(`{ timeline { unreadCount } }`, nil, nil) // makes the user active, so that posts are delivered
	people["olu"].relate("follow", ada)
	// The lists of ada's settings have an entry each.
	for handle, how := range map[string]string{"asked": "follow", "muted": "mute", "blocked": "block"} {
		other := s.signUp(handle)
		other.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
		ada.relate(how, other)
	}
	ada.logIn("ada", password)
	ada.must(`mutation($i: MuteWordInput!) { muteWord(input: $i) { word } }`, map[string]any{"word": "landlubber"}, nil)
	people["haiyan"].post(in.tag)

	people["tomas"].post(in.post["tomas"][0])
	liked := people["marina"].post(in.post["marina"][0])
	people["yuki"].post(in.post["yuki"][0])
	for _, liker := range []string{"ada", "ines"} {
		people[liker].must(`mutation($i: LikePostInput!) { likePost(input: $i) { post { id } } }`, map[string]any{"postId": liked}, nil)
	}
	ada.must(`mutation($i: PostInput!) { muteConversation(input: $i) { post { id } } }`, map[string]any{"postId": liked}, nil)
	ada.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`,
		map[string]any{"text": in.own, "visibility": "MUTUALS"}, nil)

	a := ada.browse(speaks(in.code))
	a.see(`document.documentElement.lang === ` + js(in.code))
	a.see(`document.querySelectorAll('article').length === 4`)
	people["tomas"].post(in.post["tomas"][1])
	people["marina"].post(in.post["marina"][1])
	a.see(pill + `?.startsWith('2 ')`)
	a.clickOn(`document.querySelector('.new-posts')`)
	a.see(`document.querySelector('.tideline') !== null`)
	people["yuki"].post(in.post["yuki"][1])
	a.see(pill + `?.startsWith('1 ')`)
	return a
}

// view is a view of the app. to goes there from the previous view in views.
type view struct {
	name string
	to   func(p *page, in tongue)
}

// goTo opens an address and waits until the page has the text that seen returns.
func goTo(address string, seen func(in tongue) string) func(p *page, in tongue) {
	return func(p *page, in tongue) {
		p.visit("http://" + p.site + address)
		p.see(live)
		p.see(`document.querySelector('[aria-busy=true]') === null`)
		p.sees(seen(in))
		// Content that loads late must not move the page. A layout shift of 0.1 is called good.
		assert.Less(p.t, p.value(`new Promise((tell) => {
			let moved = 0
			const observer = new PerformanceObserver((list) => { for (const shift of list.getEntries()) moved += shift.value })
			observer.observe({ type: 'layout-shift', buffered: true })
			requestAnimationFrame(() => setTimeout(() => tell(moved), 100))
		})`), 0.02, address+" jumps while it loads")
	}
}

var views = []view{
	{"home", func(p *page, in tongue) { p.see(`document.querySelector('.delivery') !== null`) }},
	{"dialog", func(p *page, in tongue) {
		p.key("n")
		p.see(`document.querySelector('dialog textarea') === document.activeElement`)
	}},
	{"keys", func(p *page, in tongue) {
		p.key(kb.Escape)
		p.see(`document.querySelector('dialog') === null`)
		p.value(`document.activeElement.blur()`)
		p.key("?")
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"delete", func(p *page, in tongue) {
		p.clickOn(`document.querySelector('dialog button')`)
		p.see(`document.querySelector('dialog') === null`)
		p.clickOn(`document.querySelector('article .edits + .act')`)
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"report", func(p *page, in tongue) {
		p.clickOn(`document.querySelector('dialog button')`)
		p.see(`document.querySelector('dialog') === null`)
		p.clickOn(`document.querySelector('article .complain')`)
		p.see(`document.querySelector('dialog textarea') !== null`)
	}},
	{"people", goTo("/people", func(in tongue) string { return in.bio["ines"] })},
	{"found", func(p *page, in tongue) {
		p.fillIn(`document.querySelector('#search')`, "o")
		p.see(`document.querySelector('main > .people') !== null`)
	}},
	{"nobody", func(p *page, in tongue) {
		p.write("zzz")
		p.see(`document.querySelector('main > .people') === null && document.querySelector('.empty') !== null`)
	}},
	{"profile", goTo("/@marina", func(in tongue) string { return in.bio["marina"] })},
	{"menu", func(p *page, in tongue) { p.clickOn(`document.querySelector('summary')`) }},
	{"followers", goTo("/@marina/followers", func(in tongue) string { return in.name["ines"] })},
	{"own", goTo("/@ada", func(in tongue) string { return in.own })},
	{"tag", goTo("/tag/潮", func(in tongue) string { return in.tag })},
	{"no tag", goTo("/tag/nothing", func(in tongue) string { return "#nothing" })},
	{"public", goTo("/public", func(in tongue) string { return in.tag })},
	{"lost", goTo("/no/such/page", func(in tongue) string { return "" })},
	{"own followers", goTo("/@ada/followers", func(in tongue) string { return in.name["marina"] })},
	{"remove", func(p *page, in tongue) {
		p.clickOn(`document.querySelector('main .people summary')`)
		p.clickOn(`document.querySelector('main .people .menu-items button')`)
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"settings", goTo("/settings", func(in tongue) string { return "@ada" })},
	{"settings profile", goTo("/settings/profile", func(in tongue) string { return "" })},
	{"settings account", goTo("/settings/account", func(in tongue) string { return "" })},
	{"settings faults", func(p *page, in tongue) {
		p.clickOn(`document.querySelectorAll('form .end button')[1]`)
		p.see(`document.querySelectorAll('form [aria-invalid=true]').length === 2`)
	}},
	{"settings delete", func(p *page, in tongue) {
		p.clickOn(`document.querySelector('main .grave')`)
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"settings sessions", goTo("/settings/sessions", func(in tongue) string { return "Android" })},
	{"settings words", goTo("/settings/words", func(in tongue) string { return "landlubber" })},
	{"settings muted", goTo("/settings/muted", func(in tongue) string { return "@muted" })},
	{"settings blocked", goTo("/settings/blocked", func(in tongue) string { return "@blocked" })},
	{"settings requests", goTo("/settings/requests", func(in tongue) string { return "@asked" })},
	{"settings conversations", goTo("/settings/conversations", func(in tongue) string { return in.post["marina"][0] })},
	{"settings likes", goTo("/settings/likes", func(in tongue) string { return in.post["marina"][0] })},
	{"missing", goTo("/@nobody", func(in tongue) string { return "@nobody" })},
	{"loading", func(p *page, in tongue) {
		p.value(`window.fetch = () => new Promise(() => {}), null`)
		p.clickOn(`document.querySelector('nav a[href="/@ada"]')`)
		p.see(`document.querySelector('main [aria-busy=true]') !== null`)
	}},
	{"failing", func(p *page, in tongue) {
		p.visit("http://" + p.site + "/settings")
		p.see(live)
		p.offline(true)
		p.clickOn(`document.querySelector('nav a[href="/@ada"]')`)
		p.see(`document.querySelector('main .failure') !== null`)
	}},
	{"welcome", func(p *page, in tongue) {
		p.offline(false)
		p.visit("http://" + p.site + "/settings")
		p.clickOn(`document.querySelector('.panel:last-child > button')`)
		p.see(`document.querySelector('.welcome input[name=name]') !== null`)
	}},
	{"log-in", func(p *page, in tongue) {
		p.clickOn(`document.querySelector('.welcome .row .link')`)
		p.see(`document.querySelector('.welcome input[name=name]') === null`)
	}},
	{"visitor", func(p *page, in tongue) {
		p.visit("http://" + p.site + "/@marina")
		p.sees(in.post["marina"][1])
	}},
	{"visitor public", func(p *page, in tongue) {
		p.visit("http://" + p.site + "/public")
		p.sees(in.post["marina"][1])
	}},
}

// looks are the window sizes and colour schemes in which every view is tested.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"desktop-light", 1280, 860, "light"},
	{"desktop-dark", 1280, 860, "dark"},
	{"phone-light", 390, 844, "light"},
	{"phone-dark", 390, 844, "dark"},
}

// TestViews opens every view in every look and language. Nothing is wider than the page, and the
// accessibility checker finds no problem.
func TestViews(t *testing.T) {
	t.Parallel()
	script := accessibility(t)
	for _, in := range tongues {
		t.Run(in.code, func(t *testing.T) {
			t.Parallel()
			p := village(t, in)
			for _, v := range views {
				v.to(p, in)
				p.looks(v.name, script, in.code)
				p.size(320, 640, true)
				assert.LessOrEqual(t, p.value(`document.documentElement.scrollWidth`), 320.0, v.name+" is too wide for a small phone")
				p.size(1280, 900, false)
			}
			p.forgive() // requests fail while offline, and get 401 after the log-out
		})
	}
}

// accessibility returns the source of the accessibility checker. If it is not installed, the test is skipped.
func accessibility(t *testing.T) (script string) {
	t.Helper()
	source, err := os.ReadFile(axe)
	if err != nil {
		storagetest.Missing(t, fmt.Errorf("axe-core is not installed: run npm ci in web: %w", err))
	}
	return string(source)
}

// looks checks the view in every look.
func (p *page) looks(view, script, language string) {
	p.t.Helper()
	if p.value(`typeof axe`) == "undefined" {
		p.value(script + `; null`)
	}
	for _, look := range looks {
		p.look(view+"-"+look.name, look.width, look.height, look.scheme, language)
	}
}

func (p *page) look(name string, width, height int64, scheme, language string) {
	p.t.Helper()
	if language != "en" {
		// Only the words differ from English, so the look with the least room for them is enough.
		if name += "-" + language; *screenshots == "" && (width > 500 || scheme == "dark") {
			return
		}
	}
	p.size(width, height, width < 500)
	p.call(emulation.SetScrollbarsHidden.Method, emulation.SetScrollbarsHiddenParams{Hidden: width < 500})
	p.call(emulation.SetEmulatedMedia.Method, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	p.see(`document.getAnimations().length === 0`)
	assert.Empty(p.t, p.violations(scheme), name)
	assert.LessOrEqual(p.t, p.value(`document.documentElement.scrollWidth`), p.value(`innerWidth`), name+" is too wide")
	if *screenshots != "" {
		p.picture(filepath.Join(*screenshots, name+".png"), width, height)
	}
}

// violations returns the problems that axe finds on the current page. In the dark scheme it
// checks only colours, because the rest of the page is the same as in the light scheme.
func (p *page) violations(scheme string) string {
	p.t.Helper()
	only := ""
	if scheme == "dark" {
		only = `runOnly: ['color-contrast', 'link-in-text-block'], `
	}
	found := p.value(`axe.run({ ` + only + `resultTypes: ['violations'] }).then(({ violations }) =>
		violations.map((v) => v.id + ': ' + v.help + '\n' + v.nodes.map((n) => '  ' + n.html.slice(0, 200) + '\n  ' + n.failureSummary).join('\n')))`)
	var list []string
	for _, violation := range found.([]any) {
		list = append(list, fmt.Sprint(violation))
	}
	return strings.Join(list, "\n")
}

// picture writes a screenshot, at most 960 pixels wide: a document that shows it has less
// room than the view.
func (p *page) picture(file string, width, height int64) {
	p.t.Helper()
	shot, err := chromedp.Call(p.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Clip: &cdppage.Viewport{
		Y: p.value(`scrollY`).(float64), Width: float64(width), Height: float64(height), Scale: min(1, 960/float64(width)),
	}})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(file, shot.Data, 0o644))
}
