// Package peers has benchmarks that compare Tideline with alternatives, in one run and with the same
// client: a page with gqlgen's own server and the bare reads; live delivery with gorilla alone,
// centrifuge and gqlgen's own subscriptions.
//
// It is a separate module, so that users of Tideline do not depend on the peers. "make peers" runs it.
package peers
