// Package peers has only benchmarks. Each measures Tideline beside what a developer
// would take in its place, in one run, with one client: a page beside gqlgen's own
// server and the bare reads, live delivery beside gorilla alone, centrifuge and
// gqlgen's own subscriptions.
//
// It is a module of its own, so that nobody who takes Tideline takes the peers too.
// "make peers" runs it.
package peers
