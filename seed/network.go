package seed

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/ids"
)

// history is the age of the oldest posts. People joined before that.
const history = 28 * 24 * time.Hour

// network is a generated network. Its people are identified by their index. The first one is the demo user.
type network struct {
	people                           []person
	follows, requests, blocks, mutes []edge // oldest first
	posts                            []post // oldest first
	likes                            []like
	mentions                         []mentioning
}

type person struct {
	id                int64
	handle, name, bio string
	approves          bool // the person approves followers
	visibility        schema.Visibility
	joined            time.Time
	home              *culture
	fame, zeal        float64 // weights for getting followers and for posting
}

type edge struct {
	from, to int
	at       time.Time
}

type post struct {
	id         int64
	author     int
	text       string
	visibility schema.Visibility
	likes      int
	kept       bool // the post stays as it is: it has no parent, original or quoted post
	// The indexes of other posts, or none. A repost of a reply has its root, too.
	parent, root, original, quoted int
	replies, reposts, quotes       int
}

type like struct{ person, post int }

// maker generates a network. The same seed generates the same network, except for
// its times, which end at now.
type maker struct {
	*rand.Rand
	now time.Time
	network
	used      map[int64]bool  // ids
	related   map[[2]int]bool // (from, to) of every follow and request; both directions of every block
	following map[int][]int   // followees by follower
	followers map[int][]int   // followers by followee
}

func newMaker(seed uint64, now time.Time) *maker {
	return &maker{
		Rand: rand.New(rand.NewPCG(seed, 0)), now: now.UTC().Truncate(time.Millisecond),
		used: map[int64]bool{}, related: map[[2]int]bool{}, following: map[int][]int{}, followers: map[int][]int{},
	}
}

// id returns an id with the time t that this network does not use yet.
func (m *maker) id(t time.Time) int64 {
	for {
		if id := ids.At(t) + m.Int64N(ids.PerStep); !m.used[id] {
			m.used[id] = true
			return id
		}
	}
}

// zipf returns n weights in random order. The k-th largest is 1/k^s.
func (m *maker) zipf(n int, s float64) []float64 {
	weights := make([]float64, n)
	for k, i := range m.Perm(n) {
		weights[i] = math.Pow(float64(k+1), -s)
	}
	return weights
}

// wheel draws indexes with probabilities in proportion to their weights.
type wheel []float64 // cumulative sums of the weights

func newWheel(weights []float64) wheel {
	sums, sum := make(wheel, len(weights)), 0.0
	for i, w := range weights {
		sum += w
		sums[i] = sum
	}
	return sums
}

func (w wheel) draw(r *rand.Rand) int {
	return sort.SearchFloat64s(w, r.Float64()*w[len(w)-1])
}

// makePeople makes n people with different handles.
func (m *maker) makePeople(n int) {
	fame, zeal := m.zipf(n, 0.9), m.zipf(n, 0.7)
	handles := map[string]bool{}
	for i := range n {
		home := &cultures[m.IntN(len(cultures))]
		joined := m.now.Add(-history - time.Duration(m.Int64N(int64(360*24*time.Hour)))).Truncate(time.Millisecond)
		p := person{
			id: m.id(joined), joined: joined, home: home, fame: fame[i], zeal: zeal[i],
			visibility: schema.Public, approves: m.Float64() < 0.08,
		}
		p.name, p.handle = m.name(home)
		if i == 0 {
			p.name, p.handle, p.approves = "Demo 🌊", DemoHandle, true
		}
		p.handle = freeHandle(p.handle, func(h string) bool { return handles[h] })
		handles[p.handle] = true
		p.bio = m.bio(home)
		if p.approves && i > 0 {
			p.visibility = schema.Followers
		}
		m.people = append(m.people, p)
	}
}

