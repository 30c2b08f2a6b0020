// Package kube ties an agent to the Kubernetes cluster that its node is in: it
// finds out the cluster's version, starts the face that fits it, and keeps the node's
// labels and the metrics. It has no rules of its own.
//
// While the API server is away the agent serves the tenants that run, and waits.
package kube
