package feed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// sized is a list as the number of entries on its page.
type sized func(p feed.Page) (int, error)

func sizes[T any](page func(p feed.Page) (*feed.Connection[T], error)) sized {
	return func(p feed.Page) (int, error) {
		c, err := page(p)
		if err != nil {
			return 0, err
		}
		return len(c.Edges), nil
	}
}

// The length of a text and the size of a page are settings, both below and above
// what they are by default.
func TestSizesAreSettings(t *testing.T) {
	t.Parallel()
	for _, most := range []struct{ text, page int }{{10, 30}, {6000, 150}} {
		t.Run(fmt.Sprint(most.page), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				w := newWorld(t, s, func(c *feed.Config) { c.MaxText, c.MaxPage = most.text, most.page })
				ann := w.user("ann")
				w.history(ann, most.page)
				// Characters count, not bytes, and white space around them does not.
				text := strings.Repeat("安", most.text)
				p, err := w.feed.CreatePost(w.ctx, ann, feed.Draft{Text: " " + text + "\n"})
				require.NoError(t, err)
				require.Equal(t, text, p.Text)
				_, err = w.feed.CreatePost(w.ctx, ann, feed.Draft{Text: text + "x"})
				require.Equal(t, feed.BadInput, feed.CodeOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("has %d characters; at most %d are allowed", most.text+1, most.text))
				for _, reader := range w.users(most.page + 1) {
					w.follow(reader, ann)
				}

				for name, list := range map[string]sized{
					"latest":    sizes(func(p feed.Page) (*posts, error) { return w.feed.Timeline(w.ctx, ann, p, feed.Latest) }),
					"ranked":    sizes(func(p feed.Page) (*posts, error) { return w.feed.Timeline(w.ctx, ann, p, feed.Ranked) }),
					"posts":     sizes(func(p feed.Page) (*posts, error) { return w.feed.UserPosts(w.ctx, ann, ann.ID, p) }),
					"followers": sizes(func(p feed.Page) (*users, error) { return w.feed.Followers(w.ctx, ann.ID, p) }),
					"users":     sizes(func(p feed.Page) (*users, error) { return w.feed.SearchUsers(w.ctx, "", p) }),
				} {
					for _, p := range []feed.Page{{First: &most.page}, {Last: &most.page}} {
						n, err := list(p)
						require.NoError(t, err, name)
						require.Equal(t, most.page, n, name)
					}
					beyond := most.page + 1
					for _, p := range []feed.Page{{First: &beyond}, {Last: &beyond}} {
						_, err := list(p)
						require.Equal(t, feed.BadInput, feed.CodeOf(err), name)
						require.ErrorContains(t, err, fmt.Sprintf("must be 1 to %d, not %d", most.page, beyond))
					}
					n, err := list(feed.Page{})
					require.NoError(t, err, name)
					require.Equal(t, feed.DefaultPage, n, name)
				}
			})
		})
	}
}

type (
	posts = feed.Connection[ent.Post]
	users = feed.Connection[ent.User]
)
