package seed

import (
	"strconv"
	"strings"
)

// culture is a person's culture: its names, and its language besides English.
type culture struct {
	first, last []name
	familyFirst bool // 李梅, not 梅李
	bios, texts []string
	own         float64 // share of the texts in the own language
}

// name is a name in its own script and in the spelling of handles.
type name struct{ written, handle string }

// names parses a list such as "Zoë=zoe José=jose Anna". The handle of a name without
// = is the name in lower case.
func names(list string) []name {
	var all []name
	for _, field := range strings.Fields(list) {
		written, handle, ok := strings.Cut(field, "=")
		if !ok {
			handle = strings.ToLower(written)
		}
		all = append(all, name{written, handle})
	}
	return all
}

// name returns a random name and a handle for it. The handle may be taken.
func (m *maker) name(home *culture) (written, handle string) {
	first, last := one(m, home.first), one(m, home.last)
	switch {
	case !home.familyFirst:
		written = first.written + " " + last.written
	default:
		written = last.written + first.written
	}
	if m.Float64() < 0.15 {
		written += " " + one(m, words["emoji"])
	}
	switch m.IntN(5) {
	case 0:
		return written, first.handle + last.handle
	case 1:
		return written, first.handle[:1] + last.handle
	case 2:
		return written, first.handle + strconv.Itoa(60+m.IntN(40))
	case 3:
		return written, last.handle + "_" + first.handle
	default:
		return written, first.handle + "_" + last.handle
	}
}

// bio returns a line or two about a person, or nothing for some people.
func (m *maker) bio(home *culture) string {
	if m.Float64() < 0.2 {
		return ""
	}
	bios := englishBios
	if len(home.bios) > 0 && m.Float64() < home.own {
		bios = home.bios
	}
	return m.fill(one(m, bios), words)
}

// text returns a post: mostly a remark, sometimes a few sentences or a long text.
func (m *maker) text(author int) string {
	home := m.people[author].home
	if len(home.texts) > 0 && m.Float64() < home.own {
		return m.fill(one(m, home.texts), words)
	}
	switch d := m.Float64(); {
	case d < 0.08:
		return m.fill(one(m, words["greeting"]), words)
	case d < 0.7:
		return m.fill(one(m, remarks), words)
	case d < 0.8:
		return "@" + m.mention(author) + " " + m.fill(one(m, replies), words)
	case d < 0.94:
		return m.sentences(2 + m.IntN(3))[0]
	}
	lengths := make([]int, 2+m.IntN(4))
	for i := range lengths {
		lengths[i] = 2 + m.IntN(4)
	}
	return m.fill(one(m, titles), words) + "\n\n" + strings.Join(m.sentences(lengths...), "\n\n")
}

// sentences returns paragraphs with the given numbers of remarks. No remark occurs twice.
func (m *maker) sentences(lengths ...int) []string {
	order := m.Perm(len(remarks))
	paragraphs := make([]string, len(lengths))
	for i, n := range lengths {
		list := make([]string, n)
		for j := range list {
			list[j] = m.fill(remarks[order[j]], words)
		}
		order = order[n:]
		paragraphs[i] = strings.Join(list, " ")
	}
	return paragraphs
}

var englishBios = []string{
	"{Job} in {city}. {Hobby}, {hobby} and too much {drink}.",
	"{Job}. Mostly {hobby}, sometimes {hobby}. {emoji}",
	"Lives in {city}, thinks about {topic}.",
	"{Hobby} | {hobby} | {topic} {emoji}{emoji}",
	"Here for {topic} and pictures of {animal}s.",
	"{Job} by day, {hobby} by night. Opinions are my {animal}'s.",
	"Slowly writing a book about {topic}.\n{city} → {city}",
	"{emoji} {city}",
}

var titles = []string{
	"What I learned from a year of {hobby}",
	"A long note about {topic}, because somebody asked",
	"Notes from {city} {emoji}",
	"Why I left {city}",
	"Things nobody tells you about {topic}:",
}

var replies = []string{
	"thank you, that made my {day}!",
	"I disagree about {topic}, but I like how you put it.",
	"have you tried it with {food}?",
	"congratulations!! 🎉🎉",
	"next time you are in {city}, the {drink} is on me.",
	"this is the best thing I have read about {topic} in months.",
	"{n} years of {hobby} and I still learn something from you.",
	"yes. Very much yes.",
	"wait, your {animal} does that too?",
}

