// Package kube ties an agent to the Kubernetes cluster that its node is in: it
// finds out what the cluster is able to, starts the face that fits, and keeps the
// node's labels and the metrics. It has no rules of its own.
//
// Nothing here keeps the agent from serving what runs: an API server that is away
// is waited for.
package kube
