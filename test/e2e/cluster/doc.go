// Package cluster runs a real Kubernetes cluster on this machine for tests:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and one or more
// nodes with containerd and kubelet, each node with a simulated GPU machine.
//
// Nothing of it is visible on the host. The control plane has a network and a
// pid namespace; each node has those, a mount namespace with a root of its own,
// and a cgroup namespace, so that several nodes and several clusters use the
// standard paths and ports side by side. All processes live below one pid
// namespace whose first process a supervisor holds: when the test ends, in
// whatever way, the supervisor sees its pipe close, kills that process, with it
// the kernel ends every other one, and only cgroups and one directory are left
// to be removed.
//
// It needs root and what `make e2e-deps` installs and builds. Available says what
// is missing.
package cluster
