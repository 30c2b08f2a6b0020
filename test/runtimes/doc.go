// Package runtimes tests what Divvy relies on in container runtimes with real ones,
// each alone in namespaces of its own: containerd of both lines and CRI-O, without Kubernetes.
package runtimes
