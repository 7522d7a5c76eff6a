package browsertest

import (
	"testing"

	"tideline/storage/storagetest"
)

// What changes on one device, or by others, shows on the pages of another device without a reload: relations, profiles,
// counts, posts of a profile, follow requests, and the viewer's own lists.
func TestEveryPageIsLive(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	ada, bob, cat := s.signUp("ada"), s.signUp("bob"), s.signUp("cat")
	bob.post("the first")
	desk, list := ada.browse(), ada.browse()
	desk.visit(s.url + "/@bob")
	desk.shows("the first")
	list.visit(s.url + "/settings/muted")
	list.sees("You mute nobody.")

	ada.relate("follow", bob) // on a third device
	desk.see(named("Following @bob") + ` != null`)
	desk.sees("1 follower")
	bob.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"name": "Robert"}, nil)
	desk.see(`document.querySelector('h1').textContent === 'Robert'`)

	bob.post("the second")
	desk.click("1 new post")
	desk.shows("the second", "the first")
	ada.relate("mute", bob)
	desk.sees("You mute @bob")
	list.see(named("Unmute @bob") + ` != null`)

	ada.must(`mutation($i: UpdateProfileInput!) { updateProfile(input: $i) { user { id } } }`, map[string]any{"approvesFollowers": true}, nil)
	cat.relate("follow", ada)
	list.see(`document.querySelector('nav .badge') !== null`)
}
