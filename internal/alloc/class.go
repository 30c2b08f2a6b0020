package alloc

import "math"

// kind is what nodes have in common that are alike when nobody is on them.
type kind struct {
	nodes       int
	gpus        []GPU // of one of them, without names and tenants
	cpu, memory int32
	hostCPU     int64
	hostMemory  uint64
}

// need is what a class takes of one GPU of a kind: the exact limit, and for
// comparisons thousandths rounded up. cause is why it can never have it.
type need struct {
	limit         uint64
	memory, cores uint16
	cause         Cause
}

// class is a request as the policies see it, with what it would take of each
// kind of node.
type class struct {
	request     Request
	group       group
	cpu, memory int32
	needs       [][]need
	least       []uint16 // by kind, the least memory that any GPU of it must have
	hosts       []offer  // by kind; zero value when it cannot be hosted
	arrivals    int64
	index       *index
}

// nothing is more memory than a GPU can have, in thousandths.
const nothing = 1002

// newClass works out what a request takes everywhere.
func (inv *Inventory) newClass(r Request) *class {
	c := &class{request: r, cpu: clamp(r.CPU), memory: clamp(int64((r.HostMemory + 1<<20 - 1) >> 20))}
	c.group = r.group(r.Whole)
	for k := range inv.kinds {
		kind := &inv.kinds[k]
		needs, least := make([]need, len(kind.gpus)), uint16(nothing)
		for i := range kind.gpus {
			needs[i] = needOf(&r, &kind.gpus[i])
			if r.Count == 1 && needs[i].memory >= 1000 {
				c.group = groupOne
			}
			if needs[i].cause == CauseNone {
				least = min(least, needs[i].memory)
			}
		}
		c.needs, c.least = append(c.needs, needs), append(c.least, least)
	}
	inv.offers(c)
	return c
}

func needOf(r *Request, g *GPU) need {
	n := need{cause: impossible(r, g)}
	if g.Capacity == 0 || len(g.Profiles) > 0 {
		return n
	}
	n.limit = r.Memory.Of(g.Capacity)
	n.cores = uint16(r.Cores * 10)
	if r.Whole {
		n.limit, n.cores = g.Capacity, 1000
	}
	if n.limit <= g.Capacity {
		n.memory = uint16(1000 - thousandths(g.Capacity-n.limit, g.Capacity))
	}
	if r.Overcommit {
		n.memory = 0
	}
	if r.OvercommitCores {
		n.cores = 0
	}
	return n
}

// offer is a class as a node of one kind may be offered it in future: what it
// takes of the host and of each of count GPUs, and what hosting it is worth in
// thousandths of a GPU.
type offer struct {
	cpu, hostMemory int32
	memory, cores   uint16
	count           int16
	value           int32
}

// rarePart is how much more than its GPUs a request is worth that no node could
// host: one fourth. Between 0.15 and 0.3 the traces of docs/replay.md differ
// by less than their seeds do.
const rarePart = 4

// offers fills in what hosting the class is worth on each kind. A class that
// few nodes can host, because of its model or number of GPUs, is worth more:
// what is kept free for it elsewhere is of no use to it.
func (inv *Inventory) offers(c *class) {
	c.hosts = make([]offer, len(inv.kinds))
	all, able := 0, 0
	for k := range inv.kinds {
		kind := &inv.kinds[k]
		gpus := kind.nodes * len(kind.gpus)
		all += gpus
		o := c.offer(kind, c.needs[k])
		if o.count == 0 {
			continue
		}
		able += gpus
		if c.cpu <= kind.cpu && c.memory <= kind.memory {
			c.hosts[k] = o
		}
	}
	for k := range c.hosts {
		o := &c.hosts[k]
		plain := int(o.count) * int(max(o.memory, o.cores))
		o.value = int32(plain + plain*(all-able)/(rarePart*max(all, 1)))
	}
}

// offer is the class on an empty node, by its GPUs alone: the largest need
// among them, and count 0 when too few can serve.
func (c *class) offer(k *kind, needs []need) offer {
	o := offer{cpu: c.cpu, hostMemory: c.memory, count: int16(c.request.Count)}
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

// noKey is the key of a node that a request does not fit on.
const noKey = math.MaxUint64
