package capacity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Assumptions describe the behaviour of users and the available machines.
type Assumptions struct {
	Users       float64 `json:"users"`
	Active      float64 `json:"active"`
	Connected   float64 `json:"connected"`
	Posts       float64 `json:"posts"`
	Replies     float64 `json:"replies"`
	Reposts     float64 `json:"reposts"`
	Reads       float64 `json:"reads"`
	Counts      float64 `json:"counts"`
	Connects    float64 `json:"connects"`
	Follows     float64 `json:"follows"`
	Followers   float64 `json:"followers"`
	Most        float64 `json:"most"`
	Peak        float64 `json:"peak"`
	Days        float64 `json:"days"`
	InboxCap    float64 `json:"inbox"`
	OutboxCap   float64 `json:"outbox"`
	PullAbove   float64 `json:"pull-above"`
	Pulled      float64 `json:"pulled"`
	Busy        float64 `json:"busy"`
	Cores       float64 `json:"cores"`
	Sockets     float64 `json:"sockets"`
	MasterGB    float64 `json:"master-gb"`
	SQLCores    float64 `json:"sql-cores"`
	SQLSessions float64 `json:"sql-sessions"`
}

// assumption is an assumption that --assume can set.
type assumption struct {
	name        string
	at          *float64
	value       float64 // default
	least, most float64
	help        string
}

// Bounds of Users.
const (
	MinUsers = 1
	MaxUsers = 10_000_000_000
)

func (a *Assumptions) all() []assumption {
	return []assumption{
		{"active", &a.Active, 0.4, 0, 1, "share of users who have read within the life of an inbox (72h)"},
		{"connected", &a.Connected, 0.05, 0, 1, "share of users connected at the peak"},
		{"posts", &a.Posts, 0.2, 0, 1000, "posts a user and day"},
		{"replies", &a.Replies, 0, 0, 1000, "replies a user and day, besides posts"},
		{"reposts", &a.Reposts, 0, 0, 1000, "reposts a user and day, besides posts"},
		{"reads", &a.Reads, 10, 0, 10_000, "pages a user and day"},
		{"counts", &a.Counts, 0.5, 0, 1, "share of pages and live events that ask for the number of unread posts, hundreds of them"},
		{"connects", &a.Connects, 2, 0, 1000, "connections opened a user and day"},
		{"follows", &a.Follows, 100, 0, 1e6, "follows of a user"},
		{"followers", &a.Followers, 200, 0, 1e6, "followers of a post's author, on the average over posts"},
		{"most", &a.Most, 0.1, 0, 1, "followers of the most followed author, as a share of the users"},
		{"peak", &a.Peak, 3, 1, 1000, "rate at the peak, as a multiple of the average"},
		{"days", &a.Days, 365, 1, 36_500, "days of posts that are there"},
		{"inbox", &a.InboxCap, 500, 1, 10_000, "entries of a full inbox (--inbox-cap)"},
		{"outbox", &a.OutboxCap, 1000, 1, 10_000, "entries of a full outbox (--outbox-cap)"},
		{"pull-above", &a.PullAbove, 50_000, 0, 1e10, "authors with more followers are not pushed (--pull-above)"},
		{"pulled", &a.Pulled, 0.00001, 0, 1, "share of users who are such authors: only they have an outbox in Redis"},
		{"busy", &a.Busy, 0.6, 0.01, 1, "share of a processor that may be in use at the peak"},
		{"cores", &a.Cores, 8, 1, 1024, "processors of a machine for servers or workers"},
		{"sockets", &a.Sockets, 20_000, 1, 1e6, "connections of a server (--max-sockets)"},
		{"master-gb", &a.MasterGB, 16, 0.1, 10_000, "memory in use on a master of Redis, in 10^9 bytes"},
		{"sql-cores", &a.SQLCores, 64, 1, 1024, "processors of the largest PostgreSQL machine"},
		{"sql-sessions", &a.SQLSessions, 2000, 1, 1e6, "connections that PostgreSQL, or a pooler before it, takes"},
	}
}

// Assume returns the assumptions for the number of users: the defaults, except the named ones. Errors: names
// that do not exist, and values out of bounds, with the allowed ones.
func Assume(users float64, named map[string]float64) (a Assumptions, err error) {
	var errs []error
	if !(users >= MinUsers && users <= MaxUsers) {
		errs = append(errs, fmt.Errorf("--for is %s: it must be %d to %d users", plain(users), MinUsers, MaxUsers))
	}
	a.Users = users
	var names []string
	rest := maps.Clone(named)
	for _, x := range a.all() {
		*x.at = x.value
		names = append(names, x.name)
		v, given := named[x.name]
		delete(rest, x.name)
		switch {
		case !given:
		case v >= x.least && v <= x.most:
			*x.at = v
		default:
			errs = append(errs, fmt.Errorf("--assume %s is %s: it must be %s to %s", x.name, plain(v), plain(x.least), plain(x.most)))
		}
	}
	for _, unknown := range slices.Sorted(maps.Keys(rest)) {
		errs = append(errs, fmt.Errorf("--assume %s is not known: it must be one of %s", unknown, strings.Join(names, ", ")))
	}
	return a, errors.Join(errs...)
}

// Help lists the assumptions, their units and their defaults.
func Help() string {
	var a Assumptions
	var lines []string
	for _, x := range a.all() {
		lines = append(lines, fmt.Sprintf("%s=%s: %s", x.name, plain(x.value), x.help))
	}
	return strings.Join(lines, "; ")
}

// plain formats a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
