// Package containers runs the examples of docs/containers.md with Debian's podman, in namespaces of its own on a
// simulated machine, and compares what they print. hack/podman.sh unpacks podman.
package containers
