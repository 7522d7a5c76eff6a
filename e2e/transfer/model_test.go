package transfer

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"
)

// The lines of an import or export file, with the fields in the order of an export.
type (
	userLine struct {
		Type              string    `json:"type"`
		ID                string    `json:"id"`
		Handle            string    `json:"handle"`
		Name              string    `json:"name"`
		Bio               string    `json:"bio,omitempty"`
		CreatedAt         time.Time `json:"createdAt"`
		DefaultVisibility string    `json:"defaultVisibility"`
		ApprovesFollowers bool      `json:"approvesFollowers"`
	}
	postLine struct {
		Type       string    `json:"type"`
		ID         string    `json:"id"`
		Author     string    `json:"author"`
		Text       string    `json:"text"`
		Visibility string    `json:"visibility"`
		CreatedAt  time.Time `json:"createdAt"`
	}
	followLine struct {
		Type     string `json:"type"`
		Follower string `json:"follower"`
		Followee string `json:"followee"`
	}
)

type post struct {
	author     int
	visibility string
	at         time.Time
}

func (p post) text(number int) string {
	return fmt.Sprintf("Post %d: \"high water\" <at> %s,\n潮水 and tide", number, p.at.Format(time.Kitchen))
}

// model is a network of users. Users are numbered from 0.
type model struct {
	users   int
	follows map[[2]int]bool // pairs of follower and followee
	posts   []post          // sorted by time; all times differ
}

var visibilities = []string{"PUBLIC", "PUBLIC", "PUBLIC", "FOLLOWERS", "MUTUALS", "PRIVATE"}

// newModel creates a network in which few users have many followers. Of 100,000 users, the
// first has about 20,000 followers.
func newModel(users, follows, posts int, random *rand.Rand) *model {
	m := &model{users: users, follows: make(map[[2]int]bool, follows)}
	for len(m.follows) < follows {
		pair := [2]int{random.IntN(users), int(float64(users) * math.Pow(random.Float64(), 3))}
		if pair[0] != pair[1] {
			m.follows[pair] = true
		}
	}
	// Tideline stores times before 2026 with a resolution of 20 milliseconds.
	const step = 20 * time.Millisecond
	begin := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)
	steps := int64(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC).Sub(begin) / step)
	taken := make(map[int64]bool, posts)
	for len(m.posts) < posts {
		at := random.Int64N(steps)
		if !taken[at] {
			taken[at] = true
			m.posts = append(m.posts, post{random.IntN(users), visibilities[random.IntN(len(visibilities))], begin.Add(time.Duration(at) * step)})
		}
	}
	slices.SortFunc(m.posts, func(a, b post) int { return a.at.Compare(b.at) })
	return m
}

// timeline returns the texts of the posts in the user's home timeline, newest first.
func (m *model) timeline(user int) (texts []string) {
	for i, p := range slices.Backward(m.posts) {
		follows := m.follows[[2]int{user, p.author}]
		if p.author == user || follows && (p.visibility == "PUBLIC" || p.visibility == "FOLLOWERS" ||
			p.visibility == "MUTUALS" && m.follows[[2]int{p.author, user}]) {
			texts = append(texts, p.text(i))
		}
	}
	return texts
}

// files writes the users, posts and follows to one file each. It returns the number of lines
// by file name.
func (m *model) files(users, posts, follows string) (lines map[string]int, err error) {
	lines = map[string]int{users: m.users, posts: len(m.posts), follows: len(m.follows)}
	err = writeLines(users, func(write func(any) error) error {
		for i := range m.users {
			u := userLine{"user", strconv.Itoa(i), "user" + strconv.Itoa(i), fmt.Sprintf("The %dth \\ user", i), "", time.Date(2017, 1, 1, 0, 0, i, i%1000*1000, time.UTC), "PUBLIC", i%10 == 0}
			if i%3 == 0 {
				u.Bio, u.DefaultVisibility = "A line\nand another", "FOLLOWERS"
			}
			if err := write(u); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = writeLines(posts, func(write func(any) error) error {
		for i, p := range m.posts {
			if err := write(postLine{"post", "p" + strconv.Itoa(i), strconv.Itoa(p.author), p.text(i), p.visibility, p.at}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	pairs := make([][2]int, 0, len(m.follows))
	for pair := range m.follows {
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return lines, writeLines(follows, func(write func(any) error) error {
		for _, pair := range pairs {
			if err := write(followLine{"follow", strconv.Itoa(pair[0]), strconv.Itoa(pair[1])}); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeLines(name string, lines func(write func(any) error) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	buffer := bufio.NewWriterSize(file, 1<<20)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := lines(encoder.Encode); err != nil {
		return err
	}
	return buffer.Flush()
}
