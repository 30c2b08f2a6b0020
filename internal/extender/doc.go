// Package extender answers the scheduler of Kubernetes, which asks over HTTPS where a pod with shares fits, which node is best, on
// which nodes it may end others for it, and to bind it. It follows the cluster's pods and nodes, keeps [ledger.Ledger] of them, and writes nothing but Bindings, events and
// its lease.
package extender
