package transfer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/transfer"
	"tideline/storage"
	"tideline/storage/storagetest"
)

const app = "https://app.example.com"

// small is a file with every possible field.
const small = `{"type":"user","id":"1","handle":"ada","name":"Ada Lovelace","bio":"wrote <notes>\nand more","avatarUrl":"https://ada.example/a.png","links":["https://ada.example"],"data":{"b":1.0,"a":"<"},"createdAt":"2019-05-01T14:00:00.5+02:00","defaultVisibility":"FOLLOWERS","approvesFollowers":true,"passwordHash":"$2y$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."}
{"type":"user","id":"2","handle":"_grace_"}
{"type":"user","id":"c\u0000d","handle":"mary","name":"玛丽"}

{"type":"post","id":"a","author":"1","text":"hello \u2028 \"you\"","data":{"n":1},"visibility":"PUBLIC","createdAt":"2024-02-29T12:00:00.123Z"}
{"type":"post","id":"b","author":"1","text":"of the same moment","createdAt":"2024-02-29T12:00:00.123Z"}
{"type":"post","id":"c","author":"2","text":"later","visibility":"MUTUALS","createdAt":"2025-01-01T00:00:00Z"}
{"type":"follow","follower":"2","followee":"1"}
{"type":"follow","follower":"1","followee":"2"}
{"type":"block","blocker":"c\u0000d","blocked":"1"}
{"type":"like","user":"2","post":"a"}
{"type":"like","user":"1","post":"c"}
`

type badLine struct {
	line   int
	reason string
}

// take imports a file to its end, and returns the bad lines.
func take(w *feedtest.World, file string) (transfer.State, []badLine) {
	w.Helper()
	var bad []badLine
	im := &transfer.Import{Bulk: w.Bulk, Issuer: app, Bad: func(line int, reason string) { bad = append(bad, badLine{line, reason}) },
		Written: func(context.Context, transfer.State) error { return nil }}
	state, err := im.Run(w.Ctx, strings.NewReader(file), transfer.State{})
	require.NoError(w, err)
	return state, bad
}

func give(w *feedtest.World, hashes bool) (string, transfer.Exported) {
	w.Helper()
	var file bytes.Buffer
	e := &transfer.Export{DB: w.Stores.DB, Dialect: w.Stores.Dialect, Issuer: app, PasswordHashes: hashes, Step: func(transfer.Exported) {}}
	done, err := e.Run(w.Ctx, &file)
	require.NoError(w, err)
	return file.String(), done
}

// An export imported into another database, and exported again, has the same bytes. It includes
// users and posts that were made here.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		file := strings.Builder{}
		file.WriteString(small)
		const users, posts = 100, 2500
		for i := range users {
			fmt.Fprintf(&file, `{"type":"user","id":"u%d","handle":"%d","createdAt":"2020-01-01T00:00:00Z"}`+"\n", (i*7)%users, i)
		}
		for i := range posts { // few different times, so that pages end within one
			at := time.Date(2024, 3, 1, 0, 0, i/900, 0, time.UTC).Format(time.RFC3339)
			fmt.Fprintf(&file, `{"type":"post","id":"p%d","author":"u%d","text":"post %d","createdAt":%q}`+"\n", i, i%users, i, at)
		}
		for i := range posts {
			fmt.Fprintf(&file, `{"type":"like","user":"u%d","post":"p%d"}`+"\n", (i*3)%users, posts-1-i)
			fmt.Fprintf(&file, `{"type":"follow","follower":"u%d","followee":"u%d"}`+"\n", i%users, (i%users+1+i/users)%users)
		}
		state, bad := take(w, file.String())
		require.Empty(w, bad)
		require.Equal(w, transfer.State{Offset: int64(file.Len()), SHA256: state.SHA256, Lines: strings.Count(file.String(), "\n"), Created: state.Lines - 1}, state)
		again, bad := take(w, file.String())
		require.Empty(w, bad)
		require.Equal(w, []int{0, 0, state.Created}, []int{again.Created, again.Updated, again.Unchanged})

		own := w.User("own")
		w.PostAged(own, time.Hour)
		_, err := w.Feed.LikePost(w.Ctx, own, w.PostAged(own, 2*time.Hour))
		require.NoError(w, err)
		w.Follow(own, w.User("friend"))
		_, err = w.Bulk.Users(w.Ctx, "elsewhere", []bulk.User{{ExternalID: "1"}})
		require.NoError(w, err)
		first, done := give(w, true)
		require.Equal(w, transfer.Exported{Users: users + 5, Posts: posts + 5, Follows: posts + 3, Blocks: 1, Likes: posts + 3, Left: 1}, done)
		for _, s := range []*storage.Stores{storagetest.Embedded(w.TB), storagetest.Real(w.TB)} {
			other := feedtest.Idle(w.TB, s, feedtest.Options{})
			_, bad := take(other, first)
			require.Empty(w, bad)
			second, _ := give(other, true)
			require.Equal(w, strings.Split(first, "\n"), strings.Split(second, "\n"))
		}
		without, _ := give(w, false)
		require.Contains(w, first, "passwordHash")
		require.NotContains(w, without, "passwordHash")
		require.Contains(w, first, `{"type":"user","id":"1","handle":"ada","name":"Ada Lovelace","bio":"wrote <notes>\nand more","avatarUrl":"https://ada.example/a.png","links":["https://ada.example"],"data":{"a":"<","b":1},"createdAt":"2019-05-01T12:00:00.5Z","defaultVisibility":"FOLLOWERS","approvesFollowers":true,"passwordHash":"$2y$`)
		require.Contains(w, first, `"handle":"_grace_"`)
		require.Contains(w, first, `"data":{"n":1},"visibility":"PUBLIC"`)
	})
}

