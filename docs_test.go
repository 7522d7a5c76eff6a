package main

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	mdLink      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	testName    = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)
	testFunc    = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	benchRun    = regexp.MustCompile(`-bench '?([^'\s/]+)\S*(?: -\w+ \S+)* \./([\w/]+)`)
	repoPath    = regexp.MustCompile(`^[\w.*-]+(?:/[\w.*-]+)*$`)
	goName      = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
)

// pathSuffixes are the endings of file names. A word in a document with such an ending must name a
// file of this repository.
var pathSuffixes = []string{".go", ".lua", ".md", ".graphql", ".graphqls", ".ts", ".tsx", ".sql"}

// trackedFiles returns the files under version control that exist in the working tree, as paths with
// slashes. Tests use only these files, so that leftovers of a run or an editor do not change their
// results.
func trackedFiles(t *testing.T) []string {
	storagetest.RunEveryTime() // go test does not know what git answers
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git cannot list the files of this tree: %v", err)
	}
	var files []string
	for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(file); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// repository holds the names that documents may use.
type repository struct {
	paths     map[string]bool // tracked files and their folders
	documents []string
	sources   map[string]string   // the Go text of each folder, tests excluded
	tests     map[string][]string // the test functions of each folder
}

func readRepository(t *testing.T) repository {
	r := repository{paths: map[string]bool{}, sources: map[string]string{}, tests: map[string][]string{}}
	for _, file := range trackedFiles(t) {
		for p := file; p != "."; p = path.Dir(p) {
			r.paths[p] = true
		}
		switch {
		case path.Ext(file) == ".md" && file != "CHANGELOG.md": // it may name things that no longer exist
			r.documents = append(r.documents, file)
		case path.Ext(file) == ".go":
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if folder := path.Dir(file); !strings.HasSuffix(file, "_test.go") {
				r.sources[folder] += string(text)
			} else {
				for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
					r.tests[folder] = append(r.tests[folder], f[1])
				}
			}
		}
	}
	return r
}

// hasTest reports whether a folder has a test function for which fits returns true. An empty folder
// means any folder.
func (r repository) hasTest(folder, name string, fits func(function, name string) bool) bool {
	for of, functions := range r.tests {
		if (folder == "" || folder == of) && slices.ContainsFunc(functions, func(f string) bool { return fits(f, name) }) {
			return true
		}
	}
	return false
}

// hasName reports whether the source of a package of this module contains the identifier. It returns
// true for every package of another module.
func (r repository) hasName(pkg, name string) bool {
	ours := false
	for folder, text := range r.sources {
		if path.Base(folder) == pkg {
			ours = true
			if regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
				return true
			}
		}
	}
	return !ours
}

// exists reports whether a tracked file or folder matches the pattern.
func (r repository) exists(pattern string) bool {
	pattern = path.Clean(pattern)
	if !strings.Contains(pattern, "*") {
		return r.paths[pattern]
	}
	for p := range r.paths {
		if matches, err := path.Match(pattern, p); err == nil && matches {
			return true
		}
	}
	return false
}

// named reports whether a word is the path of a file, and whether that file exists. The word is from a
// document in the folder.
func (r repository) named(folder, word string) (isPath, exists bool) {
	word = strings.TrimSuffix(strings.Trim(strings.TrimPrefix(word, "./"), "/,;:()"), "/...")
	first, _, deep := strings.Cut(word, "/")
	isPath = slices.Contains(pathSuffixes, path.Ext(word)) && path.Ext(word) != word
	if deep && !isPath {
		isPath = r.paths[first]
	}
	if !isPath || !repoPath.MatchString(word) {
		return false, false
	}
	return true, r.exists(word) || r.exists(path.Join(folder, word))
}

// TestDocumentsNameWhatExists compares every document with the tree: relative links lead to files, and
// the paths, tests, benchmarks and exported Go names that are written as code exist.
func TestDocumentsNameWhatExists(t *testing.T) {
	t.Parallel()
	r := readRepository(t)
	require.NotEmpty(t, r.documents)
	for _, document := range r.documents {
		data, err := os.ReadFile(document)
		require.NoError(t, err)
		text, folder := string(data), path.Dir(document)
		for _, run := range benchRun.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(run[1], "|") {
				assert.True(t, r.hasTest(run[2], name, strings.Contains), "%s: ./%s has no benchmark %s", document, run[2], name)
			}
		}
		for _, name := range testName.FindAllString(text, -1) {
			equal := func(function, name string) bool { return function == name }
			assert.True(t, r.hasTest("", name, equal), "%s: there is no %s", document, name)
		}
		text = fencedBlock.ReplaceAllString(text, "")
		for _, link := range mdLink.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(link[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			linked := path.Join(folder, target)
			assert.True(t, linked == "." || r.exists(linked), "%s: the link to %s leads nowhere", document, target)
		}
		for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
			for word := range strings.FieldsSeq(span[1]) {
				isPath, exists := r.named(folder, word)
				assert.True(t, !isPath || exists, "%s: there is no file %s", document, word)
			}
			for _, name := range goName.FindAllStringSubmatch(span[1], -1) {
				assert.True(t, r.hasName(name[1], name[2]), "%s: package %s has no %s", document, name[1], name[2])
			}
		}
	}
}

// TestNamesInDocumentsAreLookedUpInTrackedFiles checks that an untracked folder, such as the
// ./tideline-data of a server, does not count as a path of the repository. So the tests give the same
// result whether or not a server has run here.
func TestNamesInDocumentsAreLookedUpInTrackedFiles(t *testing.T) {
	t.Parallel()
	r := readRepository(t)
	const left = "left-by-a-run"
	require.NoError(t, os.Mkdir(left, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(left) })
	isPath, _ := r.named(".", path.Join(left, "run/redis.sock"))
	assert.False(t, isPath, "an untracked folder is taken for one of the repository")
	isPath, exists := r.named(".", "feed/refusal")
	assert.True(t, isPath && exists)
	isPath, exists = r.named(".", "feed/nowhere")
	assert.True(t, isPath && !exists)
}
