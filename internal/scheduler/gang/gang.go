// Package gang reads which pods belong together, and places them all or none. It is pure.
package gang

import (
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Gang is pods that are placed all or none.
type Gang struct {
	// Namespace and Name are unique among all forms of gangs.
	Namespace, Name string
	// Size is how many members there are to be, Minimum how many must be placed together. Members above the minimum are
	// placed as far as they fit.
	Size, Minimum int
	// ShareGPUs lets members share GPUs.
	ShareGPUs bool
	Topology  []Level
}

// Level is a label of nodes by which a gang is kept together.
type Level struct {
	Label    string
	Required bool
}

// Member is a pod of a gang that is to be placed.
type Member struct {
	Key string
	Pod alloc.Pod
	// Among are the nodes on which the pod may be; nil is all.
	Among *alloc.NodeSet
}

// Nodes are the nodes of an inventory, by their positions.
type Nodes interface {
	// Label returns the value of a label, and false where the node has none.
	Label(position int, label string) (string, bool)
}
