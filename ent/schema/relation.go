package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// relation is a directed edge between two users, at most one per pair. from is the user who acts
// (follows, asks, blocks, mutes), and to is the other user.
type relation struct {
	ent.Schema
	from, to string
}

func (r relation) fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64(r.from + "_id").Immutable(),
		field.Int64(r.to + "_id").Immutable(),
		field.Time("created_at").Immutable().Default(now),
	}
}

func (r relation) edges() []ent.Edge {
	return []ent.Edge{owner(r.from, r.from+"_id"), owner(r.to, r.to+"_id")}
}

// The second and third index answer the lists of both directions, newest first, from the index
// alone. The unique index answers whether the edge exists.
func (r relation) indexes() []ent.Index {
	from, to := r.from+"_id", r.to+"_id"
	return []ent.Index{
		index.Fields(from, to).Unique(),
		index.Fields(to, "id", from),
		index.Fields(from, "id", to),
	}
}

var (
	follow        = relation{from: "follower", to: "followee"}
	followRequest = relation{from: "requester", to: "target"}
	block         = relation{from: "blocker", to: "blocked"}
	mute          = relation{from: "muter", to: "muted"}
)

// Follow puts the followee's posts into the follower's timeline.
type Follow struct{ ent.Schema }

// Fields of Follow.
func (Follow) Fields() []ent.Field { return follow.fields() }

// Edges of Follow.
func (Follow) Edges() []ent.Edge { return follow.edges() }

// Indexes of Follow.
func (Follow) Indexes() []ent.Index { return follow.indexes() }

// FollowRequest waits for the approval of an account that approves its followers.
type FollowRequest struct{ ent.Schema }

// Fields of FollowRequest.
func (FollowRequest) Fields() []ent.Field { return followRequest.fields() }

// Edges of FollowRequest.
func (FollowRequest) Edges() []ent.Edge { return followRequest.edges() }

// Indexes of FollowRequest.
func (FollowRequest) Indexes() []ent.Index { return followRequest.indexes() }

// Block hides two users' posts from each other, whichever of them blocked.
type Block struct{ ent.Schema }

// Fields of Block.
func (Block) Fields() []ent.Field { return block.fields() }

// Edges of Block.
func (Block) Edges() []ent.Edge { return block.edges() }

// Indexes of Block.
func (Block) Indexes() []ent.Index { return block.indexes() }

// Mute hides a followed user from the muter's timeline.
type Mute struct{ ent.Schema }

// Fields of Mute.
func (Mute) Fields() []ent.Field { return mute.fields() }

// Edges of Mute.
func (Mute) Edges() []ent.Edge { return mute.edges() }

// Indexes of Mute.
func (Mute) Indexes() []ent.Index { return mute.indexes() }
