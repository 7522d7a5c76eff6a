package account_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// found returns the names of all users that a search finds, and the number of pages.
func found(w *feedtest.World, query string) (names []string, pages int) {
	w.Helper()
	for p := (paging.Page{}); ; pages++ {
		page, err := w.Directory.Search(w.Ctx, query, p)
		require.NoError(w, err)
		for _, e := range page.Edges {
			names = append(names, e.Node.Name)
		}
		if !page.HasNextPage {
			return names, pages + 1
		}
		p.After = page.PageInfo().EndCursor
	}
}

// A search finds a user by the beginning of any word of the handle or the name, in any script,
// case, form of the letters, and collation of the database.
func TestSearch(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		names := []string{"Ada Lovelace", "王芳", "李小龙", "Zoë d'Ää", "ada", "100%", "O_o", "Ångström Ωmega", "aa", "x Lovelace",
			"Мария", "Élodie", "Şen", "Ελένη", "Łukasz", "ＤＥＦ", "Jose\u0301", "Дар’я", "José", "Σίσυφος", "Straße"}
		for i, name := range names {
			u := w.User(fmt.Sprintf("some%d_more", i))
			_, err := w.Accounts.UpdateProfile(w.Ctx, u, account.Profile{Name: &name})
			require.NoError(t, err)
		}
		for query, want := range map[string][]string{
			"lovelace":             {"x Lovelace", "Ada Lovelace"},
			"LOVE":                 {"x Lovelace", "Ada Lovelace"},
			"a l":                  {"Ada Lovelace"},
			"lovelace ada":         {"Ada Lovelace"},
			"ve":                   nil, // within a word
			"王":                    {"王芳"},
			"芳":                    {"王芳"},
			"小龙":                   {"李小龙"},
			"李小龙":                  {"李小龙"},
			"ada":                  {"ada", "Ada Lovelace"},
			"@some3_":              {"Zoë d'Ää"},
			"SOME3_ＭＯＲＥ":           {"Zoë d'Ää"},
			"ome3":                 nil, // within a handle
			"some3_m z":            {"Zoë d'Ää"},
			"zoë":                  {"Zoë d'Ää"},
			"%":                    {"100%"},
			"'":                    {"Дар’я", "Zoë d'Ää"},
			"aa":                   {"aa", "Zoë d'Ää"},
			"zoe":                  {"Zoë d'Ää"},
			"LUKASZ":               {"Łukasz"},
			"ελενη":                {"Ελένη"},
			"angstrom":             {"Ångström Ωmega"},
			"nobody has this name": nil,
			"Мария":                {"Мария"},
			"МАР":                  {"Мария"},
			"élo":                  {"Élodie"},
			"ÉLODIE":               {"Élodie"},
			"E\u0301lodie":         {"Élodie"},
			"şen":                  {"Şen"},
			"ΕΛΈΝΗ":                {"Ελένη"},
			"łukasz":               {"Łukasz"},
			"def":                  {"ＤＥＦ"},
			"ｄｅｆ":                  {"ＤＥＦ"},
			"JOSÉ":                 {"José", "Jose\u0301"},
			"дар'я":                {"Дар’я"},
			"ΣΊΣΥΦΟΣ":              {"Σίσυφος"},
			"STRASS":               {"Straße"},
		} {
			got, _ := found(w, query)
			require.Equal(t, want, got, query)
		}
		for _, everybody := range []string{"", "@", " ", "\u200B"} {
			page, err := w.Directory.Search(w.Ctx, everybody, paging.Page{})
			require.NoError(t, err)
			require.Len(t, page.Edges, min(len(names), paging.DefaultSize), everybody)
		}
		two := 2
		first, err := w.Directory.Search(w.Ctx, "some", paging.Page{First: &two})
		require.NoError(t, err)
		second, err := w.Directory.Search(w.Ctx, "some", paging.Page{First: &two, After: &first.Edges[1].Cursor})
		require.NoError(t, err)
		require.Equal(t, names[len(names)-3], second.Edges[0].Node.Name, "behind the cursor")
		require.True(t, second.HasNextPage)
		none, err := w.Directory.Search(w.Ctx, strings.Repeat("龙", 100), paging.Page{})
		require.NoError(t, err)
		require.Empty(t, none.Edges)
		for _, bad := range []string{strings.Repeat("龙", 101), strings.Repeat("ﷺ", 6), "a\u2028b"} {
			_, err = w.Directory.Search(w.Ctx, bad, paging.Page{})
			require.Equal(t, refusal.BadInput, refusal.CodeOf(err), bad)
		}
	})
}

