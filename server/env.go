package server

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// serviceLink matches the variables that Kubernetes sets in every pod for each service. The variables of a
// service called tideline look like settings.
var serviceLink = regexp.MustCompile(`^TIDELINE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_[A-Z0-9_]+)?$`)

// CheckEnv returns an error that names the variables of an environment, in the form of os.Environ, that begin
// with EnvPrefix but are not known. Without it a misspelt setting would be ignored silently. A process may
// start despite the error: the environment may be written for a newer version.
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

// SecretFile returns the environment variable that names the file of a secret setting.
func SecretFile(setting string) string { return setting + "_FILE" }

// Secret reads a secret setting from the file that SecretFile names, without the end of the line. found is
// false if no file is named. Errors: the setting itself is also in the environment; the file cannot be read,
// is empty, or has more than one line.
func Secret(setting string) (value string, found bool, err error) {
	name := SecretFile(setting)
	file := os.Getenv(name)
	if file == "" {
		return "", false, nil
	}
	if os.Getenv(setting) != "" {
		return "", false, fmt.Errorf("%s and %s are both set: only one may be", setting, name)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", name, err)
	}
	value = strings.TrimSpace(string(text))
	if value == "" || strings.Contains(value, "\n") {
		return "", false, fmt.Errorf("%s: the file %s must have one line, the value of %s", name, file, setting)
	}
	return value, true, nil
}

// nearest returns the known name with the fewest edits from name, or "" if none is within 4 edits.
func nearest(name string, known []string) string {
	best, distance := "", 5
	for _, candidate := range known {
		if d := edits(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// edits returns the Levenshtein distance between two ASCII names.
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
