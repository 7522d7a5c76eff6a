package main

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// importRule is a rule of depguard, the linter of imports. It lists the packages of this module that a
// folder may import. The rule has the name of the folder. It also covers the folders below, unless its
// Files end with *.go.
type importRule struct {
	Files []string
	Allow []string
	Deny  []struct{ Pkg string }
}

// importRules returns the rules of .golangci.yml by folder.
func importRules(t *testing.T) map[string]importRule {
	text, err := os.ReadFile(".golangci.yml")
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]importRule }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	rules := map[string]importRule{}
	for name, rule := range config.Linters.Settings.Depguard.Rules {
		if slices.ContainsFunc(rule.Deny, func(d struct{ Pkg string }) bool { return d.Pkg == "tideline" }) {
			rules[name] = rule
		}
	}
	require.NotEmpty(t, rules)
	return rules
}

// ruleOf returns the name of the rule that covers a folder, or "" if there is none.
func ruleOf(rules map[string]importRule, folder string) string {
	if folder == "." {
		return "main"
	}
	for at := folder; at != "."; at = path.Dir(at) {
		rule, found := rules[at]
		if found && (at == folder || strings.HasSuffix(rule.Files[0], "/**")) {
			return at
		}
	}
	return ""
}

// allows reports whether an entry of a rule's Allow list permits imports of the folder.
func allows(entry, folder string) bool {
	alone, exact := strings.CutSuffix(entry, "$")
	return alone == "tideline/"+folder || !exact && strings.HasPrefix("tideline/"+folder, entry+"/")
}

// importsOfOurs returns, for each folder with Go files, the folders of this module that they import.
// It leaves out tests and test packages, such as storagetest.
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

// TestImportRulesAreWhatTheCodeImports checks that each folder has a rule, and that the rule allows
// exactly the packages that the code imports.
func TestImportRulesAreWhatTheCodeImports(t *testing.T) {
	rules := importRules(t)
	used := map[string]map[string]bool{} // the Allow entries that are needed, by rule
	for folder, imports := range importsOfOurs(t) {
		name := ruleOf(rules, folder)
		if name == "" {
			t.Errorf("%s has no rule in .golangci.yml", folder)
			continue
		}
		if used[name] == nil {
			used[name] = map[string]bool{"tideline/" + name: true}
		}
		for imported := range imports {
			at := slices.IndexFunc(rules[name].Allow, func(entry string) bool { return allows(entry, imported) })
			if at < 0 {
				t.Errorf("%s imports %s, which the rule of %s in .golangci.yml does not allow", folder, imported, name)
				continue
			}
			used[name][rules[name].Allow[at]] = true
		}
	}
	for name, rule := range rules {
		if used[name] == nil {
			t.Errorf(".golangci.yml has a rule for %s, which has no Go files", name)
			continue
		}
		for _, entry := range rule.Allow {
			if !used[name][entry] {
				t.Errorf("the rule of %s in .golangci.yml allows %s, which nothing there imports", name, entry)
			}
		}
	}
}
