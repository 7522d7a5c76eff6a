// Package peers has benchmarks that compare Tideline with alternatives, in one run and with the same
// client: a page with gqlgen's own server, PostGraphile and a server that only reads; live delivery with
// gorilla alone, centrifuge and gqlgen's own subscriptions. "make peers" runs them.
package peers