var remarks = []string{
	"The {drink} at the new place in {city} is worth the walk.",
	"Day {n} of {hobby}: I can finally see some progress.",
	"I have been reading about {topic} all {day} and I have questions.",
	"My {animal} has opinions about {topic}.",
	"Does anybody here know a good introduction to {topic}?",
	"It has rained in {city} for {n} days and I do not mind at all. {emoji}",
	"Made {food} for {n} people tonight, nothing was left.",
	"If you only cook one thing this week, make {food}.",
	"The train to {city} is {n} minutes late, so here is a picture of a {animal} in words: small, round, annoyed.",
	"Unpopular opinion: {hobby} is better in winter.",
	"Saw a {animal} on the way to work today and it was the best part of the {day}.",
	"Finished the book about {topic}. The last chapter changed my mind.",
	"We shipped it! {n} months of work and it just… works. {emoji}",
	"Who else is up at this hour thinking about {topic}?",
	"Note to self: never again {hobby} before {drink}.",
	"The light in {city} in the early morning is hard to describe, so I will not try.",
	"Looking for company for {hobby} this weekend, beginners welcome.",
	"I moved to {city} {n} years ago today.",
	"Small joys: {drink}, a window seat and nothing to do until noon.",
	"My grandmother's recipe for {food} has {n} steps and half of them are 'wait'.",
	"Somebody left a whole box of books about {topic} on the street. It is mine now. {emoji}",
	"{n} kilometres this morning. My legs have filed a complaint.",
	"Today's lesson: measure twice, cut once, then measure again and buy new wood.",
	"Voted, then {food} for lunch, as is tradition.",
	"The concert in {city} was so good that I forgot to take a single photo.",
	"Learning to play the cello at {n}. The {animal} next door is leaving.",
	"Is it still {hobby} if I mostly sit there with {drink}?",
	"I keep coming back to the same thought about {topic}: we ask the wrong question.",
}

// words has the lists from which template slots are filled.
var words = map[string][]string{
	"greeting": {"Good morning, {city}! {emoji}", "Good night 🌙", "{emoji}{emoji}{emoji}", "Hello world, hello {city}.", "Finally a day off.", "ok.", "Home. {emoji}"},
	"city":     {"Lagos", "Lisbon", "Kyiv", "Chengdu", "São Paulo", "Kyoto", "Zürich", "Cairo", "Mumbai", "Montréal", "Reykjavík", "Accra", "Kraków", "Hanoi", "Oaxaca", "Glasgow", "Tromsø", "Izmir"},
	"job":      {"nurse", "carpenter", "teacher", "physicist", "bus driver", "illustrator", "baker", "sound engineer", "translator", "botanist", "data engineer", "retired sailor"},
	"Job":      {"Nurse", "Carpenter", "Teacher", "Physicist", "Bus driver", "Illustrator", "Baker", "Sound engineer", "Translator", "Botanist", "Data engineer", "Retired sailor"},
	"hobby":    {"climbing", "birdwatching", "chess", "pottery", "long-distance running", "choir singing", "gardening", "film photography", "bouldering", "sourdough", "radio building", "swimming in cold lakes", "knitting"},
	"Hobby":    {"Climbing", "Birdwatching", "Chess", "Pottery", "Running", "Choir", "Gardening", "Film photography", "Sourdough", "Radios", "Cold lakes", "Knitting"},
	"topic":    {"city trees", "typography", "night trains", "the history of maps", "distributed systems", "coral reefs", "public libraries", "old synthesizers", "bread", "the deep sea", "sign languages", "cycling infrastructure", "type theory", "moss"},
	"animal":   {"cat", "heron", "dog", "hedgehog", "crow", "fox", "parrot", "tortoise", "goat"},
	"food":     {"jollof rice", "borscht", "dumplings", "feijoada", "ramen", "couscous", "Käsespätzle", "mole negro", "dal", "pierogi", "köfte", "shakshuka"},
	"drink":    {"coffee", "green tea", "mate", "ginger lemonade", "filter coffee", "chai", "hibiscus tea"},
	"day":      {"day", "morning", "week", "evening", "weekend"},
	"n":        {"2", "3", "4", "5", "7", "8", "10", "12", "14", "21", "30", "42"},
	"emoji":    {"☀️", "🌊", "🚲", "🐈", "🍜", "🎻", "📚", "🌱", "⛰️", "🎉", "👩🏽‍🚀", "🏳️‍🌈", "☕", "🦔", "🫶", "🇳🇬"},
	"城市":       {"成都", "上海", "杭州", "台北", "西安", "昆明"},
	"菜":        {"火锅", "小笼包", "麻婆豆腐", "担担面", "番茄炒蛋"},
	"爱好":       {"爬山", "摄影", "下棋", "书法", "骑行", "看老电影"},
	"都市":       {"京都", "札幌", "福岡", "金沢", "松本"},
	"趣味":       {"写真", "登山", "読書", "将棋", "パン作り"},
}
