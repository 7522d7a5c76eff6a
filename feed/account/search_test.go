package account_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// A search finds a handle by how it begins and a name by any part of it, whatever the
// script, the case, and how short the query is.
func TestSearch(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		names := []string{"Ada Lovelace", "王芳", "李小龙", "Zoë d'Ää", "ada", "100%", "O_o", "Ångström Ωmega", "aa", "x Lovelace"}
		found := map[string]account.Viewer{}
		for i, name := range names {
			u := w.User(fmt.Sprintf("some%d", i))
			_, err := w.Accounts.UpdateProfile(w.Ctx, u, account.Profile{Name: &name})
			require.NoError(t, err)
			found[name] = u
		}
		for query, want := range map[string][]string{
			"lovelace":             {"x Lovelace", "Ada Lovelace"},
			"LOVE":                 {"x Lovelace", "Ada Lovelace"},
			"a l":                  {"Ada Lovelace"},
			"ve":                   {"x Lovelace", "Ada Lovelace"},
			"王":                    {"王芳"},
			"芳":                    {"王芳"},
			"小龙":                   {"李小龙"},
			"李小龙":                  {"李小龙"},
			"ada":                  {"ada", "Ada Lovelace"},
			"@some3":               {"Zoë d'Ää"},
			"SOME3":                {"Zoë d'Ää"},
			"ome3":                 nil, // within a handle
			"some3 z":              nil, // from the one into the other
			"zoë":                  {"Zoë d'Ää"},
			"%":                    {"100%"},
			"_":                    {"O_o"},
			"'":                    {"Zoë d'Ää"},
			"aa":                   {"aa"},
			"nobody has this name": nil,
		} {
			page, err := w.Directory.Search(w.Ctx, query, paging.Page{})
			require.NoError(t, err)
			var got []string
			for _, e := range page.Edges {
				got = append(got, e.Node.Name)
			}
			require.Equal(t, want, got, query)
		}
		for _, everybody := range []string{"", "@", " "} {
			page, err := w.Directory.Search(w.Ctx, everybody, paging.Page{})
			require.NoError(t, err)
			require.Len(t, page.Edges, len(names), everybody)
		}
		two := 2
		first, err := w.Directory.Search(w.Ctx, "some", paging.Page{First: &two})
		require.NoError(t, err)
		second, err := w.Directory.Search(w.Ctx, "some", paging.Page{First: &two, After: &first.Edges[1].Cursor})
		require.NoError(t, err)
		require.Equal(t, names[7], second.Edges[0].Node.Name, "behind the cursor")
		require.True(t, second.HasNextPage)
		long := strings.Repeat("龙", 100)
		none, err := w.Directory.Search(w.Ctx, long, paging.Page{})
		require.NoError(t, err)
		require.Empty(t, none.Edges)
	})
}

// What few users match is found among many, by its handle and by its name; and so is what
// more match than a search reads by an index.
func TestSearchAmongMany(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DatabaseURL: storagetest.PostgresURL(t), RedisURL: storagetest.StartRedis(t).URL()}
	w := feedtest.Idle(t, storagetest.Open(t, cfg), feedtest.Options{})
	_, err := w.Stores.SQL.ExecContext(w.Ctx, `INSERT INTO users (id, handle, name, password_hash, created_at)
		SELECT i, CASE WHEN i = 7 THEN 'seventh' WHEN i < 11000 THEN 'early' || i ELSE 'late' || i END,
			CASE WHEN i = 5 THEN '王芳' WHEN i < 11000 THEN 'Early One' ELSE 'Late One' END, '-', now() FROM generate_series(1, 13000) i`)
	require.NoError(t, err)
	for query, want := range map[string][]int64{
		"王芳": {5}, "芳": {5}, "seventh": {7}, "@early12": {1299, 1298}, "one": {13000, 12999}, "late": {13000, 12999},
		"early": {10999, 10998}, "rly o": {10999, 10998}, "lone": nil,
	} {
		two := 2
		page, err := w.Directory.Search(w.Ctx, query, paging.Page{First: &two})
		require.NoError(t, err)
		var got []int64
		for _, e := range page.Edges {
			got = append(got, e.Node.ID)
		}
		require.Equal(t, want, got, query)
		require.Equal(t, len(want) == 2, page.HasNextPage, query)
	}
}
