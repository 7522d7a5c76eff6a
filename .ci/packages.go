// Command packages writes the table of packages in docs/architecture.md: the purpose of each
// package, from its documentation, and the packages of this module that it may import, from the
// linter's rules.
package main

import (
	"bytes"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const page = "docs/architecture.md"

// begin and end are the lines around the table.
const (
	begin = "<!-- The table of packages: make generate -->\n"
	end   = "<!-- The end of the table -->\n"
)

func main() {
	text, err := os.ReadFile(page)
	if err != nil {
		log.Fatal("run it in the repository's root: ", err)
	}
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		log.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	table, err := table()
	if err != nil {
		log.Fatal(err)
	}
	written := slices.Concat(before, []byte(begin), table, []byte(end), after)
	if err := os.WriteFile(page, written, 0o644); err != nil {
		log.Fatal(err)
	}
}

func table() ([]byte, error) {
	text, err := os.ReadFile(".golangci.yml")
	if err != nil {
		return nil, err
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules yaml.Node } // a node, to keep the order of the rules
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("\n| package | what it does | may import |\n| --- | --- | --- |\n")
	rules := config.Linters.Settings.Depguard.Rules.Content
	for i := 0; i+1 < len(rules); i += 2 {
		folder := rules[i].Value
		var rule struct {
			Allow []string
			Deny  []struct{ Pkg string }
		}
		if err := rules[i+1].Decode(&rule); err != nil {
			return nil, fmt.Errorf("rule %s: %w", folder, err)
		}
		if len(rule.Deny) == 0 || rule.Deny[0].Pkg != "tideline" {
			continue
		}
		var imports []string
		for _, allowed := range rule.Allow {
			allowed = strings.TrimSuffix(strings.TrimPrefix(allowed, "tideline/"), "$")
			if allowed != folder {
				imports = append(imports, allowed)
			}
		}
		does, err := synopsis(folder)
		if err != nil {
			return nil, err
		}
		link := folder
		if folder == "main" {
			link = "main.go"
		}
		fmt.Fprintf(&b, "| [`%s`](../%s) | %s | %s |\n", link, link, does, strings.Join(imports, ", "))
	}
	b.WriteString("\n")
	return b.Bytes(), nil
}

// synopsis returns the first sentence of the package documentation in the folder, without
// "Package x", or "" if there is none.
func synopsis(folder string) (string, error) {
	if folder == "main" {
		folder = "."
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		words := strings.SplitN(new(doc.Package).Synopsis(parsed.Doc.Text()), " ", 3)
		if len(words) == 3 {
			return words[2], nil
		}
	}
	return "", nil
}
