package chaos

// rule decides who may see a post, independently of the product. Its functions say what is known of
// the present, or of a span of time: then they are true for what is possible in it, or for what is
// certain in all of it.
type rule struct {
	// post returns an existing post.
	post func(id int64) (links, bool)
	// has reports whether the post has the visibility.
	has func(id int64, v values) bool
	// holds and lacks report whether one user follows, blocks or mutes another, and whether not.
	holds, lacks func(kind string, from, to int64) bool
}

// links says who wrote a post, and which other posts it depends on.
type links struct {
	author int64
	// Of a reply: the first post of its conversation, and the author of the post that it answers.
	root, answered int64
	// Of a repost.
	original int64
}

// admits reports whether the post would be shown to the viewer if it depended on no other post.
func (r rule) admits(viewer, post int64) bool {
	p, ok := r.post(post)
	switch {
	case !ok:
		return false
	case viewer == p.author:
		return r.has(post, public) || r.has(post, followers) || r.has(post, mutuals) || r.has(post, private)
	case !r.unblocked(viewer, p.author):
		return false
	}
	return r.has(post, public) ||
		r.holds("follow", viewer, p.author) && (r.has(post, followers) || r.has(post, mutuals) && r.holds("follow", p.author, viewer))
}

func (r rule) unblocked(a, b int64) bool { return r.lacks("block", a, b) && r.lacks("block", b, a) }

// sees reports whether the viewer may see the post by its id.
func (r rule) sees(viewer, post int64) bool {
	p, ok := r.post(post)
	switch {
	case !ok:
		return false
	case p.original != 0:
		return r.admits(viewer, post) && r.sees(viewer, p.original)
	case p.root == 0 || viewer == p.author:
		return r.admits(viewer, post)
	}
	return r.admits(viewer, p.root) && (r.admits(viewer, post) || r.answers(viewer, post))
}

// answers reports whether the viewer may see the post because it answers the viewer.
func (r rule) answers(viewer, post int64) bool {
	p, _ := r.post(post)
	root, _ := r.post(p.root)
	exists := r.has(post, public) || r.has(post, followers) || r.has(post, mutuals) || r.has(post, private)
	return exists && (viewer == p.answered || viewer == root.author) && r.unblocked(viewer, p.author)
}

// profile reports whether the author's profile shows the viewer the post.
func (r rule) profile(viewer, post int64) bool { return r.admits(viewer, post) && r.sees(viewer, post) }

// home reports whether the viewer's home timeline has the post.
func (r rule) home(viewer, post int64) bool {
	p, ok := r.post(post)
	if !ok || !r.profile(viewer, post) {
		return false
	}
	if follows := r.holds("follow", viewer, p.author) && r.lacks("mute", viewer, p.author); viewer != p.author && !follows {
		return false
	}
	switch {
	case p.original != 0:
		o, _ := r.post(p.original)
		return r.lacks("mute", viewer, o.author) && (viewer == o.author || r.unmutedRoot(viewer, o))
	case p.root == 0 || viewer == p.author:
		return true
	}
	return r.unmutedRoot(viewer, p) && (viewer == p.answered || r.holds("follow", viewer, p.answered))
}

// unmutedRoot reports whether the viewer does not mute the author of the post's conversation.
func (r rule) unmutedRoot(viewer int64, p links) bool {
	root, ok := r.post(p.root)
	return !ok || r.lacks("mute", viewer, root.author)
}
