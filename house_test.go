package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// house is the table "The house" of the README: its rows, and the rows further down
// that each may import. A row stands for its folder and for all folders in it; if
// one of those has a row, each needs its own. An import such as feed/... is feed
// and all rows in it.
type house struct {
	rows    []string
	imports map[string][]string
}

// mainRow is the row of the repository's root, whose folder has no name.
const mainRow = "main.go"

// below ends an import that includes the rows below.
const below = "/..."

func readHouse(t *testing.T) house {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## The house\n")
	require.True(t, found, `the README has no section "The house"`)
	section, _, _ = strings.Cut(section, "\n## ")

	h := house{imports: map[string][]string{}}
	for _, cells := range regexp.MustCompile("(?m)^\\| \\[`([^`]+)`\\]\\(([^)]+)\\) \\| .* \\| ([^|]+) \\|$").FindAllStringSubmatch(section, -1) {
		row, link, imports := cells[1], cells[2], cells[3]
		if _, twice := h.imports[row]; twice || link != row {
			t.Errorf("the README has the row %s twice, or it links to another place", row)
		}
		h.rows = append(h.rows, row)
		h.imports[row] = nil
		if imports != "–" {
			h.imports[row] = strings.Split(imports, ", ")
		}
	}
	require.NotEmpty(t, h.rows)
	for _, row := range h.rows {
		for _, imported := range h.imports[row] {
			if slices.Index(h.rows, strings.TrimSuffix(imported, below)) <= slices.Index(h.rows, row) {
				t.Errorf("the README's row of %s lists %s, which has no row below it", row, imported)
			}
		}
	}
	return h
}

// rowsBelow reports whether folders below that of the row have rows of their own.
func (h house) rowsBelow(row string) bool {
	return slices.ContainsFunc(h.rows, func(other string) bool { return strings.HasPrefix(other, row+"/") })
}

// rowOf returns the row that stands for a folder, "" if there is none.
func (h house) rowOf(folder string) string {
	if folder == "." {
		folder = mainRow
	}
	for row := folder; row != "."; row = path.Dir(row) {
		if _, found := h.imports[row]; found && (row == folder || !h.rowsBelow(row)) {
			return row
		}
	}
	return ""
}

// mayImport reports whether the README lists other in the row, or a row above
// other.
func (h house) mayImport(row, other string) bool {
	return row == other || slices.ContainsFunc(h.imports[row], func(imported string) bool {
		top, all := strings.CutSuffix(imported, below)
		return imported == other || all && (top == other || strings.HasPrefix(other, top+"/"))
	})
}

// rule is a rule of depguard, the linter of imports.
type rule struct {
	Files []string
	Mode  string `yaml:"list-mode"`
	Allow []string
	Deny  []struct{ Pkg, Desc string }
}

// ruleOf returns the rule of a row, as .golangci.yml must have it.
func (h house) ruleOf(row string) string {
	files, allow := row+"/**", []string{"tideline/" + row}
	if h.rowsBelow(row) {
		files, allow = row+"/*.go", nil
	}
	if row == mainRow {
		files, allow = "*.go", nil
	}
	for _, imported := range h.imports[row] {
		if h.rowsBelow(imported) {
			imported += "$" // that folder alone
		}
		imported = strings.TrimSuffix(imported, below)
		allow = append(allow, "tideline/"+imported)
	}
	return fmt.Sprintf(`%s:
  files: ["${base-path}/%s", "!$test"]
  list-mode: lax
  allow: [%s]
  deny: [{pkg: tideline, desc: the table in the README does not list it}]
`, strings.TrimSuffix(row, ".go"), files, strings.Join(allow, ", "))
}

// importsOfOurs returns, for each folder with Go files, the set of this module's
// folders that they import. It leaves out tests and packages for tests, such as
// storagetest.
func importsOfOurs(t *testing.T) map[string]map[string]bool {
	imports := map[string]map[string]bool{}
	for _, file := range trackedFiles(t) {
		folder := path.Dir(file)
		left := func(name string) bool {
			return name[0] == '.' && name != "." || name == "testdata" || strings.HasSuffix(name, "test")
		}
		if path.Ext(file) != ".go" || slices.ContainsFunc(strings.Split(folder, "/"), left) {
			continue
		}
		if imports[folder] == nil {
			imports[folder] = map[string]bool{}
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range parsed.Imports {
			if imported, found := strings.CutPrefix(spec.Path.Value, `"tideline/`); found {
				imports[folder][strings.TrimSuffix(imported, `"`)] = true
			}
		}
	}
	return imports
}

func TestHouseIsTheFoldersAndTheirImports(t *testing.T) {
	h := readHouse(t)
	stood := map[string]bool{}
	for folder, imports := range importsOfOurs(t) {
		row := h.rowOf(folder)
		if row == "" {
			t.Errorf("the README has no row for %s", folder)
			continue
		}
		stood[row] = true
		for imported := range imports {
			if !h.mayImport(row, h.rowOf(imported)) {
				t.Errorf("%s imports %s, which the README's row of %s does not list", folder, imported, row)
			}
		}
	}
	for _, row := range h.rows {
		if !stood[row] {
			t.Errorf("the README has a row for %s, which has no Go files", row)
		}
	}
}

func TestHouseIsTheLintersRules(t *testing.T) {
	text, err := os.ReadFile(".golangci.yml")
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	rules := config.Linters.Settings.Depguard.Rules

	h := readHouse(t)
	missing := ""
	for _, row := range h.rows {
		var want map[string]rule
		require.NoError(t, yaml.Unmarshal([]byte(h.ruleOf(row)), &want))
		for name, rule := range want {
			if !reflect.DeepEqual(rule, rules[name]) {
				missing += h.ruleOf(row)
			}
			delete(rules, name)
		}
	}
	if missing != "" {
		t.Errorf(".golangci.yml should have these rules:\n%s", missing)
	}
	for name, rule := range rules {
		for _, denied := range rule.Deny {
			if denied.Pkg == "tideline" {
				t.Errorf(".golangci.yml has the rule %s, and the README no such row", name)
			}
		}
	}
}
