package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
)

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
