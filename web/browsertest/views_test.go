package browsertest

import (
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "", "write a picture of each view into this `directory`")

// axe is the accessibility checker, as npm installs it.
const axe = "../node_modules/axe-core/axe.min.js"

// village is a site with people who have something to say to ada; it returns
// her, signed in.
func village(t *testing.T) (*site, *page) {
	t.Helper()
	s := serve(t)
	ada := s.signUp("ada")
	people := map[string]*person{}
	for _, p := range []struct{ handle, name, bio string }{
		{"marina", "Marina Holm", "Lighthouse keeper. Weather, birds, and the odd wreck."},
		{"tomas", "Tomás Reyes", "Boats, mostly wooden."},
		{"yuki", "Yuki Tanaka", "Tide tables by day, noodles by night."},
		{"ines", "Inês Duarte", "Cartographer of things that move."},
		{"olu", "Olu Adeyemi", "I photograph harbours at five in the morning."},
		{"haiyan", "Hai Yan Li", "Librarian by the sea."},
	} {
		people[p.handle] = s.signUp(p.handle)
		people[p.handle].must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`,
			map[string]any{"name": p.name, "bio": p.bio}, nil)
	}
	ada.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`,
		map[string]any{"name": "Ada Lindqvist", "bio": "Walks the shore before breakfast.", "approvesFollowers": true}, nil)
	for _, handle := range []string{"marina", "tomas", "yuki"} {
		ada.relate("follow", people[handle])
		people["ines"].relate("follow", people[handle])
	}
	people["marina"].relate("follow", ada)
	ada.relate("acceptFollower", people["marina"])
	people["olu"].relate("follow", ada)

	people["tomas"].post("Third coat of varnish on the *Petrel*. She will float by Sunday, or I will have learned something.")
	liked := people["marina"].post("Fog all morning. Counted eleven gannets and one very lost heron, who stood on the rail as if he paid rent.")
	people["yuki"].post("Low water 05:42, high water 11:58. If you are going out to the island, be back before ten.")
	ada.must(`mutation($i: LikePostInput!) { likePost(input: $i) { post { id } } }`, map[string]any{"postId": liked}, nil)
	people["ines"].must(`mutation($i: LikePostInput!) { likePost(input: $i) { post { id } } }`, map[string]any{"postId": liked}, nil)
	ada.must(`mutation($i: CreatePostInput!) { createPost(input: $i) { post { id } } }`,
		map[string]any{"text": "Found a bottle with a shopping list in it: eggs, rope, courage.", "visibility": "MUTUALS"}, nil)

	a := ada.browse()
	a.see(`document.querySelectorAll('article').length === 4`)
	people["tomas"].post("Sunday it is. Bring a towel.")
	people["marina"].post("The heron is back. I have started calling him Landlord.")
	a.see(pill + ` === '2 new posts'`)
	a.click("2 new posts")
	a.see(`document.querySelector('.tideline') !== null`)
	people["yuki"].post("Spring tide tonight, 5.4 m. Worth staying up for.")
	a.see(pill + ` === '1 new post'`)
	return s, a
}

// view is one of the app's, and how to get there from the view before it.
type view struct {
	name string
	to   func(p *page)
}

func goTo(address, seen string) func(p *page) {
	return func(p *page) {
		p.visit("http://" + p.site + address)
		p.see(live)
		p.see(`document.querySelector('[aria-busy=true]') === null`)
		p.sees(seen)
	}
}

var views = []view{
	{"home", func(p *page) {}},
	{"dialog", func(p *page) {
		p.key("n")
		p.see(`document.querySelector('dialog textarea') === document.activeElement`)
	}},
	{"keys", func(p *page) {
		p.key("Escape")
		p.see(`document.querySelector('dialog') === null`)
		p.value(`document.activeElement.blur()`)
		p.key("?")
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"delete", func(p *page) {
		p.click("Close")
		p.click("Delete")
		p.see(`document.querySelector('dialog') !== null`)
	}},
	{"people", goTo("/people", "People to follow")},
	{"profile", goTo("/@marina", "Lighthouse keeper")},
	{"menu", func(p *page) { p.click("More: @marina") }},
	{"followers", goTo("/@marina/followers", "Inês")},
	{"own", goTo("/@ada", "shopping list")},
	{"settings", goTo("/settings", "About you")},
	{"missing", goTo("/@nobody", "There is nobody called @nobody.")},
	{"welcome", func(p *page) {
		p.visit("http://" + p.site + "/settings")
		p.click("Log out")
		p.sees("I have an account")
	}},
	{"log-in", func(p *page) { p.click("I have an account") }},
	{"visitor", func(p *page) {
		p.visit("http://" + p.site + "/@marina")
		p.sees("Landlord")
	}},
}

// looks are the widths and colours in which every view is looked at.
var looks = []struct {
	name          string
	width, height int
	scheme        string
}{
	{"desktop-light", 1280, 860, "light"},
	{"desktop-dark", 1280, 860, "dark"},
	{"phone-light", 390, 844, "light"},
	{"phone-dark", 390, 844, "dark"},
}

// TestViews goes through every view in every look: nothing is wider than the
// page, and the accessibility checker finds nothing.
func TestViews(t *testing.T) {
	script, err := os.ReadFile(axe)
	if err != nil {
		require.Empty(t, os.Getenv("TIDELINE_TEST_REQUIRE_REAL"), "axe-core is not installed: run npm ci in web")
		t.Skip("axe-core is not installed (npm ci in web): accessibility is NOT checked")
	}
	_, p := village(t)
	for _, v := range views {
		v.to(p)
		if p.value(`typeof axe`) == "undefined" {
			p.value(string(script) + `; null`)
		}
		for _, look := range looks {
			p.size(look.width, look.height, look.width < 500)
			p.do("Emulation.setScrollbarsHidden", map[string]any{"hidden": look.width < 500})
			p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
				{"name": "prefers-color-scheme", "value": look.scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
			}})
			name := v.name + "-" + look.name
			p.see(`document.getAnimations().length === 0`)
			assert.Empty(t, p.violations(), name)
			assert.LessOrEqual(t, p.value(`document.documentElement.scrollWidth`), p.value(`innerWidth`), name+" is too wide")
			if *screenshots != "" {
				p.picture(filepath.Join(*screenshots, name+".png"), look.width, look.height)
			}
		}
		p.size(1280, 900, false)
	}
	p.forgive() // after the log-out, some answers are 401
}

// violations are what axe finds wrong with the page as it is.
func (p *page) violations() string {
	p.t.Helper()
	found := p.value(`axe.run({ resultTypes: ['violations'] }).then(({ violations }) =>
		violations.map((v) => v.id + ': ' + v.help + '\n' + v.nodes.map((n) => '  ' + n.html.slice(0, 200) + '\n  ' + n.failureSummary).join('\n')))`)
	var list []string
	for _, violation := range found.([]any) {
		list = append(list, fmt.Sprint(violation))
	}
	return strings.Join(list, "\n")
}

// picture writes what is in view, wide views a little smaller: a page that shows
// the picture has less room than they have.
func (p *page) picture(file string, width, height int) {
	p.t.Helper()
	scale := min(1, 960/float64(width))
	var shot struct{ Data string }
	require.NoError(p.t, p.c.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "clip": map[string]any{
		"x": 0, "y": p.value(`scrollY`), "width": width, "height": height, "scale": scale,
	}}, &shot))
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(file, png, 0o644))
}
