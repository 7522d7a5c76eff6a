package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tideline/graph/exec"
	"tideline/web"
)

const (
	// previewTimeout is how long a page waits for its preview.
	previewTimeout = time.Second
	// previewText is the length of the description in a preview, in characters.
	previewText = 200
)

// The queries of previews. An anonymous visitor is shown their answers, so the API decides what may be in them.
const (
	postPreview = `query PostPreview($name: ID!) { post(id: $name) { ...Previewed repostOf { ...Previewed } } }
fragment Previewed on Post { id text author { handle name avatarUrl } }`
	profilePreview = `query ProfilePreview($name: String!) { user(handle: $name) { handle name bio avatarUrl } }`
)

type previewedUser struct {
	Handle, Name, Bio string
	AvatarURL         string
}

// title names the user.
func (u previewedUser) title() string { return u.Name + " (@" + u.Handle + ")" }

type previewedPost struct {
	ID, Text string
	Author   previewedUser
	RepostOf *previewedPost
}

// preview describes the post or profile at the address of a request, as web.Options.Preview promises.
//
// It asks the API as the client itself could, so the answer is the verdict for an anonymous visitor at this moment, and its
// cost counts against the client's address.
func (p *process) preview(r *http.Request) (preview web.Preview, found bool, err error) {
	query, name := profilePreview, strings.TrimPrefix(r.URL.Path, "/@")
	if id, ok := strings.CutPrefix(r.URL.Path, "/post/"); ok {
		query, name = postPreview, id
	}
	ctx, cancel := context.WithTimeout(r.Context(), previewTimeout)
	defer cancel()
	response := p.api.Query(ctx, r.RemoteAddr, exec.Request{Query: query, Variables: map[string]any{"name": name}})
	if len(response.Errors) > 0 {
		return preview, false, response.Errors
	}
	var answer struct {
		User *previewedUser
		Post *previewedPost
	}
	if err := json.Unmarshal(response.Data, &answer); err != nil {
		return preview, false, fmt.Errorf("read a preview: %w", err)
	}
	switch user, post := answer.User, answer.Post; {
	case user != nil:
		return web.Preview{Kind: "profile", Title: user.title(), Description: excerpt(user.Bio), Path: "/@" + user.Handle, Image: user.AvatarURL}, true, nil
	case post != nil:
		if post.RepostOf != nil {
			post = post.RepostOf
		}
		return web.Preview{Kind: "article", Title: post.Author.title(), Description: excerpt(post.Text), Path: "/post/" + post.ID, Image: post.Author.AvatarURL}, true, nil
	}
	return preview, false, nil
}

// excerpt returns the beginning of a text, on one line.
func excerpt(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) <= previewText {
		return string(line)
	}
	return strings.TrimSpace(string(line[:previewText-1])) + "…"
}