// freeHandle returns the handle if it is not taken. Otherwise it returns the handle with the lowest number as
// suffix, from 2 on, that is not taken.
func freeHandle(handle string, taken func(string) bool) string {
	for n, h := 2, handle; ; n++ {
		if !taken(h) {
			return h
		}
		suffix := strconv.Itoa(n)
		h = handle[:min(len(handle), account.MaxHandle-len(suffix))] + suffix
	}
}

// makeRelations makes the follows, requests, blocks and mutes.
func (m *maker) makeRelations() {
	n := len(m.people)
	for len(m.blocks) < max(n/40, 1) {
		m.block(m.IntN(n), m.IntN(n))
	}
	fame := make([]float64, n)
	for i, p := range m.people {
		fame[i] = p.fame
	}
	byFame := newWheel(fame)

	// The demo user always has one friend and a few follow requests.
	m.follow(0, 1, false)
	m.follow(1, 0, false)
	for _, asker := range []int{2, 3, 4} {
		m.follow(asker, 0, true)
	}
	mean := min(float64(n)/8+3, 25)
	for i := range n {
		// Most people follow few, some follow many.
		wanted := min(int(mean*math.Exp(m.NormFloat64()*0.8-0.32))+1, n/2)
		if i == 0 {
			wanted = min(n/2, 40)
		}
		for tries := 0; wanted > 0 && tries < 20*n; tries++ {
			if m.follow(i, m.followee(i, byFame), m.Float64() < 0.3) {
				wanted--
			}
		}
	}
	// The less famous a person is, the likelier they follow back.
	for _, f := range slices.Clone(m.follows) {
		if m.Float64() < 0.5/(1+float64(len(m.followers[f.to]))/mean) {
			m.follow(f.to, f.from, false)
		}
	}
	for i, f := range m.follows {
		if m.Float64() < 0.01 || i == len(m.follows)/2 {
			m.mutes = append(m.mutes, edge{f.from, f.to, m.after(f.at)})
		}
	}
	for _, edges := range [][]edge{m.follows, m.requests, m.blocks, m.mutes} {
		slices.SortStableFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	}
}

// followee draws a person for i to follow: mostly a famous one, sometimes a followee of
// a followee, sometimes anyone.
func (m *maker) followee(i int, byFame wheel) int {
	switch d := m.Float64(); {
	case d < 0.7:
		return byFame.draw(m.Rand)
	case d < 0.93 && len(m.following[i]) > 0:
		if further := m.following[one(m, m.following[i])]; len(further) > 0 {
			return one(m, further)
		}
	}
	return m.IntN(len(m.people))
}

// follow makes from follow to. If ask is set and to approves followers, it makes a follow request instead.
// It reports whether it added either.
func (m *maker) follow(from, to int, ask bool) bool {
	if from == to || m.related[[2]int{from, to}] {
		return false
	}
	m.related[[2]int{from, to}] = true
	since := m.people[from].joined
	if m.people[to].joined.After(since) {
		since = m.people[to].joined
	}
	e := edge{from, to, m.after(since)}
	if ask && m.people[to].approves {
		m.requests = append(m.requests, e)
		return true
	}
	m.follows = append(m.follows, e)
	m.following[from] = append(m.following[from], to)
	m.followers[to] = append(m.followers[to], from)
	return true
}

// block makes from block to, before any follow exists. It skips the demo user and the first few
// people, because visitors look at these.
func (m *maker) block(from, to int) {
	if from == to || min(from, to) < 5 || m.related[[2]int{from, to}] {
		return
	}
	m.related[[2]int{from, to}], m.related[[2]int{to, from}] = true, true
	m.blocks = append(m.blocks, edge{from, to, m.after(m.now.Add(-history))})
}

// after returns a time between t and now.
func (m *maker) after(t time.Time) time.Time {
	return t.Add(time.Duration(m.Int64N(int64(m.now.Sub(t))))).Truncate(time.Millisecond)
}

// one returns a random element of the list.
func one[T any](m *maker, list []T) T { return list[m.IntN(len(list))] }

