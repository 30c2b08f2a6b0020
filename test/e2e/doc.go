// Package e2e shows on real clusters what Divvy promises to pods: control plane,
// kubelets and containerd are real, GPUs are simulated, and what truly happened on
// them (docs/simgpu.md, "The report") judges. `make e2e` runs it, as root.
//
// Between its steps every scenario compares what the API server, the agents, the
// oracle and the nodes' disks know of shares. Environment variables, for who looks
// into a failure: DIVVY_E2E_LOGS is a folder that gets the logs of a cluster whose
// test failed, DIVVY_E2E_SEED repeats an order of pods, and DIVVY_E2E_AWAY is how
// long the API server is away, a minute where it is left out.
package e2e
