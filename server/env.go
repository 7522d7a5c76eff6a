package server

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// serviceLink matches variables that Kubernetes gives every pod for each service:
// those of a service called tideline look like settings.
var serviceLink = regexp.MustCompile(`^TIDELINE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_[A-Z0-9_]+)?$`)

// CheckEnv names the variables of an environment, as os.Environ has it, that begin
// with EnvPrefix but are not among the known ones: a misspelt setting would
// otherwise be ignored in silence. Its error is no reason not to start: the
// environment may be made for a newer version.
func CheckEnv(environ, known []string) error {
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvPrefix+"_") || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		err := fmt.Errorf("the environment variable %s is no setting; see tideline --help", name)
		if near := nearest(name, known); near != "" {
			err = fmt.Errorf("the environment variable %s is no setting; did you mean %s?", name, near)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nearest is the candidate with the fewest edits from the name, "" when all have
// many.
func nearest(name string, known []string) string {
	best, distance := "", 5
	for _, candidate := range known {
		if d := edits(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two names in ASCII.
//
// Cost: the product of their lengths.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
