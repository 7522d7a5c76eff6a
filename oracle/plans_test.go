package oracle

import (
	"slices"

	"pgregory.net/rapid"

	"tideline/ent/schema"
)

// scene generates steps for a race: a worker is suspended, or stalls, at the job of a first change.
// One or two other changes follow, the other workers do their jobs, and the first worker continues.
func scene(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 3)
		b := (a + rapid.IntRange(1, people-1).Draw(t, "b")) % people
		// by returns a random step from do, in which x acts on y. A step on a post uses the newest
		// post, or with "base: " its root or original.
		by := func(label string, do []string, x, y int) step {
			return step{do: rapid.SampledFrom(do).Draw(t, label), a: x, b: (y - x - 1 + people) % people, n: n.Draw(t, "n"), quiet: true}
		}
		follow, end := []string{"follow", "unmute", "accept", "unblock"}, []string{"unfollow", "mute", "block"}
		all := slices.Concat([]string{"narrow or widen", "narrow or widen", "hide or show", "suspend or reinstate", "delete", "delete account"}, follow, end, end,
			[]string{"base: narrow or widen", "base: narrow or widen", "base: hide or show", "base: suspend or reinstate", "base: delete", "undo repost", "home replies"})
		x, y := b, a
		if rapid.Bool().Draw(t, "by the author") {
			x, y = a, b
		}
		list := []step{
			{do: rapid.SampledFrom([]string{"hold", "hold", "stall"}).Draw(t, "how"), n: rapid.SampledFrom([]int{1, 1, 0, 2, 3, 4}).Draw(t, "after")},
			by("cause", slices.Concat([]string{"post", "post", "post", "post", "reply", "reply", "repost", "repost", "narrow or widen", "narrow or widen", "narrow or widen", "base: narrow or widen"}, follow, end[:2]), a, b),
			by("meanwhile", all, x, y),
		}
		if rapid.Bool().Draw(t, "twice") {
			list = append(list, by("then", all, x, y))
		}
		return append(list, step{do: "release", quiet: true})
	})
}

// rush generates steps in which many jobs begin at once, so their requests share batches. Some are
// suspended, other things happen, and they continue.
func rush(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		who, n := rapid.IntRange(0, people-1), rapid.IntRange(0, 100)
		by := func(label string, do ...string) step {
			return step{do: rapid.SampledFrom(do).Draw(t, label), a: who.Draw(t, "a"), b: n.Draw(t, "b"), n: n.Draw(t, "n"), quiet: true}
		}
		list := []step{{do: "pause"}}
		for range rapid.IntRange(3, 8).Draw(t, "jobs") {
			list = append(list, by("change", "post", "post", "post", "post", "reply", "repost", "narrow or widen", "base: narrow or widen", "edit", "delete", "follow"))
		}
		how := rapid.SampledFrom([]string{"hold", "hold", "stall", "release"}).Draw(t, "how")
		list = append(list, step{do: how, n: rapid.IntRange(0, 4).Draw(t, "after"), quiet: true}, step{do: "resume", quiet: true})
		for range rapid.IntRange(0, 2).Draw(t, "meanwhile") {
			list = append(list, by("other", "narrow or widen", "base: narrow or widen", "base: delete", "undo repost", "delete", "hide or show", "suspend or reinstate", "unfollow", "mute", "block", "unblock", "kill", "wipe"))
		}
		return append(list, step{do: "release", quiet: true})
	})
}

