package feed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// sized reads a list and returns the number of entries on its page.
type sized func(p paging.Page) (int, error)

func sizes[T any](page func(p paging.Page) (*paging.Connection[T], error)) sized {
	return func(p paging.Page) (int, error) {
		c, err := page(p)
		if err != nil {
			return 0, err
		}
		return len(c.Edges), nil
	}
}

// The maximum length of a text and the maximum size of a page are settings, below or above their
// defaults.
func TestSizesAreSettings(t *testing.T) {
	t.Parallel()
	for _, most := range []struct{ text, page int }{{10, 30}, {6000, 150}} {
		t.Run(fmt.Sprint(most.page), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				w := newWorld(t, s, feedtest.Options{MaxText: most.text, Policy: home.Policy{MaxPage: most.page}})
				ann := w.User("ann")
				w.History(ann, most.page)
				// The length counts characters, not bytes, and not the white space around the
				// text.
				text := strings.Repeat("安", most.text)
				p, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: " " + text + "\n"})
				require.NoError(t, err)
				require.Equal(t, text, p.Text)
				_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: text + "x"})
				require.Equal(t, refusal.BadInput, refusal.CodeOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("has %d characters; at most %d are allowed", most.text+1, most.text))
				var follows []*ent.FollowCreate
				for _, reader := range w.Users(most.page + 1) {
					follows = append(follows, s.DB.Follow.Create().SetFollowerID(reader.ID).SetFolloweeID(ann.ID))
				}
				require.NoError(t, s.DB.Follow.CreateBulk(follows...).Exec(w.Ctx))

				for name, list := range map[string]sized{
					"latest":    sizes(func(p paging.Page) (*posts, error) { return w.Home.Timeline(w.Ctx, ann, p, home.Latest) }),
					"ranked":    sizes(func(p paging.Page) (*posts, error) { return w.Home.Timeline(w.Ctx, ann, p, home.Ranked) }),
					"posts":     sizes(func(p paging.Page) (*posts, error) { return w.Feed.UserPosts(w.Ctx, ann, ann.ID, p) }),
					"followers": sizes(func(p paging.Page) (*users, error) { return w.Feed.Followers(w.Ctx, ann.ID, p) }),
					"users":     sizes(func(p paging.Page) (*users, error) { return w.Directory.Search(w.Ctx, "", p) }),
				} {
					for _, p := range []paging.Page{{First: &most.page}, {Last: &most.page}} {
						n, err := list(p)
						require.NoError(t, err, name)
						require.Equal(t, most.page, n, name)
					}
					beyond := most.page + 1
					for _, p := range []paging.Page{{First: &beyond}, {Last: &beyond}} {
						_, err := list(p)
						require.Equal(t, refusal.BadInput, refusal.CodeOf(err), name)
						require.ErrorContains(t, err, fmt.Sprintf("must be 1 to %d, not %d", most.page, beyond))
					}
					n, err := list(paging.Page{})
					require.NoError(t, err, name)
					require.Equal(t, paging.DefaultSize, n, name)
				}
			})
		})
	}
}

type (
	posts = paging.Connection[ent.Post]
	users = paging.Connection[ent.User]
)
