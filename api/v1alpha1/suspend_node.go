package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
)

// SuspendNodeLabel of a claim is [SuspendNode] of the node on which the claim's shares are. It comes and goes with
// [SuspendAnnotation], in the same write: the API selects claims by labels and not by nodes, and an agent that watched all claims of
// a cluster for the few that leave its GPUs would have every one of them sent to every node.
const SuspendNodeLabel = Domain + "/suspend-node"

// maxLabel is the length of a label's value, which a node's name may exceed.
const maxLabel = 63

// SuspendNode is the value of [SuspendNodeLabel] for a node: its name, or of a longer one as much of a digest as a label holds.
func SuspendNode(node string) string {
	if len(node) <= maxLabel {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:])[:maxLabel]
}
