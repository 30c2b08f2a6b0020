// Package e2e shows on real clusters what Divvy promises to pods: control plane,
// kubelets and containerd are real, GPUs are simulated, and what truly happened on
// them (docs/simgpu.md, "The report") judges. `make e2e` runs it, as root.
package e2e
