package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
)

// reply creates a reply to a post, or a root if replyTo is nil, and returns its id.
func (u user) reply(t *testing.T, p *process, text string, replyTo any) string {
	t.Helper()
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	u.call(t, p, `mutation($text: String!, $to: ID) { createPost(input: {text: $text, replyTo: $to}) { post { id } } }`,
		map[string]any{"text": text, "to": replyTo}, &data)
	return data.CreatePost.Post.ID
}

// An event stream over plain HTTP brings the changes of a conversation after the position of a page.
func TestAConversationAsAnEventStream(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"TIDELINE_DATA_DIR=" + t.TempDir()}, "--addr=127.0.0.1:0")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	root := ann.reply(t, p, "root", nil)
	var page struct {
		Post struct{ Replies struct{ Position string } }
	}
	ben.call(t, p, `query($id: ID!) { post(id: $id) { replies(first: 5) { position } } }`, map[string]any{"id": root}, &page)
	id := ann.reply(t, p, "hello", root)
	body, err := json.Marshal(map[string]any{
		"query": `subscription($id: ID!, $after: Cursor) { conversationEvents(postId: $id, after: $after) { __typename
			... on ConversationPostAdded { post { text replyTo { text } } } ... on ConversationPostRemoved { postId } } }`,
		"variables": map[string]any{"id": root, "after": page.Post.Replies.Position},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/graphql", bytes.NewReader(body))
	require.NoError(t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "Authorization": {"Bearer " + ben.token}}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Contains(t, response.Header.Get("Content-Type"), "text/event-stream")
	lines := bufio.NewScanner(response.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
				return data
			}
		}
		require.NoError(t, lines.Err())
		return "" // the stream has ended
	}
	require.JSONEq(t, `{"data":{"conversationEvents":{"__typename":"ConversationPostAdded","post":{"text":"hello","replyTo":{"text":"root"}}}}}`, next())
	ann.call(t, p, `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, map[string]any{"id": id}, nil)
	require.JSONEq(t, `{"data":{"conversationEvents":{"__typename":"ConversationPostRemoved","postId":"`+id+`"}}}`, next())
}

// The Go client follows a conversation in each order: replies come and change, its own is there at once, a restart of
// the process loses nothing, and Run returns when the root is deleted.
func TestAConversationIsFollowed(t *testing.T) {
	t.Parallel()
	settings := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	p := start(t, settings, "--addr=127.0.0.1:0")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	root := ann.reply(t, p, "root", nil)
	first := ann.reply(t, p, "first", root)
	client := &tideline.Client{URL: p.url + "/graphql", Token: tideline.Fixed(ben.token)}

	type follower struct {
		*tideline.Conversation[tideline.Post]
		ran chan error
	}
	followers := map[string]follower{}
	shows := func(texts map[string][]string) {
		t.Helper()
		late := time.After(patience)
		for order, f := range followers {
			for {
				changed := f.Changed()
				now, have := f.Snapshot(), []string{}
				for _, e := range now.Replies {
					have = append(have, e.Post.Text)
				}
				if now.Live && now.Post != nil && slices.Equal(have, texts[order]) {
					break
				}
				select {
				case <-changed:
				case <-late:
					require.Equal(t, texts[order], have, "%s, live: %v, %v", order, now.Live, now.Err)
					require.FailNow(t, "the conversation is not live", "%s: %v", order, now.Err)
				}
			}
		}
	}
	for _, order := range []string{tideline.Oldest, tideline.Newest, tideline.Top} {
		f := follower{tideline.NewConversation(client, root, tideline.ConversationOptions[tideline.Post]{Order: order}), make(chan error, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { f.ran <- f.Run(ctx) }()
		followers[order] = f
	}
	shows(map[string][]string{tideline.Oldest: {"first"}, tideline.Newest: {"first"}, tideline.Top: {"first"}})

	ann.reply(t, p, "second", root)
	ann.reply(t, p, "deep", first)
	ann.call(t, p, `mutation($id: ID!) { updatePost(input: {postId: $id, text: "edited"}) { post { id } } }`, map[string]any{"id": first}, nil)
	shows(map[string][]string{tideline.Oldest: {"edited", "second"}, tideline.Newest: {"second", "edited"}, tideline.Top: {"second", "edited"}})
	own, err := followers[tideline.Oldest].Reply(t.Context(), "own", nil)
	require.NoError(t, err)
	replies := followers[tideline.Oldest].Snapshot().Replies
	require.Equal(t, own.ID, replies[len(replies)-1].ID)

	// The position is good for a while, or the conversation is read again.
	require.Zero(t, p.stop())
	p = start(t, settings, "--addr="+strings.TrimPrefix(p.url, "http://"))
	ann.reply(t, p, "after the restart", root)
	delete(followers, tideline.Top) // after another read its order is the server's
	shows(map[string][]string{
		tideline.Oldest: {"edited", "second", "own", "after the restart"},
		tideline.Newest: {"after the restart", "own", "second", "edited"},
	})
	ann.call(t, p, `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, map[string]any{"id": root}, nil)
	for _, f := range followers {
		require.ErrorIs(t, <-f.ran, tideline.ErrNotFound)
	}
}
