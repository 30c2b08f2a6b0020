package alloc

import (
	"math"
	"unsafe"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// need is what a shape takes of one GPU of a kind. limit is exact; memory and
// cores are in thousandths, rounded up, for comparisons. cause says why the GPU
// can never serve the shape.
type need struct {
	limit         uint64
	memory, cores uint16
	cause         Cause
	rank          uint8        // how little the GPU is wanted, see rank
	mix           *layouts.Mix // of a request for MIG instances, and profile the position of its profile there
	profile       int
}

// shape stands for all equal requests. It keeps what they would take of each kind
// of node, and the index of the nodes that suit them best.
type shape struct {
	request     Request
	group       group
	cpu, memory int32
	needs       [][]need
	least       []uint16    // by kind, the least memory that one of its GPUs must have free
	rank        []uint8     // by kind, how little its nodes are wanted by a request without GPUs
	hosts       []candidate // by kind; the zero value where the kind cannot host it
	arrivals    int64
	// prior is the part of the processors of a GPU, in eighths, that a shape asks for which the workload expects before
	// it knows better; 0 for others.
	prior int64
	index *index
	// bytes is what the index takes. The others are for the list of shapes.
	bytes        int
	newer, older *shape
	listed       bool
}

// size is what a shape takes without its index, in bytes.
func (c *shape) size() int {
	size := 512 + len(c.request.Models) + len(c.request.AvoidModels) + len(c.request.Classes)
	for _, needs := range c.needs {
		size += 96 + len(needs)*int(unsafe.Sizeof(need{}))
	}
	return size
}

// nothing is more memory than a GPU can have, in thousandths.
const nothing = 1002

// newShape computes what a request takes of every kind of node.
func (inv *Inventory) newShape(r Request) *shape {
	c := &shape{request: r, cpu: clamp(r.CPU), memory: clamp(int64((r.HostMemory + 1<<20 - 1) >> 20))}
	inv.derive(c)
	return c
}

// derive computes everything of a shape that depends on the kinds of nodes.
func (inv *Inventory) derive(c *shape) {
	r := c.request
	c.needs, c.least, c.rank = nil, nil, nil
	c.group = r.group(r.Whole)
	for k := range inv.kinds.all {
		kind := &inv.kinds.all[k]
		needs, least := make([]need, len(kind.gpus)), uint16(nothing)
		for i := range kind.gpus {
			needs[i] = needOf(&r, &kind.gpus[i])
			needs[i].rank = inv.kinds.rank(r.Prefer, &kind.gpus[i])
			if r.Profile != "" && needs[i].cause == CauseNone {
				needs[i].mix, needs[i].profile = kind.mixes[i], kind.gpus[i].profile(r.Profile)
			}
			if r.Count == 1 && needs[i].memory >= 1000 {
				c.group = groupOne
			}
			if needs[i].cause == CauseNone {
				least = min(least, needs[i].memory)
			}
		}
		c.needs, c.least, c.rank = append(c.needs, needs), append(c.least, least), append(c.rank, inv.kinds.hostRank(r.Prefer, kind))
	}
	inv.fillHosts(c)
}

func needOf(r *Request, g *GPU) need {
	n := need{cause: impossible(r, g)}
	if g.Capacity == 0 || len(g.Profiles) > 0 {
		return n
	}
	n.limit = r.Memory.Of(g.Capacity)
	n.cores = uint16(r.coresOf(g) * 10)
	if r.Whole {
		n.limit = g.Capacity
	}
	if kept, _ := r.parts(n.limit); kept <= g.Capacity {
		n.memory = uint16(1000 - thousandths(g.Capacity-kept, g.Capacity))
	}
	if r.Overcommit && !r.Swap {
		n.memory = 0
	}
	if r.OvercommitCores {
		n.cores = 0
	}
	return n
}

// candidate is a shape that a node of one kind may be asked to host in future:
// what it takes of the host and of each of count GPUs, and what hosting it is
// worth in thousandths of a GPU.
type candidate struct {
	cpu, hostMemory int32
	memory, cores   uint16
	count           int16
	value           int32
}

// rarePart bounds how much more than its GPUs a rare request is worth: at most
// one fourth. Any part between 0.15 and 0.3 packs the traces of docs/replay.md
// equally well, within the difference between seeds.
//
// wishPart is the same for requests that accept only some models: a twentieth. Any part between 0.01 and 0.1 does as well.
// With a fourth, GPUs of rare models wait for such requests while others are refused; with none, they are filled by others.
const (
	rarePart = 4
	wishPart = 20
)

// fillHosts computes what hosting the shape is worth on each kind. A shape that
// few nodes can host, because of its model or number of GPUs, is worth more, as
// room on other nodes does not help it.
func (inv *Inventory) fillHosts(c *shape) {
	c.hosts = make([]candidate, len(inv.kinds.all))
	all, able := 0, 0
	for k := range inv.kinds.all {
		kind := &inv.kinds.all[k]
		gpus := kind.nodes * len(kind.gpus)
		all += gpus
		o := c.candidate(kind, c.needs[k])
		if o.count == 0 {
			continue
		}
		able += gpus
		if c.cpu <= kind.cpu && c.memory <= kind.memory {
			c.hosts[k] = o
		}
	}
	part := rarePart
	if c.request.Models != "" {
		part = wishPart
	}
	for k := range c.hosts {
		o := &c.hosts[k]
		plain := int(o.count) * int(max(o.memory, o.cores))
		o.value = int32(plain + plain*(all-able)/(part*max(all, 1)))
	}
}

// candidate describes the shape on an empty node by its GPUs alone: the largest
// need among them. Its count is 0 when too few GPUs can serve the shape.
func (c *shape) candidate(k *kind, needs []need) candidate {
	o := candidate{cpu: c.cpu, hostMemory: c.memory, count: int16(c.request.Count)}
	able := 0
	for i := range needs {
		if needs[i].cause == CauseNone && len(k.gpus[i].Profiles) == 0 {
			able++
			o.memory, o.cores = max(o.memory, needs[i].memory), max(o.cores, needs[i].cores)
		}
	}
	if c.request.Same && o.count > 1 {
		o.memory, o.cores, o.count = min(1000, o.memory*uint16(o.count)), min(1000, o.cores*uint16(o.count)), 1
	}
	if able < int(o.count) || o.memory == 0 && o.cores == 0 {
		o.count = 0
	}
	return o
}

// noKey is the key of a node on which a request does not fit.
const noKey = math.MaxUint64