// A user is found only by the current handle and name, whichever operation wrote them, including
// operations without KeepNames once a worker has indexed the user.
func TestSearchFollowsNames(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		by := func(query string) int {
			names, _ := found(w, query)
			return len(names)
		}
		auth, err := w.Login.SignUp(w.Ctx, "first", "correct horse", "Élodie")
		require.NoError(t, err)
		v := session.Viewer{ID: auth.User.ID}
		require.Equal(t, []int{1, 1}, []int{by("élodie"), by("first")})
		_, err = w.Accounts.ChangeHandle(w.Ctx, v, "second")
		require.NoError(t, err)
		require.Equal(t, []int{1, 0, 1}, []int{by("élodie"), by("first"), by("second")})
		name := "Мария"
		_, err = w.Accounts.UpdateProfile(w.Ctx, v, account.Profile{Name: &name})
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 1}, []int{by("élodie"), by("мария"), by("second")})

		n, err := account.IndexNames(w.Ctx, w.Stores.DB, 10)
		require.NoError(t, err)
		require.Zero(t, n, "all of them are indexed")
		w.Stores.DB.User.UpdateOneID(v.ID).SetName("Łukasz").ExecX(w.Ctx)
		id, err := w.IDs.Next()
		require.NoError(t, err)
		w.Stores.DB.User.Create().SetID(id).SetHandle("third").SetName("Ａｄａ").SetPasswordHash("-").ExecX(w.Ctx)
		require.Zero(t, by("ada"))
		n, err = account.IndexNames(w.Ctx, w.Stores.DB, 10)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []int{0, 1, 1, 1}, []int{by("мария"), by("łukasz"), by("ada"), by("third")})
		n, err = account.IndexNames(w.Ctx, w.Stores.DB, 10)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// A search finds few matches among many users. If more users match than an index range reads,
// each page examines a fixed number of users, and its cursor names none of them: here, ids are even.
// No statement reads a whole table.
func TestSearchAmongMany(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		series := "generate_series(1, 13000) AS g(i)"
		if w.Stores.Dialect == dialect.SQLite {
			series = "(WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < 13000) SELECT i FROM g) AS g"
		}
		_, err := w.Stores.SQL.ExecContext(w.Ctx, `INSERT INTO users (id, handle, name, password_hash, created_at)
			SELECT 2 * i, CASE WHEN i = 7 THEN 'seventh' WHEN i < 11000 THEN 'early' || i ELSE 'late' || i END,
				CASE WHEN i = 5 THEN '王芳' WHEN i < 11000 THEN 'Early One' ELSE 'Late One' END, '-', CURRENT_TIMESTAMP FROM `+series)
		require.NoError(t, err)
		for n := 1; n > 0; {
			n, err = account.IndexNames(w.Ctx, w.Stores.DB, 5000)
			require.NoError(t, err)
		}
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "ANALYZE")
		require.NoError(t, err)
		for query, want := range map[string]struct{ users, pages int }{
			"王芳": {1, 1}, "芳": {1, 1}, "seventh": {1, 1}, "@early123": {11, 1}, "one early123": {11, 1}, "late1299": {10, 1},
			"late": {2001, 101}, "one 王": {0, 1}, "lone": {0, 1},
		} {
			names, pages := found(w, query)
			require.Equal(t, []int{want.users, want.pages}, []int{len(names), pages}, query)
		}
		first, err := w.Directory.Search(w.Ctx, "early", paging.Page{})
		require.NoError(t, err)
		require.Empty(t, first.Edges, "the newest 2,000 have it not")
		require.True(t, first.HasNextPage)
		cursor, err := paging.Decode(*first.PageInfo().EndCursor, paging.Users, 0)
		require.NoError(t, err)
		require.Equal(t, int64(2*11002-1), cursor.ID)
		second, err := w.Directory.Search(w.Ctx, "early", paging.Page{After: first.PageInfo().EndCursor})
		require.NoError(t, err)
		require.Equal(t, int64(2*10999), second.Edges[0].Node.ID)

		for _, statement := range account.SearchStatements(w.Stores.Dialect, []int64{10, 14, 25998}) {
			explain := "EXPLAIN "
			if w.Stores.Dialect == dialect.SQLite {
				explain = "EXPLAIN QUERY PLAN "
			}
			plan, err := w.Stores.SQL.QueryContext(w.Ctx, explain+statement.SQL, statement.Args...)
			require.NoError(t, err, statement.SQL)
			text := planText(t, plan, w.Stores.Dialect)
			require.NotContains(t, text, "Seq Scan", statement.SQL)
			require.NotRegexp(t, `SCAN (users|user_words)($|\n| USING INDEX (user_handle|userword_))`, text, statement.SQL)
			require.Regexp(t, `userword_|user_unindexed`, text, statement.SQL)
		}
	})
}

// planText returns the lines of a plan and closes it.
func planText(t *testing.T, plan *sql.Rows, of string) string {
	t.Helper()
	defer plan.Close()
	var lines []string
	for plan.Next() {
		var ignored any
		var line string
		if of == dialect.SQLite {
			require.NoError(t, plan.Scan(&ignored, &ignored, &ignored, &line))
		} else {
			require.NoError(t, plan.Scan(&line))
		}
		lines = append(lines, line)
	}
	require.NoError(t, plan.Err())
	return strings.Join(lines, "\n")
}
