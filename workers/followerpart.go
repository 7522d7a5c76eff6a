package workers

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"tideline/ent"
)

// maxFollowerParts is the largest number of parts of a follower scan.
const maxFollowerParts = 32

// followerPart is a part of a follower scan. It is in the payload of a job, so its JSON names must
// not change. The zero value is the whole scan.
type followerPart struct {
	Number int `json:"number"` // from 1
	Of     int `json:"of"`     // number of parts
	// Start is where the part begins. After is the follow at which the next part begins; 0 means
	// that this part ends with the oldest follow. Parts that walk the active users have the same
	// Start.
	Start scanPosition `json:"start"`
	After int64        `json:"after,omitempty"`
}

// has reports whether the part includes the user, whose follow is within its range. The lists of
// active users change all the time, so parts that walk them divide the users by id.
func (p followerPart) has(user int64) bool {
	return !p.Start.ByActivity || spread(user)%uint64(p.Of) == uint64(p.Number-1)
}

// spread mixes the bits of an id (Fibonacci hashing: Knuth, volume 3, 6.4). The lowest twelve bits
// of ids that were generated one at a time are equal, so the remainder of the id itself would put
// all users into one part.
func spread(id int64) uint64 { return uint64(id) * 0x9E3779B97F4A7C15 >> 32 }

// divide divides the rest of the author's follower scan, after the page, into parts of about size
// users. It returns nil if there would be only one part.
//
// Cost: none if the scan walks the active users, otherwise one query that reads the rest of the
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
	start.RecentLeft = 0 // each part counts its own
	for i, end := range append(ends, 0) {
		parts[i] = followerPart{Number: i + 1, Of: len(parts), Start: start, After: end}
		start.Before = end + 1
	}
	return parts, nil
}

// apart returns every nth follow of the author below before, in descending order. before 0 means
// all follows.
func (s *followerScans) apart(ctx context.Context, author, before int64, n int) (follows []int64, err error) {
	before = cmp.Or(before, math.MaxInt64)
	// A window function over all follows takes five times as long.
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
