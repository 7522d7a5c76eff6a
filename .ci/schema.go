// Command schema writes schema.graphql from the sources in graph: a single file in the usual layout,
// for code generators.
package main

import (
	"bytes"
	"log"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/parser"
)

func main() {
	names, err := filepath.Glob("graph/*.graphqls")
	if err != nil || len(names) == 0 {
		log.Fatal("run it in the repository's root: no graph/*.graphqls here")
	}
	var sources []*ast.Source
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		sources = append(sources, &ast.Source{Name: name, Input: string(text)})
	}
	schema, err := parser.ParseSchemas(sources...)
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString("# Generated from graph/*.graphqls by make generate: do not edit.\n\n")
	formatter.NewFormatter(&out, formatter.WithIndent("  ")).FormatSchemaDocument(schema)
	text := regexp.MustCompile(`(?m)^(}|(scalar|union) .*)\n`).ReplaceAll(out.Bytes(), []byte("$0\n"))
	if err := os.WriteFile("schema.graphql", append(bytes.TrimSpace(text), '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}