// staleWorker generates steps in which a worker stalls in the middle of a change, its successor
// finishes, a second change follows, and the worker continues with what it read before.
func staleWorker(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		author := rapid.IntRange(0, people-1).Draw(t, "author")
		reader := (author + rapid.IntRange(1, people-1).Draw(t, "reader")) % people
		indexOf := func(v schema.Visibility) int { return slices.Index(visibilities, string(v)) }
		toAuthor := (author - reader - 1 + people) % people
		by := func(do string) step { return step{do: do, a: reader, b: toAuthor, quiet: true} }
		shown := step{do: "narrow or widen", a: author, n: indexOf(schema.Public), quiet: true}
		hidden := step{do: "narrow or widen", a: author, n: indexOf(schema.Private), quiet: true}
		change := rapid.SampledFrom([][]step{
			{hidden, shown}, {hidden, shown}, {shown, hidden}, {by("mute"), by("unmute")}, {by("unfollow"), by("follow")},
		}).Draw(t, "change")
		return []step{
			by("follow"), {do: "post", a: author, n: indexOf(schema.Followers), quiet: true},
			{do: "stall", n: rapid.IntRange(0, 4).Draw(t, "after")}, change[0], change[1], {do: "release", quiet: true},
		}
	})
}

// thread generates steps in which a reply, a repost or a quote reaches a reader, who may be connected.
// Then something changes that may decide whether the reader sees it.
func thread(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		who, n, quiet := rapid.IntRange(0, people-1), rapid.IntRange(0, 1000), rapid.Bool()
		author, reader := who.Draw(t, "author"), who.Draw(t, "reader")
		by := (author + rapid.IntRange(1, people-1).Draw(t, "by")) % people
		wide := rapid.SampledFrom([]int{0, 0, 0, 1, 2}) // visibilities
		of := func(do string, a, b int) step {
			return step{do: do, a: a, b: (b - a - 1 + 2*people) % people, n: n.Draw(t, "n"), quiet: quiet.Draw(t, "quiet")}
		}
		list := []step{
			of("follow", reader, by),
			{do: "post", a: author, b: n.Draw(t, "text"), n: wide.Draw(t, "for"), quiet: quiet.Draw(t, "quiet")},
		}
		for range rapid.IntRange(1, 3).Draw(t, "answers") {
			do := rapid.SampledFrom([]string{"reply", "reply", "repost", "repost", "quote"}).Draw(t, "answer")
			list = append(list, step{do: do, a: by, b: n.Draw(t, "text"), n: wide.Draw(t, "for"), quiet: quiet.Draw(t, "quiet")})
		}
		if rapid.Bool().Draw(t, "online") {
			list = append(list, step{do: "subscribe", a: reader}, step{do: "events", a: reader})
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			do := rapid.SampledFrom([]string{
				"base: narrow or widen", "base: hide or show", "base: delete", "base: edit", "base: edit", "base: suspend or reinstate",
				"follow", "unfollow", "mute", "unmute", "block", "unblock", "follow", "unfollow", "mute", "unmute",
				"mute word", "unmute word", "home replies", "home replies", "undo repost", "delete", "withdraw quote", "set audience", "cut", "subscribe",
			}).Draw(t, "change")
			other := rapid.SampledFrom([]int{author, by}).Draw(t, "other")
			if other == reader {
				other = (reader + 1) % people
			}
			list = append(list, of(do, reader, other))
		}
		return append(list, step{do: rapid.SampledFrom([]string{"settle", "subscribe"}).Draw(t, "then"), a: reader, quiet: true})
	})
}

// talking generates steps in which a reader shows a conversation. Then replies come, change and go.
func talking(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		who, n, quiet := rapid.IntRange(0, people-1), rapid.IntRange(0, 1000), rapid.Bool()
		reader := who.Draw(t, "reader")
		of := func(do string) step {
			return step{do: do, a: who.Draw(t, "a"), b: n.Draw(t, "b"), n: n.Draw(t, "n"), quiet: quiet.Draw(t, "quiet")}
		}
		list := []step{{do: "post", a: who.Draw(t, "author"), b: n.Draw(t, "text")}} // for everybody
		for range rapid.IntRange(1, 3).Draw(t, "replies") {
			list = append(list, step{do: "reply", a: who.Draw(t, "by"), b: n.Draw(t, "text"), quiet: quiet.Draw(t, "quiet")})
		}
		list = append(list, step{do: "open conversation", a: reader})
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			do := rapid.SampledFrom([]string{
				"reply", "reply", "reply", "edit", "edit", "delete", "delete", "narrow or widen", "narrow or widen", "narrow or widen", "hide or show",
				"follow", "unfollow", "block", "unblock", "suspend or reinstate", "base: narrow or widen", "base: edit", "delete account",
				"hold", "release", "kill", "wipe", "lose", "snapshot", "roll back", "cut off", "back",
			}).Draw(t, "change")
			list = append(list, of(do))
			if rapid.IntRange(0, 3).Draw(t, "breaks") == 0 {
				do := rapid.SampledFrom([]string{"cut conversation", "open conversation"}).Draw(t, "how")
				list = append(list, step{do: do, a: reader, n: n.Draw(t, "events")})
			}
		}
		return append(list, step{do: rapid.SampledFrom([]string{"settle", "settle", "release"}).Draw(t, "then"), quiet: true})
	})
}

