// Package oracle compares Tideline with a model of its rules. It has tests only.
//
// A run is a random sequence of steps on a small society: every mutation of the
// API, and every mishap that the design claims to survive. Workers are killed,
// stopped between two of their writes, stalled until others take their jobs over;
// jobs come late, or twice; Redis is wiped or loses a key, inboxes expire, a
// builder dies, authors cross the threshold between push and pull. The feeds,
// workers, queue and stores are the real ones, several of each, as in several
// processes. The model is a few sets and the rules in their shortest form; it
// shares no code with package feed.
//
// Clients follow timelines live: they lose their connection, resume at another
// process, and take their events late. Processes are cut off from Redis while minutes
// or hours of the virtual time pass, by which ids are made, too. Where Redis is a
// process, it goes back to a snapshot: all of it, or one master of a cluster.
//
// After every step, timelines, profiles, posts, likes and lists are read page by
// page. At any moment:
//
//   - no surface shows a post that the model hides, or a user who is suspended or deleted;
//   - a viewer sees the effects of the viewer's own mutations;
//   - a post that has arrived stays, also across a rebuild and in the middle of a
//     walk;
//   - posts, profiles, relations and counts, which are read from SQL, are exact;
//   - no event shows what is hidden, and none tells a client what it has.
//
// When no job is outstanding, every timeline is exactly the model's, from SQL and
// from the inbox, downwards and upwards, latest and ranked; unread counts are
// right, each client has exactly its timeline, no inbox has an extra id, not even
// one that no read shows, the audit finds no difference, and who was deleted is gone
// from SQL and from all counts.
//
// A run that fails is made smaller and its steps are printed as sentences.
//
// An ordinary run takes about as long as TIDELINE_ORACLE_FOR says for each
// engine (16s by default, 4s with -short; the cluster half of it). A long one:
//
//	TIDELINE_ORACLE_FOR=10m go test -race -timeout 1h -run TestOracle ./oracle
//
// With -rapid.checks=N it makes N runs instead, -rapid.seed=S repeats one, and
// TIDELINE_ORACLE_STEPS is the largest number of steps of a run.
package oracle
