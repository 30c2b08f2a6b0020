package alloc

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Reason groups refusals by what the asker can do.
type Reason int

// The reasons.
const (
	// ReasonNever is a request that no node could serve even when empty.
	ReasonNever Reason = iota
	// ReasonUnknown is a request for a GPU that does not exist.
	ReasonUnknown
	// ReasonFull is a request that fits once others have ended.
	ReasonFull
)

// Refusal says why a request does not fit. What the asker can do about it depends on
// the asker, and is for whoever knows them to say.
type Refusal struct {
	Reason Reason
	// Text is the message of a refusal on one host. On a cluster it is empty, and
	// Error makes the message from the fields below.
	Text string
	// Misses are the GPUs of one host that the text speaks of, and Short is on how many
	// of them the request would have to fit.
	Misses []Miss
	Short  int
	// Nodes counts nodes by cause.
	Nodes [causes]int
	// Nearest is the cause of the nearest miss. Best is the most that a node with
	// that cause has of what is missing, in the cause's unit.
	Nearest Cause
	Best    uint64

	request Request
}

// Miss is a GPU of one host on which a share does not fit.
type Miss struct {
	Index int
	UUID  string
	// Name is the GPU's.
	Name  string
	Cause Cause
	// Need is what the share needs and Free what is left of All: bytes or, of cores,
	// percent. Of CauseContext, Free is what the context takes.
	Need, Free, All uint64
	// Kept is what a swap share would keep there, and Most the most memory that it could have; 0 for any other share. KeptFits is the
	// most that it could keep of its memory to fit, 0 where another part would not help.
	Kept, Most, KeptFits uint64
	// Tenants is how many shares the GPU has, Form how they are made real, and User whose they are where that matters.
	Tenants    int
	Form, User string
	// Fault says why the GPU takes no shares.
	Fault string
	// MIG says what it has of MIG, where that is why the share does not fit.
	MIG string
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Text != "" {
		return r.Text
	}
	if r.Reason == ReasonUnknown {
		return fmt.Sprintf("GPU %s does not exist on any node", r.request.Among)
	}
	var parts []string
	all := 0
	for cause := range causes {
		all += r.Nodes[cause]
		if r.Nodes[cause] > 0 && cause != r.Nearest {
			parts = append(parts, fmt.Sprintf("%d: %s", r.Nodes[cause], cause))
		}
	}
	text := fmt.Sprintf("none of %d nodes fits; nearest: %s", all, r.miss())
	if len(parts) > 0 {
		text += "; others: " + strings.Join(parts, ", ")
	}
	return text
}

// miss describes the nearest miss.
func (r *Refusal) miss() string {
	nodes := fmt.Sprintf("%d nodes have", r.Nodes[r.Nearest])
	if r.Nodes[r.Nearest] == 1 {
		nodes = "1 node has"
	}
	wanted := "a GPU"
	if r.request.Count > 1 {
		wanted = fmt.Sprintf("%d GPUs", r.request.Count)
	}
	if !r.request.Memory.IsZero() {
		wanted = r.request.Memory.String() + " not granted"
	}
	switch r.Nearest {
	case CauseCores:
		return fmt.Sprintf("%s %s but only %d cores", nodes, wanted, r.Best)
	case CauseMemory:
		return fmt.Sprintf("%s room on the host but at most %s left on a GPU", nodes, amount(r.Best))
	case CauseSwapFull:
		return fmt.Sprintf("%s %s on a GPU but at most %s of the host's memory left for swap shares of it", nodes, wanted, amount(r.Best))
	case CauseHostCPU:
		return fmt.Sprintf("%s %s but only %d.%03d processors", nodes, wanted, r.Best/1000, r.Best%1000)
	case CauseHostMemory:
		return fmt.Sprintf("%s %s but only %s of host memory", nodes, wanted, amount(r.Best))
	case CauseTogether:
		return fmt.Sprintf("%s at most %d of the %d GPUs", nodes, r.Best, r.request.Count)
	}
	return fmt.Sprintf("%d: %s", r.Nodes[r.Nearest], r.Nearest)
}

