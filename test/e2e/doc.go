// Package e2e tests on real clusters what Divvy promises to pods. Control plane,
// kubelets and containerd are real and the GPUs simulated; the simulator's own
// record (docs/simgpu.md, "The report") judges. `make e2e` and `make e2e-slots` run
// it, as root.
//
// Between its steps every scenario compares what the API server, the agents, the
// oracle and the nodes' disks know about shares. Environment variables help to
// study a failure: DIVVY_E2E_LOGS names a folder for the logs of a cluster whose
// test failed, DIVVY_E2E_SEED repeats an order of pods, and DIVVY_E2E_AWAY sets
// how long the API server is away, by default a minute. DIVVY_E2E_KUBERNETES is the
// version of Kubernetes of the suite of mode slots, and DIVVY_E2E_CONTAINERD its line
// of containerd, empty for the newest.
package e2e