// makePosts makes n posts. Recent posts are more frequent than old ones.
func (m *maker) makePosts(n int) {
	zeal := make([]float64, len(m.people))
	for i, p := range m.people {
		zeal[i] = p.zeal + p.fame/2
	}
	byZeal := newWheel(zeal)
	all := []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private}
	for i := range n {
		age := time.Minute + time.Duration(math.Pow(m.Float64(), 1.7)*float64(history-time.Hour))
		if i == len(all) && age < history/4 { // a public post of the demo user, with time for answers
			age += history / 4
		}
		p := post{id: m.id(m.now.Add(-age)), author: byZeal.draw(m.Rand), parent: none, root: none, original: none, quoted: none}
		p.visibility = m.visibility(m.people[p.author].approves)
		// The demo user and the demo user's friend each have one post of every visibility.
		if i < 2*len(all) {
			p.author, p.visibility, p.kept = 1-i/len(all), all[i%len(all)], true
		}
		p.text = m.text(p.author)
		m.posts = append(m.posts, p)
	}
	slices.SortFunc(m.posts, func(a, b post) int { return cmp.Compare(a.id, b.id) })
}

func (m *maker) visibility(shy bool) schema.Visibility {
	limits := [3]float64{0.82, 0.93, 0.98}
	if shy {
		limits = [3]float64{0.25, 0.75, 0.95}
	}
	switch d := m.Float64(); {
	case d < limits[0]:
		return schema.Public
	case d < limits[1]:
		return schema.Followers
	case d < limits[2]:
		return schema.Mutuals
	default:
		return schema.Private
	}
}

// mostLikes bounds the likes of one post.
const mostLikes = 500

// makeLikes makes followers like posts that they may see. Few posts get many likes. A like of a
// repost would be one of its original.
func (m *maker) makeLikes() {
	follows := make(map[[2]int]bool, len(m.follows))
	for _, f := range m.follows {
		follows[[2]int{f.from, f.to}] = true
	}
	blocked := make(map[[2]int]bool, 2*len(m.blocks))
	for _, b := range m.blocks {
		blocked[[2]int{b.from, b.to}], blocked[[2]int{b.to, b.from}] = true, true
	}
	for i := range m.posts {
		p := &m.posts[i]
		if p.original != none {
			continue
		}
		var may []int
		switch p.visibility {
		case schema.Public, schema.Followers:
			may = slices.Clone(m.followers[p.author])
		case schema.Mutuals:
			for _, f := range m.followers[p.author] {
				if follows[[2]int{p.author, f}] {
					may = append(may, f)
				}
			}
		}
		if p.root != none {
			root := m.posts[p.root].author
			may = slices.DeleteFunc(may, func(person int) bool { return blocked[[2]int{person, root}] })
		}
		appeal := 0.03 * math.Pow(1-m.Float64(), -0.8) // Pareto
		p.likes = min(int(appeal*float64(len(may))+m.Float64()), len(may), mostLikes)
		m.Shuffle(len(may), func(a, b int) { may[a], may[b] = may[b], may[a] })
		for _, person := range may[:p.likes] {
			m.likes = append(m.likes, like{person, i})
		}
	}
}

// celebrities returns the handles of the most people with the most followers.
func (n *network) celebrities(most int) []string {
	followers := make([]int, len(n.people))
	for _, f := range n.follows {
		followers[f.to]++
	}
	order := make([]int, len(n.people))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(followers[b], followers[a]) })
	var handles []string
	for _, i := range order[:min(most, len(order))] {
		handles = append(handles, n.people[i].handle)
	}
	return handles
}

// mention returns the handle of one of author's followees, to mention in a post.
func (m *maker) mention(author int) string {
	if followed := m.following[author]; len(followed) > 0 {
		return m.people[one(m, followed)].handle
	}
	return DemoHandle
}

// fill replaces {slots} by random elements of their lists until none is left.
func (m *maker) fill(template string, lists map[string][]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		slot, after, _ := strings.Cut(rest, "}")
		template = one(m, lists[slot]) + after
	}
}
