// Package ledger keeps what a cluster's nodes have and what of it is given, as an inventory of the allocator. It follows
// slices, device classes, nodes and claims one change at a time. Only one goroutine at a time may use a ledger.
package ledger