// Suspended users, and posts that moderators hid, are hidden in the other database from the start.
// Deleted posts, and users who are leaving or being deleted, are not in the file.
func TestHiddenStaysHidden(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		bad, good, leaves, goes, both := w.User("bad"), w.User("good"), w.User("leaves"), w.User("goes"), w.User("both")
		all := []session.Viewer{bad, good, leaves, goes, both}
		var posts []int64
		for i, v := range all {
			posts = append(posts, w.PostAged(v, time.Hour))
			w.Follow(v, all[(i+1)%len(all)])
			_, err := w.Feed.LikePost(w.Ctx, v, posts[0])
			require.NoError(w, err)
		}
		hidden, deleted := w.PostAged(good, time.Hour), w.PostAged(good, time.Hour)
		_, err := w.Feed.LikePost(w.Ctx, bad, deleted)
		require.NoError(w, err)
		w.Stores.DB.Post.UpdateOneID(deleted).SetLikeCount(1_000_000).ExecX(w.Ctx)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, good, deleted))
		require.True(w, w.Stores.DB.Post.Query().Where(post.ID(deleted)).ExistX(w.Ctx), "its row waits for a job")
		_, err = w.Feed.HidePost(w.Ctx, hidden, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		none := func(*ent.Tx, *ent.User) error { return nil }
		for _, v := range []session.Viewer{leaves, both} {
			_, _, err := w.Accounts.Delete(w.Ctx, v.ID, feedtest.Grace)
			require.NoError(w, err)
		}
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		for _, v := range []session.Viewer{bad, both} {
			_, err := w.Accounts.Suspend(w.Ctx, v.ID, account.Suspension{Reason: "You advertise.", Until: &until}, none)
			require.NoError(w, err)
		}
		_, _, err = w.Accounts.Delete(w.Ctx, goes.ID, 0)
		require.NoError(w, err)

		file, done := give(w, false)
		require.Equal(w, transfer.Exported{Users: 2, Posts: 3, Follows: 1, Likes: 2, Leaving: 3 + 3 + 4 + 3}, done)
		require.NotContains(w, file, "leaves")
		require.NotContains(w, file, "goes")
		require.NotContains(w, file, "both")
		require.Equal(w, 1, strings.Count(file, `"suspended":true,"suspendedUntil":"`+until.Format(time.RFC3339Nano)+`","suspensionReason":"You advertise."`))
		require.Equal(w, 1, strings.Count(file, `"hiddenByModerators":true`))

		other := feedtest.Idle(w.TB, storagetest.Embedded(w.TB), feedtest.Options{})
		for range 2 {
			_, wrong := take(other, file)
			require.Empty(w, wrong)
			_, err = other.Directory.User(w.Ctx, "bad")
			require.ErrorIs(w, err, refusal.ErrNoSuchUser)
		}
		again, _ := give(other, false)
		require.Equal(w, strings.Split(file, "\n"), strings.Split(again, "\n"))
		of := func(handle string) *ent.User {
			return other.Stores.DB.User.Query().Where(user.Handle(handle)).OnlyX(w.Ctx)
		}
		goodThere, badThere := session.Viewer{ID: of("good").ID}, of("bad").ID
		profile := func(author int64) int {
			page, err := other.Feed.UserPosts(w.Ctx, session.Viewer{ID: badThere}, author, paging.Page{})
			require.NoError(w, err)
			return len(page.Edges)
		}
		require.Equal(w, 1, profile(goodThere.ID), "the hidden post is for its author alone")
		found := other.Stores.DB.Post.Query().Where(post.AuthorID(goodThere.ID), post.VisibilityNEQ(schema.Public)).OnlyX(w.Ctx)
		_, err = other.Feed.SetVisibility(w.Ctx, goodThere, found.ID, schema.Public)
		require.Equal(w, refusal.Forbidden, refusal.CodeOf(err), "who can never show it")
		require.Zero(w, profile(badThere))
		changed, err := other.Accounts.Unsuspend(w.Ctx, badThere, none)
		require.NoError(w, err)
		require.True(w, changed)
		stop := other.Work()
		other.Drain()
		stop()
		require.Equal(w, 1, profile(badThere), "with all that the user had")

		// An existing user is suspended, too.
		state, wrong := take(other, file)
		require.Empty(w, wrong)
		require.Equal(w, 1, state.Updated)
		require.Equal(w, account.Suspension{Reason: "You advertise.", Until: &until}, account.SuspensionOf(other.Stores.DB.HiddenUser.GetX(w.Ctx, badThere)))
		_, err = other.Directory.User(w.Ctx, "bad")
		require.ErrorIs(w, err, refusal.ErrNoSuchUser)
	})
}

