// Package dra is the agent's face towards the kubelet of Kubernetes 1.36 and
// later: a driver of dynamic resource allocation. It publishes the slices that package
// pool makes of the GPUs, turns claims into the agent's tenancies, and writes a CDI
// specification for each claim. It has no rules of its own about what fits.
//
// A claim is planned first (allocationsOf, viewsOf and planOf are pure), then
// prepared. The agent's checkpoint holds the state; the specifications can be
// written again from it. A lock for each claim orders the work on it and is taken
// before every lock of the agent. The driver watches only the node's own slices and
// pods; it reads a claim when it is prepared and when other pods use it than before.
package dra