// String describes the cause on a node.
func (c Cause) String() string {
	return [causes]string{
		CauseNone: "fits", CauseCount: "too few GPUs", CauseNamed: "not the GPU asked for", CauseModel: "another model", CauseClass: "GPUs that no selector lets", CauseFence: "GPUs given twice", CauseAside: "GPUs that other members have", CauseSlots: "GPUs with no slot left",
		CauseProfile: "no such MIG profile", CauseCapacity: "GPUs too small", CauseContext: "less than one process takes", CauseKept: "nothing to swap",
		CauseHost: "host too small", CauseFault: "GPUs not healthy", CauseBusy: "no GPU without tenants", CauseForm: "GPUs shared in another way",
		CauseUser: "GPUs that serve another user", CauseClients: "GPUs whose server takes no more programs",
		CauseNoSwap: "no memory of the host for a swap share as large", CauseSwapFull: "too little memory of the host left for swap shares",
		CauseMemory: "too little GPU memory left", CauseCores: "too few cores left", CausePlacement: "no room for the MIG profile",
		CauseNIC: "no free RDMA card near enough to a GPU", CauseNoNIC: "no RDMA card near enough to a GPU", CauseNear: "GPUs too far apart",
		CauseTogether: "too few GPUs free together", CauseTries: "too many ways to place all shares together, and none of those tried fits: ask for fewer or for smaller shares in one pod",
		CauseHostCPU: "too few processors left", CauseHostMemory: "too little host memory left",
	}[c]
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// refusal says why a shape fits nowhere.
func (inv *Inventory) refusal(c *shape) *Refusal { return inv.refusalAmong(c, nil) }

// refusalAmong says why a shape fits on none of some nodes; nil is all.
func (inv *Inventory) refusalAmong(c *shape, among *NodeSet) *Refusal {
	switch {
	case inv.present == 0:
		return refuse(ReasonNever, "there are no nodes")
	case among != nil && among.Len() == 0:
		return refuse(ReasonNever, "there are no nodes on which the pod may be")
	case len(inv.nodes) == 1:
		return inv.hostRefusal(c)
	}
	return inv.clusterRefusal(c, among)
}

// clusterRefusal counts the nodes by cause.
func (inv *Inventory) clusterRefusal(c *shape, among *NodeSet) *Refusal {
	r := &Refusal{request: c.request, Reason: ReasonNever}
	named, at := c.request.Among == "", 0
	most := uint32(0)
	for node := range inv.entries {
		if inv.entries[node].absent || among != nil && !among.Has(node) {
			continue
		}
		cause := inv.cause(c, node)
		r.Nodes[cause]++
		named = named || cause != CauseNamed && cause != CauseCount
		if !cause.never() {
			r.Reason = ReasonFull
		}
		free := inv.entries[node].state.gpus[0]
		if have := uint32(free.memory)<<16 | uint32(free.cores); cause > r.Nearest || cause == r.Nearest && have > most {
			r.Nearest, at, most = cause, node, have
		}
	}
	if !named {
		r.Reason = ReasonUnknown
	}
	r.Best = inv.best(c, at, r.Nearest)
	return r
}

// cause says why a shape does not fit on a node. It checks the GPUs before the host.
func (inv *Inventory) cause(c *shape, node int) Cause {
	r := &inv.entries[node]
	host := c.request.hostCause(r, &inv.nodes[node])
	if host == CauseCount || host == CauseHost || c.request.Count == 0 {
		return host
	}
	if !c.request.plain() {
		_, cause := inv.arrange(c, node)
		return cause
	}
	needs := c.needs[r.state.kind]
	fitting, cause := 0, CauseCount
	for i := range needs {
		need := &needs[r.gpu[i]]
		g := &inv.nodes[node].GPUs[r.gpu[i]]
		if need.cause == CauseNone && need.memory > r.state.gpus[i].memory+1 && g.Slots == 0 && g.Fence == "" && !g.aside {
			cause = max(cause, c.request.short())
			break // the others have less
		}
		why := c.request.check(g, need, 1)
		if why == CauseNone {
			if fitting++; fitting == c.request.Count {
				return host
			}
		}
		cause = max(cause, why)
	}
	if fitting > 0 {
		return CauseTogether
	}
	return cause
}

// short is the cause where a GPU has less free than the request needs.
func (r *Request) short() Cause {
	if r.Whole {
		return CauseBusy
	}
	return CauseMemory
}

// best returns the most that a node has of what is missing.
func (inv *Inventory) best(c *shape, node int, cause Cause) (most uint64) {
	r, n := &inv.entries[node], &inv.nodes[node]
	switch cause {
	case CauseHostCPU:
		return uint64(max(0, r.cpu))
	case CauseHostMemory:
		return r.memory
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		why := c.fits(n, i, &c.needs[r.state.kind][i], 1)
		switch {
		case cause == CauseTogether && why == CauseNone:
			most++
		case cause == CauseCores && why == cause:
			most = max(most, uint64(g.FreeCores()))
		case cause == CauseMemory && why == cause:
			most = max(most, g.FreeMemory())
		case cause == CauseSwapFull && why == cause:
			most = max(most, g.FreeSwapMemory())
		}
	}
	return most
}

func amount(n uint64) string {
	return v1alpha1.FormatBytes(n)
}
