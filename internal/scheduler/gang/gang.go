// Package gang reads which pods belong together, and places them all or none. It is pure.
package gang

import (
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Gang is pods that are placed all or none.
type Gang struct {
	// Namespace and Name are unique among all forms of gangs.
	Namespace, Name string
	// Size is how many members there are to be, 0 where nothing tells, and Minimum how many must be placed together.
	// Members above the minimum are placed as far as they fit.
	Size, Minimum int
	// ShareGPUs lets members share GPUs.
	ShareGPUs bool
	// Topology has the widest level first.
	Topology []Level
}

// String names the gang in reasons.
func (g *Gang) String() string { return g.Namespace + "/" + g.Name }

// Level is a label of nodes by which a gang is kept together: nodes with one value of a required label, and with as few
// values of a preferred one as possible.
type Level struct {
	Label    string
	Required bool
}

// Member is a pod of a gang.
type Member struct {
	Key string
	Pod alloc.Pod
	// Among are the nodes on which the pod may be; nil is all. Members that may be on the same nodes best share one set.
	Among *alloc.NodeSet
	// Placed is what a member has already that is not to be placed any more; it is counted in the inventory.
	Placed *alloc.Assignment
	// Lets says whether something else lets the member onto a node that the plan would choose; nil lets it everywhere.
	Lets func(node int) bool
	// Beside is Lets for a node that lets the member, beside others that are about to have places; nil lets it. The slice is
	// the planner's.
	Beside func(node int, others []Neighbour) bool
	// Alike is equal for members that Lets and Beside do not tell apart; it is empty for one that is like no other.
	Alike string
}

// Neighbour is a member with a place: one of the plan so far, or one that was placed before.
type Neighbour struct {
	Key string
	// Node is -1 where the node has gone.
	Node int
}

// Nodes are the nodes of an inventory, by their positions.
type Nodes interface {
	// Label returns the value of a label, and false where the node has none.
	Label(position int, label string) (string, bool)
}

// Plan is where the members of a gang go.
type Plan struct {
	Placements []Placement
	// Left are members above the minimum for which there is no room.
	Left []Member
}

// Placement is where a member goes.
type Placement struct {
	Member     Member
	Assignment alloc.Assignment
}
