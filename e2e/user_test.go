package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
)

// user is a signed-in user. Each method takes the process to call.
type user struct{ id, handle, token string }

// call runs an operation as the user, or anonymously if u is zero, and decodes its data.
func (u user) call(t *testing.T, p *process, query string, variables map[string]any, data any) {
	t.Helper()
	client := tideline.Client{URL: p.url + "/graphql"}
	if u.token != "" {
		client.Token = tideline.Fixed(u.token)
	}
	require.NoError(t, client.Query(t.Context(), query, variables, data))
}

func signUp(t *testing.T, p *process, handle string) user {
	t.Helper()
	var data struct {
		SignUp struct {
			Token string
			User  struct{ ID string }
		}
	}
	user{}.call(t, p, `mutation($handle: String!) {
		signUp(input: {handle: $handle, password: "correct horse"}) { token user { id } }
	}`, map[string]any{"handle": handle}, &data)
	return user{data.SignUp.User.ID, handle, data.SignUp.Token}
}

func (u user) follow(t *testing.T, p *process, whom user) {
	t.Helper()
	u.call(t, p, `mutation($user: ID!) { follow(input: {userId: $user}) { relationship { following } } }`,
		map[string]any{"user": whom.id}, nil)
}

func (u user) post(t *testing.T, p *process, text string) {
	t.Helper()
	u.call(t, p, `mutation($text: String!) { createPost(input: {text: $text}) { post { id } } }`,
		map[string]any{"text": text}, nil)
}

// timeline reads the user's timeline page by page and returns the texts, newest first.
func (u user) timeline(t *testing.T, p *process) []string {
	t.Helper()
	texts := []string{}
	var after *string
	for {
		var data struct {
			Timeline struct {
				Nodes    []struct{ Text string }
				PageInfo struct {
					HasNextPage bool
					EndCursor   *string
				}
			}
		}
		u.call(t, p, `query($after: Cursor) {
			timeline(first: 2, after: $after) { nodes { text } pageInfo { hasNextPage endCursor } }
		}`, map[string]any{"after": after}, &data)
		for _, post := range data.Timeline.Nodes {
			texts = append(texts, post.Text)
		}
		if !data.Timeline.PageInfo.HasNextPage {
			return texts
		}
		after = data.Timeline.PageInfo.EndCursor
	}
}

// arrived waits until the user's timeline has exactly these texts, newest first.
func (u user) arrived(t *testing.T, p *process, texts ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, texts, u.timeline(t, p))
	}, patience, poll)
}
