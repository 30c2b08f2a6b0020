package v1alpha1

import "strings"

// remotePools begins the names of pools of GPUs that nodes reach through the network. No node's name has a slash, so such a
// pool is never that of a node.
const remotePools = FormRemote + "/"

// RemotePool is the name of the pool of those GPUs of a node that other nodes reach through the network.
func RemotePool(node string) string { return remotePools + node }

// HostOfPool is the node whose GPUs a pool has that nodes reach through the network; ok is false for any other pool.
func HostOfPool(pool string) (node string, ok bool) {
	node, ok = strings.CutPrefix(pool, remotePools)
	return node, ok && node != "" && !strings.Contains(node, "/")
}

// RemoteSlice is the name of the resource slice of that pool, which has one.
func RemoteSlice(node string) string { return ClassRemote + "-" + node }