// Follows and old posts that are imported beside a running server are in the timelines at once, as
// in SQL. An imported user logs in with the old password.
func TestTimelinesHaveWhatIsImported(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		take(w, `{"type":"user","id":"1","handle":"ada","passwordHash":"$2y$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."}`+"\n")
		auth, err := w.Login.LogIn(w.Ctx, "ada", "päss word")
		require.NoError(w, err)
		ada := session.Viewer{ID: auth.User.ID}
		w.AwaitInbox(ada)
		_, bad := take(w, small)
		require.Empty(w, bad)
		grace := w.Stores.DB.User.Query().Where(user.Handle("_grace_")).OnlyX(w.Ctx)
		own := w.Stores.DB.Post.Query().Where(post.AuthorID(ada.ID)).Order(post.ByID()).IDsX(w.Ctx)
		hers := w.Stores.DB.Post.Query().Where(post.AuthorID(grace.ID)).OnlyIDX(w.Ctx)
		want := []int64{hers, own[1], own[0]}
		require.Equal(w, want, w.Timeline(ada, 10))
		w.Drain()
		require.Equal(w, want, w.Timeline(ada, 10))
		require.Equal(w, []int{1, 1, 2, 1}, []int{grace.FollowerCount, grace.FollowingCount, len(own), grace.PostCount})
		require.NotContains(w, w.Stores.DB.User.GetX(w.Ctx, ada.ID).PasswordHash, "$2y$", "the log-in has renewed it, and the second import leaves it")
	})
}

