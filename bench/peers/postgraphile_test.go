package peers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// postgraphileQuery is pageQuery with PostGraphile's names.
const postgraphileQuery = `query($viewer: BigInt!) { timeline: homePage(viewer: $viewer, first: 20) { pageInfo { hasNextPage endCursor }
	edges { cursor node { id: rowId text visibility createdAt likeCount viewerHasLiked(viewer: $viewer) author: userByAuthorId { id: rowId handle name } } } } }`

// postgraphileNode is the oldest version of Node that PostGraphile 5 supports.
const postgraphileNode = 22

// postgraphile returns the peer PostGraphile, or an error that says why it cannot run.
var postgraphile = sync.OnceValues(func() (peer, error) {
	node, err := findNode()
	if err == nil {
		_, err = os.Stat("postgraphile/node_modules/postgraphile")
	}
	if err != nil {
		return peer{}, fmt.Errorf("POSTGRAPHILE IS LEFT OUT (it needs npm ci in bench/peers/postgraphile): %w", err)
	}
	return peer{name: "postgraphile", binary: node, argument: "postgraphile/server.mjs", role: "postgraphile"}, nil
})

// findNode returns the Node that npm has installed beside PostGraphile, since the machine's own may be too
// old. If npm has none for this platform, it returns the machine's own.
func findNode() (string, error) {
	if beside, err := filepath.Glob("postgraphile/node_modules/node-*/bin/node"); err == nil && len(beside) > 0 {
		return filepath.Abs(beside[0])
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return "", err
	}
	version, err := exec.Command(node, "--version").Output()
	if err != nil {
		return "", err
	}
	if major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), "."); !atLeast(major, postgraphileNode) {
		return "", fmt.Errorf("node is %s, not %d or newer", bytes.TrimSpace(version), postgraphileNode)
	}
	return node, nil
}

func atLeast(number string, least int) bool {
	n, err := strconv.Atoi(number)
	return err == nil && n >= least
}

// pageRequest returns the body of the reader's request for a page.
func pageRequest(role string, reader int) any {
	if role != "postgraphile" {
		return map[string]string{"query": pageQuery}
	}
	return map[string]any{"query": postgraphileQuery, "variables": map[string]string{"viewer": strconv.Itoa(reader + 1)}}
}

// TestPostGraphileShowsTidelinesPage compares the pages of both for a reader who likes one of the posts.
func TestPostGraphileShowsTidelinesPage(t *testing.T) {
	other, err := postgraphile()
	if err != nil {
		require.Empty(t, os.Getenv("TIDELINE_TEST_REQUIRE_REAL"), err.Error())
		t.Skip(err)
	}
	stores := storagetest.Real(t)
	seedPages(t, stores, 100)
	const reader = 3
	_, err = stores.SQL.ExecContext(t.Context(), `INSERT INTO likes (user_id, post_id)
		SELECT $1, id FROM posts WHERE author_id BETWEEN 1001 AND 1030 ORDER BY id DESC OFFSET 5 LIMIT 1`, reader+1)
	require.NoError(t, err)
	want := shownBy(t, stores, peersOf()[0], reader)
	require.True(t, want.PageInfo.HasNextPage)
	require.True(t, want.Edges[5].Node.ViewerHasLiked)
	require.False(t, want.Edges[4].Node.ViewerHasLiked)
	require.Equal(t, want, shownBy(t, stores, other, reader))
}

// shownPage is a page without its cursors, which differ between the servers.
type shownPage struct {
	PageInfo struct{ HasNextPage bool }
	Edges    []struct {
		Node struct {
			ID, Text, Visibility string
			CreatedAt            time.Time
			LikeCount            json.Number // PostGraphile encodes 64-bit numbers as strings
			ViewerHasLiked       bool
			Author               struct{ ID, Handle, Name string }
		}
	}
}

func shownBy(t *testing.T, stores *storage.Stores, p peer, reader int) shownPage {
	running, stop := p.start(t, stores)
	defer stop()
	c := running.dial(t, reader)
	defer c.Close()
	require.NoError(t, c.page(20))
	var answer struct{ Data struct{ Timeline shownPage } }
	require.NoError(t, json.Unmarshal(c.answer, &answer), string(c.answer))
	shown := answer.Data.Timeline
	for i := range shown.Edges {
		node := &shown.Edges[i].Node
		node.ID, node.Author.ID, node.CreatedAt = rowOf(node.ID), rowOf(node.Author.ID), node.CreatedAt.UTC()
	}
	return shown
}

// rowOf returns the row's number in an id of Tideline. An id of PostGraphile is that number.
func rowOf(id string) string {
	if text, err := base64.RawURLEncoding.DecodeString(id); err == nil {
		if kind, number, _ := strings.Cut(string(text), ":"); kind == "Post" || kind == "User" {
			return number
		}
	}
	return id
}
