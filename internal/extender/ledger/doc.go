// Package ledger keeps what the nodes of a cluster with slots have of GPUs and what of it is given, as an inventory of the
// allocator, and answers the scheduler of Kubernetes from it. It follows nodes and pods one object at a time, and says the
// same whatever the order is in which they come. Only one goroutine at a time may use a ledger.
//
// A node's annotations say which GPUs it has and what its agent holds of them. A pod's annotations say what it asks, and
// what it was given when it was bound. A share counts once, however many of them tell of it.
package ledger
