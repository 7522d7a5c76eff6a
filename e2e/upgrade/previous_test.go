package upgrade

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// olderVersion is the version of the previous release if it has no tag.
const olderVersion = "0.0.0-previous"

// errNoHistory says that git does not know the commit of the previous release.
var errNoHistory = errors.New("the previous release is not in this clone's history (git fetch --unshallow)")

// previous returns the path of the previous release's program. It builds the program if it is
// not in .test yet. Errors: errNoHistory, and errors of the build.
func previous() (program string, err error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	version := olderVersion
	commit, err := git(root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
	if err == nil {
		version = strings.TrimPrefix(commit, "v")
	} else {
		text, err := os.ReadFile("previous")
		if err != nil {
			return "", err
		}
		commit = strings.TrimSpace(string(text))
	}
	hash, err := git(root, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("%w: %s", errNoHistory, commit)
	}
	program = filepath.Join(root, ".test", "previous", hash, "tideline")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	fmt.Fprintf(os.Stderr, "builds the previous release, %s, into %s\n", commit, filepath.Dir(program))
	return program, build(root, hash, version, program)
}

// build builds the program of a commit without the race detector, which would look for faults that are
// mended by now. The packages of Tideline are compiled without optimization: 99 s of processor time
// instead of 193. It renames the finished file into place, so that the program never exists partially.
func build(root, commit, version, program string) (err error) {
	dir := filepath.Dir(program)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source, err := os.MkdirTemp("", "tideline-previous") // outside this module, so that no go.mod or go.work above applies
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	if _, err := git(root, "archive", "--output="+source+".tar", commit); err != nil {
		return err
	}
	defer os.Remove(source + ".tar")
	if out, err := exec.Command("tar", "-xf", source+".tar", "-C", source).CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out)
	}
	cmd := exec.Command("go", "build", "-o", program+".new", "-gcflags=tideline/...=-N -l -dwarf=false", "-ldflags=-w -X tideline/server.version="+version+" -X tideline/server.commit="+commit, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", commit, err, out)
	}
	return os.Rename(program+".new", program)
}

func git(root string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}
