// Package ranking hides how the posts of a ranked timeline are scored: by named expressions over
// signals, which are compiled once. It does not decide who sees a post, and does no paging.
//
// Its invariants:
//
//   - An expression has only numbers, no loops, and at most MaxOperations operations. So the cost
//     of scoring a post has a bound that no post and no user can raise.
//   - A score is a finite number, whatever the signals are.
//   - A signal depends only on the viewer's own actions and on the post as the viewer sees it.
package ranking

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tideline/feed/refusal"
)

// Hot is the ranking that is used if none is named.
const Hot = "hot"

// Bounds of rankings.
const (
	MaxRankings   = 16
	MaxExpression = 2000 // bytes
	MaxOperations = 200  // of an expression: its numbers, signals, operators and calls
	MaxSignals    = 32   // different signals of an expression
)

// Bounds of the decay of Hot, and its default: Reddit's 45,000 seconds.
const (
	MinDecay     = time.Minute
	DefaultDecay = 12*time.Hour + 30*time.Minute
	MaxDecay     = 8760 * time.Hour
)

// Ranking is a named expression that scores posts. It is safe for concurrent use.
type Ranking struct {
	Name, Expression string

	signals  []string   // that the expression reads, each once
	data     [][]string // the paths of signals in the data of posts, at the same index; nil for others
	affinity bool       // the expression reads it
	score    number
}

// HotExpression returns Reddit's "hot" ranking (reddit r2, lib/db/_sorts.pyx) for posts that
// cannot be voted down: the decimal logarithm of the likes, plus the time of the post in units of
// decay. decay is how much newer a post must be to outweigh one with ten times its likes. The
// expression reads the time of the post and not the present time, so a score changes only when
// the likes do.
func HotExpression(decay time.Duration) string {
	return "log10(max(likes, 1)) + posted / " + strconv.FormatFloat(decay.Seconds(), 'f', -1, 64)
}

// Set holds the rankings of a process by name. It is safe for concurrent use.
type Set struct {
	byName map[string]*Ranking
	names  []string
}

var isName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// New compiles the named expressions, and Hot with the decay. Its error says for each expression
// what is not allowed, and where.
func New(decay time.Duration, expressions map[string]string) (*Set, error) {
	var errs []error
	if len(expressions) > MaxRankings {
		errs = append(errs, fmt.Errorf("it has %d rankings: at most %d are allowed", len(expressions), MaxRankings))
	}
	s := &Set{byName: map[string]*Ranking{}}
	for name, expression := range expressions {
		r, err := Compile(name, expression)
		switch {
		case !isName.MatchString(name):
			err = errors.New("a name is a letter a to z and up to 31 letters, digits, _ and -")
		case name == Hot:
			err = errors.New("this is the name of the ranking that there is anyway; --rank-decay (TIDELINE_RANK_DECAY) changes it")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ranking %q: %w", name, err))
			continue
		}
		s.byName[name], s.names = r, append(s.names, name)
	}
	hot, err := Compile(Hot, HotExpression(decay))
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(errs...)
	}
	slices.Sort(s.names)
	s.byName[Hot], s.names = hot, append([]string{Hot}, s.names...)
	return s, nil
}

// Names returns the names of all rankings: Hot, then the others in alphabetical order.
func (s *Set) Names() []string { return slices.Clone(s.names) }

// Named returns the ranking with the name, Hot for "". Error: BadInput.
func (s *Set) Named(name string) (*Ranking, error) {
	r := s.byName[cmp.Or(name, Hot)]
	if r == nil {
		return nil, refusal.New(refusal.UnknownRanking, "There is no ranking of that name: there are %s.", strings.Join(s.names, ", ")).In("ranking")
	}
	return r, nil
}

// Read returns the named expressions of a setting: a JSON object, or the name of a file that
// contains one. It does not check the expressions.
func Read(setting string) (map[string]string, error) {
	if setting == "" {
		return nil, nil
	}
	data := []byte(setting)
	if !strings.HasPrefix(strings.TrimSpace(setting), "{") {
		var err error
		if data, err = os.ReadFile(setting); err != nil {
			return nil, fmt.Errorf("it must be a JSON object of names and expressions, or a file that has one: %w", err)
		}
	}
	var pairs map[string]string
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&pairs); err != nil {
		return nil, fmt.Errorf("it must be a JSON object of names and expressions: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it must be one JSON object of names and expressions, with nothing after it")
	}
	return pairs, nil
}