// cutOff generates steps in which a process stops hearing from Redis while its clients are connected,
// something happens, and time passes.
func cutOff(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 100)
		list := []step{{do: "subscribe", a: a}, {do: "cut off"}}
		list = append(list, rapid.SliceOfN(steps, 1, 4).Draw(t, "meanwhile")...)
		list = append(list, step{do: "post", a: n.Draw(t, "by"), n: n.Draw(t, "for"), quiet: rapid.Bool().Draw(t, "quiet")},
			step{do: "pass", n: n.Draw(t, "long")}, step{do: "events", a: a})
		if rapid.Bool().Draw(t, "moves") {
			list = append(list, step{do: "cut", a: a}, step{do: "subscribe", a: a})
		}
		return append(list, step{do: "back"})
	})
}

// reconnect generates steps in which a client loses its connection and resumes.
func reconnect(people int) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		a, n := rapid.IntRange(0, people-1).Draw(t, "a"), rapid.IntRange(0, 100)
		return slices.Concat(
			[]step{{do: "subscribe", a: a}}, rapid.SliceOfN(steps, 1, 3).Draw(t, "before"),
			[]step{{do: "cut", a: a, n: n.Draw(t, "events")}}, rapid.SliceOfN(steps, 1, 6).Draw(t, "away"),
			[]step{{do: "subscribe", a: a}},
		)
	})
}

// rollback generates a snapshot of Redis, a few steps, and the return to the snapshot.
var rollback = rapid.Custom(func(t *rapid.T) []step {
	between := rapid.SliceOfN(steps, 1, 6).Draw(t, "between")
	back := step{do: "roll back", n: rapid.IntRange(0, 100).Draw(t, "n"), quiet: rapid.Bool().Draw(t, "quiet")}
	return slices.Concat([]step{{do: "snapshot"}}, between, []step{back})
})

// plans generates whole runs: the users, and parts of steps from the generators of this file.
var plans = rapid.Custom(func(t *rapid.T) plan {
	p := plan{
		people:  rapid.IntRange(2, 5).Draw(t, "people"),
		crowd:   rapid.SampledFrom([]int{0, 0, 0, 0, 30}).Draw(t, "crowd"),
		friends: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "friends"),
		history: rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 130, 130, 320}).Draw(t, "history"),
		shy:     rapid.IntRange(0, 31).Draw(t, "shy"),
		page:    rapid.SampledFrom([]int{100, 20, 7, 3, 2, 1}).Draw(t, "page"),
		online:  rapid.Bool().Draw(t, "online"),
		pulling: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "pulling"),
	}
	// Slices of slices, because rapid mostly generates short slices.
	part := rapid.OneOf(scene(p.people), scene(p.people), rush(p.people), staleWorker(p.people), thread(p.people), thread(p.people), talking(p.people), talking(p.people), rollback, cutOff(p.people), reconnect(p.people), rapid.SliceOfN(steps, 1, 10), rapid.SliceOfN(steps, 1, 10))
	p.steps = slices.Concat(rapid.SliceOfN(part, 1, max(mostSteps/10, 1)).Draw(t, "steps")...)
	return p
})