// A bad line is reported with its number and the reason, and stops no other line.
func TestBadLines(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{})
	lines := []struct{ line, says string }{
		{`{"type":"user","id":"1"}`, ""},
		{`{"type":"user","id":"2","names":"x"}`, `unknown field "names"`},
		{`{"type":"user","id":3}`, `field "id": a number`},
		{`{"type":"user"}`, `field "id" is missing`},
		{`{"type":"usr","id":"1"}`, `field "type": "usr"`},
		{`{"id":"1"}`, `field "type" is missing`},
		{`["user"]`, `a JSON object`},
		{`{"type":"user","id":"1"`, "not JSON"},
		{`{"type":"user","id":"1"} {}`, "not JSON"},
		{"{\"type\":\"user\",\"id\":\"\xff\"}", "UTF-8"},
		{`{"type":"user","id":"4","createdAt":"yesterday"}`, `field "createdAt": must be a time such as`},
		{`{"type":"user","id":"4","defaultVisibility":"public"}`, `field "defaultVisibility": "public" is none of PUBLIC`},
		{`{"type":"user","id":"4","passwordHash":"secret"}`, "no password hash"},
		{`{"type":"user","id":"4","passwordHash":"$2b$31$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."}`, "costs more"},
		{`{"type":"user","id":"` + strings.Repeat("x", 256) + `"}`, "1 to 255 bytes"},
		{`{"type":"user","id":"5","bio":"` + strings.Repeat("x", transfer.MaxLine) + `"}`, "more than 1048576 bytes"},
		{`{"type":"post","id":"a","author":"1","text":"x","createdAt":"1980-12-31T23:59:59Z"}`, "A post cannot be older than 1985-12-22"},
		{`{"type":"post","id":"a","author":"9","text":"x"}`, "no such user"},
		{`{"type":"post","id":"a","author":"1"}`, `field "text" is missing`},
		{`{"type":"follow","follower":"1","followee":"9"}`, "no such user"},
		{`{"type":"follow","follower":"1"}`, `field "followee" is missing`},
		{`{"type":"like","user":"1","post":"zz"}`, "no such post"},
		{`{"type":"user","id":"1","name":"again"}`, ""},
		{``, ""},
	}
	file, want := "", 0
	for _, l := range lines {
		file += l.line + "\r\n"
		if l.says != "" {
			want++
		}
	}
	state, bad := take(w, strings.TrimSuffix(file, "\r\n"))
	require.Equal(t, want, state.Bad)
	require.Equal(t, []int{1, 1}, []int{state.Created, state.Updated})
	told := map[int]string{}
	for _, b := range bad {
		told[b.line] += b.reason
	}
	for i, l := range lines {
		if l.says == "" {
			require.Empty(t, told[i+1], l.line)
		} else {
			require.Contains(t, told[i+1], l.says, "line %d", i+1)
		}
	}
}

// An import that ends after any commit can continue from there, also in a gzip file, and counts as
// an import without a break. A file whose imported part has changed is refused.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{})
	var file strings.Builder
	for i := range 4500 {
		fmt.Fprintf(&file, `{"type":"user","id":"%d"}`+"\n", i)
		if i%1000 == 0 {
			file.WriteString("bad\n")
		}
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(file.String()))
	require.NoError(t, errors.Join(err, z.Close()))
	killed := errors.New("killed")
	state, runs := transfer.State{}, 0
	for {
		bad := 0
		im := &transfer.Import{Bulk: w.Bulk, Issuer: app, Bad: func(int, string) { bad++ },
			Written: func(context.Context, transfer.State) error { return killed }}
		before := state
		if state, err = im.Run(w.Ctx, bytes.NewReader(zipped.Bytes()), state); err == nil {
			break
		}
		require.ErrorIs(t, err, killed)
		runs++
		require.Equal(t, bad, state.Bad-before.Bad)
		require.LessOrEqual(t, runs, 5)
		if state.Lines == 4505 {
			break
		}
	}
	require.Equal(t, 3, runs)
	require.Equal(t, []int{4505, 4500, 0, 5}, []int{state.Lines, state.Created, state.Unchanged, state.Bad})
	require.Equal(t, 4500, w.Stores.DB.User.Query().CountX(w.Ctx))
	im := &transfer.Import{Bulk: w.Bulk}
	_, err = im.Run(w.Ctx, strings.NewReader(strings.Replace(file.String(), `"7"`, `"8"`, 1)), state)
	require.ErrorIs(t, err, transfer.ErrOtherFile)
	_, err = im.Run(w.Ctx, strings.NewReader(file.String()[:100]), state)
	require.ErrorIs(t, err, transfer.ErrOtherFile)
}
