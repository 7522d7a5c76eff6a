package bulk

import (
	"regexp"
	"strings"
	"time"

	"tideline/feed/refusal"
)

var timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)$`)

// ParseTime reads a time as RFC 3339 has it, in the years 1 to 9999. It may have small letters t
// and z, and a zone without a colon (+0000); a time without a zone is refused. Error: BadInput,
// which names no field.
func ParseTime(s string) (time.Time, error) {
	s = strings.ToUpper(s)
	if !timePattern.MatchString(s) {
		return time.Time{}, notATime()
	}
	if zone := len(s) - len("0000"); s[zone-1] == '+' || s[zone-1] == '-' {
		s = s[:zone+2] + ":" + s[zone+2:]
	}
	t, err := time.Parse(time.RFC3339, s)
	if year := t.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return time.Time{}, notATime()
	}
	return t, nil
}

func notATime() *refusal.Error {
	return refusal.New(refusal.NotATime, "A time is written as 2024-12-31T23:59:59Z, with a zone.")
}

// createdAt returns the time of a row, which a call gives as text. Error: BadInput, also for a
// time in the future; then it returns the given time, for the caller's row must stay as it was.
func createdAt(given *time.Time, written *string, now time.Time) (*time.Time, error) {
	if written != nil {
		t, err := ParseTime(*written)
		if err != nil {
			return given, notATime().In("createdAt")
		}
		given = &t
	}
	if given != nil && given.After(now.Add(time.Minute)) {
		return given, refusal.New(refusal.InTheFuture, "The time is in the future.").In("createdAt")
	}
	return given, nil
}
