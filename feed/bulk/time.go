package bulk

import (
	"regexp"
	"strings"
	"time"

	"tideline/feed/refusal"
)

var timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)$`)

// ParseTime parses a time in the format of RFC 3339, in the years 1 to 9999. It accepts lower-case
// t and z, and a zone without a colon (+0000), and refuses a time without a zone. Error: BadInput,
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

// createdAt returns the time of a row, which a call may give as text. Error: BadInput, also for a
// time in the future. With an error it returns the given time, so that the caller's row stays
// unchanged.
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
