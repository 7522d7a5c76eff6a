// Package oracle compares Tideline with a model of its rules. It has tests only.
//
// A run is a random sequence of steps on a few users. The steps are every mutation of the API and
// every fault that the design claims to survive: workers are killed, suspended between two of their
// writes, or stalled until others take their jobs over; jobs come late or twice; Redis is wiped or
// loses a key; inboxes expire; a builder dies; authors cross the threshold between push and pull.
// The feeds, workers, queue and stores are the real ones, several of each, as in several processes.
// The model is a few sets and the rules in their shortest form. It shares no code with package
// feed.
//
// Clients follow timelines and conversations live. They lose their connection, resume at another process, and take
// their events late. Processes are cut off from Redis while minutes or hours of virtual time pass,
// which also determines the ids. If Redis is a separate process, it is rolled back to a snapshot,
// all of it or one master of a cluster.
//
// After every step, the test reads timelines, profiles, public posts, posts, likes and lists page by page. The
// following holds at any moment:
//
//   - no read shows a post that the model hides, or a suspended or deleted user;
//   - a viewer sees the effects of the viewer's own mutations;
//   - a post that has arrived stays, also across a rebuild and during a walk through
//     the pages;
//   - posts, profiles, relations and counts, which are read from SQL, are exact;
//   - no event shows what is hidden, and none repeats what a client has.
//
// When no job is outstanding, every timeline equals the model's: from SQL and from the inbox,
// downwards and upwards, latest and ranked. Unread counts are right, and each client has exactly
// its timeline or conversation. No inbox has an extra id, not even one that no read shows. The audit finds no
// difference. Deleted users are gone from SQL and from all counts.
//
// A run that fails is reduced, and its steps are printed as sentences.
//
// An ordinary run takes about TIDELINE_ORACLE_FOR for each engine (16s by default, 4s with -short;
// half of it for the cluster). A long run:
//
//	TIDELINE_ORACLE_FOR=10m go test -race -timeout 1h -run TestOracle ./oracle
//
// With -rapid.checks=N it makes N runs instead. -rapid.seed=S repeats a run. TIDELINE_ORACLE_STEPS
// is the largest number of steps of a run.
package oracle
