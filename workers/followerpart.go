package workers

import (
	"context"
	"fmt"
	"math"

	"tideline/ent"
)

// maxFollowerParts is how many parts a follower scan is divided into at most.
const maxFollowerParts = 32

// followerPart is a part of a follower scan that is gone through by itself. It is in the payload of a job: its
// names in JSON must not change. The zero Part is the whole.
type followerPart struct {
	Number int `json:"number"` // from 1
	Of     int `json:"of"`     // so many parts
	// Start is where the part begins, and After the follow with which the next one does; 0: the
	// part ends with the oldest. Parts that go through the active users have the same start.
	Start scanPosition `json:"start"`
	After int64        `json:"after,omitempty"`
}

// has reports whether the part has the user, whose follow is within it. Lists of the active
// users differ from one moment to the next: these belong to parts by their ids.
func (p followerPart) has(user int64) bool {
	return !p.Start.ByActivity || spread(user)%uint64(p.Of) == uint64(p.Number-1)
}

// spread is the id with its bits mixed (Fibonacci hashing: Knuth, volume 3, 6.4): the lowest twelve bits
// of ids made one at a time are the same, so that the remainder of an id would put all into one part.
func spread(id int64) uint64 { return uint64(id) * 0x9E3779B97F4A7C15 >> 32 }

// divide divides what is left of the author's follower scan after the page into parts with about so
// many users each. It returns nil if it would be a single one.
//
// Cost: none if it goes through the active users; else one query, which reads the rest of the
// author's follows by index.
func (s *followerScans) divide(ctx context.Context, author *ent.User, after followerPage, size int) ([]followerPart, error) {
	n := min((after.rest+size-1)/size, maxFollowerParts)
	if n < 2 {
		return nil, nil
	}
	if after.After.ByActivity {
		parts := make([]followerPart, n)
		for i := range parts {
			parts[i] = followerPart{Number: i + 1, Of: n, Start: after.After}
		}
		return parts, nil
	}
	ends, err := s.apart(ctx, author.ID, after.After.Before, after.rest/n+1)
	if err != nil {
		return nil, fmt.Errorf("divide the followers of author %d: %w", author.ID, err)
	}
	if len(ends) == 0 {
		return nil, nil
	}
	parts := make([]followerPart, len(ends)+1)
	start := after.After
	start.RecentLeft = 0 // each part comes by its own
	for i, end := range append(ends, 0) {
		parts[i] = followerPart{Number: i + 1, Of: len(parts), Start: start, After: end}
		start.Before = end + 1
	}
	return parts, nil
}

// apart returns those of the author's follows before the given one, 0: of all, that have so many
// between each other.
func (s *followerScans) apart(ctx context.Context, author, before int64, n int) (follows []int64, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	// A window over all of them takes five times as long.
	next := "(SELECT id FROM follows WHERE followee_id = $1 AND id < %s ORDER BY id DESC LIMIT 1 OFFSET $3)"
	found, err := s.db.QueryContext(ctx, "WITH RECURSIVE apart(id) AS (SELECT "+fmt.Sprintf(next, "$2")+
		" UNION ALL SELECT "+fmt.Sprintf(next, "apart.id")+" FROM apart WHERE id IS NOT NULL) SELECT id FROM apart WHERE id IS NOT NULL",
		author, before, n-1)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var follow int64
		if err := found.Scan(&follow); err != nil {
			return nil, err
		}
		follows = append(follows, follow)
	}
	return follows, found.Err()
}
