// Package dra is the agent's face towards the kubelet of Kubernetes 1.36 and
// later: a driver of dynamic resource allocation. It publishes what package pool
// makes of the GPUs, turns claims into the agent's tenancies and these into CDI
// specifications. It has no rules of its own about what fits.
//
// A claim is worked out first (allocationsOf, viewsOf, planOf: pure), then made. The
// agent's checkpoint is the memory; the specifications can be made of it again.
// Work on one claim is ordered by a lock of that claim, taken before every lock
// of the agent. No watch of the cluster is kept beside that of the node's own
// slices; claims and pods are read one by one when they are needed.
package dra
