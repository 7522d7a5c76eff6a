package workers

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/job"
)

// A newer version may resume an interrupted job or its parts, so the names in stored states and
// payloads must not change.
func TestStoredStatesKeepTheirNames(t *testing.T) {
	p := progress{
		Of:           schema.Public,
		scanPosition: scanPosition{Before: 1, RecentDone: true, RecentLeft: 5, Seen: 6, ByActivity: true, From: 2, Until: 3},
		FanOutReport: FanOutReport{
			Kind: "post.created", Post: 7, Followers: 8, Pushed: 4, Pulled: 9, Live: 10,
			Duration: 11, FirstLag: time.Second, MedianLag: 12, LastLag: 13,
		},
	}
	requireStored(t, p, `{"Of":"PUBLIC","Before":1,"Latest":true,"Ahead":5,"Seen":6,"ByActivity":true,"From":2,"Until":3,
		"Kind":"post.created","Post":7,"Followers":8,"Pushed":4,"Pulled":9,"Live":10,
		"Duration":11,"FirstLag":1000000000,"MedianLag":12,"LastLag":13}`)
	left := outstanding{Only: new(slots).with([]int64{1}), TellAll: true, Left: new(slots), Untold: true}
	left.Left[0] = 1
	raw, err := json.Marshal(left)
	require.NoError(t, err)
	set := func(s *slots) string { return base64.StdEncoding.EncodeToString(s[:]) }
	require.JSONEq(t, `{"Only":"`+set(left.Only)+`","TellAll":true,"Left":"`+set(left.Left)+`","Untold":true}`, string(raw))
	requireStored(t, progress{outstanding: left, Unwatched: true}, strings.Replace(string(raw), "{", `{"Of":"","Before":0,"Latest":false,"Ahead":0,
		"Seen":0,"ByActivity":false,"From":0,"Until":0,"Kind":"","Post":0,"Followers":0,"Pushed":0,"Pulled":0,"Live":0,
		"Duration":0,"FirstLag":0,"MedianLag":0,"LastLag":0,"Unwatched":true,`, 1))
	requireStored(t, forgotten{Before: 15, outstanding: left}, strings.Replace(string(raw), "{", `{"Before":15,`, 1))
	part := partOfPost{
		job.Post{Post: 1, Author: 2, From: schema.Public, To: schema.Private, Edited: true},
		followerPart{Number: 2, Of: 3, Start: scanPosition{Before: 4}, After: 5},
	}
	requireStored(t, part, `{"post":1,"author":2,"from":"PUBLIC","to":"PRIVATE","edited":true,"part":{"number":2,"of":3,"after":5,
		"start":{"Before":4,"Latest":false,"Ahead":0,"Seen":0,"ByActivity":false,"From":0,"Until":0}}}`)
	requireStored(t, partOfPost{Post: job.Post{Post: 1, Author: 2}}, `{"post":1,"author":2}`)
	requireStored(t, everybody{Inboxes: true, After: 16}, `{"Inboxes":true,"After":16}`)
	requireStored(t, returnProgress{Before: 14}, `{"Before":14}`)
}

func requireStored[T any](t *testing.T, state T, want string) {
	t.Helper()
	raw, err := json.Marshal(state)
	require.NoError(t, err)
	require.JSONEq(t, want, string(raw))
	var got T
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, state, got)
}
