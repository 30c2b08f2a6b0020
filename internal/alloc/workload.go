package alloc

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// The size of the model behind [Capacity]: this many futures, each with this many
// candidates. More of either changes the packing by less than the seed does.
const (
	futures   = 8
	perFuture = 64
)

const (
	// The model is drawn anew from what has arrived after firstLook arrivals,
	// then at every doubling up to step, then after each step more.
	firstLook = 16
	leastStep = 8192
	// mostShapes bounds how many different requests are known; with more, counts are halved until the rare ones are gone.
	mostShapes = 1024
)

// workload is what the inventory has learned of the requests that arrive, and the
// futures drawn from it. At first it expects requests for one whole GPU with one
// eighth, two eighths … eight eighths of the processors that the cluster has per
// GPU. That assumes only that a GPU is of no use without processors.
type workload struct {
	inv      *Inventory
	shapes   []*shape // in the order of their first arrival
	arrivals int64
	next     int64
	version  uint32
	known    bool // told by Know, so nothing is learned

	draws    [futures][]*shape
	plays    [][futures][]candidate // by kind, drawn when first needed
	played   []uint32               // version of plays
	values   memo
	targets  []target
	wanted   int64
	fragment memo
	// caution is how much fragmentation counts beside the loss of capacity, in thousandths, see Capacity.
	caution int64
}

func newWorkload(inv *Inventory) *workload {
	w := &workload{inv: inv, next: firstLook}
	for part := int64(1); part <= 8; part++ {
		w.shapes = append(w.shapes, &shape{prior: part, arrivals: 1})
	}
	return w
}

// remodel makes the model anew for other kinds of nodes.
func (w *workload) remodel() {
	inv := w.inv
	w.plays, w.played = make([][futures][]candidate, len(inv.kinds.all)), make([]uint32, len(inv.kinds.all))
	cpu, gpus := int64(0), int64(0)
	for i := range inv.kinds.all {
		if k := &inv.kinds.all[i]; len(k.gpus) > 0 {
			cpu += k.allCPU
			gpus += int64(k.nodes) * int64(len(k.gpus))
		}
	}
	for _, c := range w.shapes {
		if c.prior > 0 {
			r := Request{Count: 1, Whole: true, CPU: cpu * c.prior / 8 / max(gpus, 1)}
			c.request, c.cpu = r, clamp(r.CPU)
		} else {
			inv.shapes.by[c.request] = c
		}
		inv.derive(c)
	}
	w.draw()
}

// Observe tells the policy that a request has arrived, whether or not it fits: once for each, however often it is
// searched for. The policy learns of the workload in no other way.
func (inv *Inventory) Observe(r Request) {
	inv.observed++
	inv.turnover.count(1)
	if r.Profile != "" {
		inv.learn(&r)
		return
	}
	w := inv.work
	if w.known || !r.plain() {
		return
	}
	c, err := inv.valid(r)
	if err != nil {
		return
	}
	if c.arrivals == 0 {
		w.shapes = append(w.shapes, c)
	}
	c.arrivals++
	w.arrivals++
	for len(w.shapes) > mostShapes {
		w.halve()
	}
	if w.arrivals < w.next {
		return
	}
	w.next += min(w.next, w.step())
	if w.arrivals >= 2*w.step() {
		w.halve()
	}
	w.draw()
}

// Know tells the policy the whole workload beforehand, as the published baselines
// assume. Nothing is learned afterwards.
func (inv *Inventory) Know(requests []Request) {
	w := inv.work
	w.shapes = w.shapes[:0]
	for _, r := range requests {
		c := inv.shape(r)
		if c.arrivals == 0 {
			w.shapes = append(w.shapes, c)
		}
		c.arrivals++
	}
	w.known = true
	w.draw()
}

// step is after how many arrivals the model is drawn anew. In a large cluster more arrive, and each new model costs as much
// as there are nodes. After two steps all counts are halved, so that the model follows a workload that changes.
func (w *workload) step() int64 { return max(leastStep, int64(len(w.inv.nodes))) }

func (w *workload) halve() {
	w.arrivals /= 2
	w.next = w.arrivals + min(max(w.arrivals, firstLook), w.step())
	w.shapes = slices.DeleteFunc(w.shapes, func(c *shape) bool {
		c.arrivals /= 2
		if c.arrivals == 0 {
			w.inv.shapes.forgotten(c)
		}
		return c.arrivals == 0
	})
}

// draw draws new futures and clears the caches. Indexes follow step by step, see
// index.
func (w *workload) draw() {
	w.version++
	sums := make([]int64, len(w.shapes))
	total := int64(0)
	for i, c := range w.shapes {
		total += c.arrivals
		sums[i] = total
	}
	if total == 0 {
		return
	}
	random := rand.New(rand.NewPCG(uint64(w.version), 0x64697676))
	for k := range w.draws {
		w.draws[k] = w.draws[k][:0]
		for range perFuture {
			at, _ := slices.BinarySearch(sums, 1+random.Int64N(total))
			w.draws[k] = append(w.draws[k], w.shapes[at])
		}
	}
	w.targets, w.wanted = aim(w.shapes, total)
	w.caution = caution(w.shapes)
}

// mostCaution is caution where all requests are for parts of GPUs, and leastCaution less than which makes no difference.
const (
	mostCaution  = 500
	leastCaution = 5
)

// caution grows with the sixth power of the part of the demand that is for parts of GPUs. Whole GPUs fit only where
// nothing else is, which the futures see. Where only parts are asked for, every future fills the gaps that are left with
// the best of many requests, and more often than not those do not come.
func caution(shapes []*shape) int64 {
	all, parts := int64(0), int64(0)
	for _, c := range shapes {
		i := slices.IndexFunc(c.hosts, func(o candidate) bool { return o.count > 0 })
		if i < 0 {
			continue
		}
		o := &c.hosts[i]
		demand := c.arrivals * int64(o.count) * int64(max(o.memory, o.cores))
		all += demand
		if c.group == groupShare {
			parts += demand
		}
	}
	p := parts * 1000 / max(all, 1)
	square := p * p / 1000
	if n := mostCaution * square / 1000 * square / 1000 * square / 1000; n >= leastCaution {
		return n
	}
	return 0
}

// play returns the futures of one kind of node: the candidates that it can host,
// the most valuable first, and equal ones in the order of the draw.
func (w *workload) play(kind int32) *[futures][]candidate {
	p := &w.plays[kind]
	if w.played[kind] == w.version {
		return p
	}
	w.played[kind] = w.version
	for k := range p {
		p[k] = p[k][:0]
		for _, c := range w.draws[k] {
			if o := c.hosts[kind]; o.count > 0 {
				p[k] = append(p[k], o)
			}
		}
		slices.SortStableFunc(p[k], func(a, b candidate) int { return cmp.Compare(b.value, a.value) })
	}
	return p
}

// worth returns the GPU capacity that a node in this state hosts in the futures,
// in thousandths of a GPU, summed over the futures.
func (w *workload) worth(s *state) int32 {
	if s.gpus[0].free() == 0 {
		return 0
	}
	m := w.values.slot(w, s)
	if m.version == w.version && m.state == *s {
		return int32(m.value)
	}
	sum := int32(0)
	for _, candidates := range w.play(s.kind) {
		sum += s.host(candidates)
	}
	*m = remembered{state: *s, version: w.version, value: int64(sum)}
	return sum
}

// host places the candidates that fit, in their order, each on the fullest GPUs,
// and returns the sum of their values.
func (s *state) host(candidates []candidate) int32 {
	cpu, memory, gpus := s.cpu, s.memory, s.gpus
	left := MaxGPUs
	value := int32(0)
	for i := range candidates {
		o := &candidates[i]
		if o.memory > gpus[0].memory || o.cpu > cpu || o.hostMemory > memory {
			continue
		}
		for left > 0 && gpus[left-1] == (cell{}) {
			left--
		}
		if !fill(&gpus, left, o) {
			continue
		}
		cpu, memory, value = cpu-o.cpu, memory-o.hostMemory, value+o.value
		if gpus[0].free() == 0 {
			break
		}
	}
	return value
}

// fill places a candidate on the fullest of the first n GPUs on which it fits.
func fill(gpus *[MaxGPUs]cell, n int, o *candidate) bool {
	var at [MaxGPUs]int8
	found := 0
	for i := n - 1; i >= 0 && found < int(o.count); i-- {
		if gpus[i].takes(o.memory, o.cores) {
			at[found] = int8(i)
			found++
		}
	}
	if found < int(o.count) {
		return false
	}
	for _, i := range at[:found] {
		left := cell{gpus[i].memory - o.memory, gpus[i].cores - o.cores}
		for ; int(i)+1 < n && left.less(gpus[i+1]); i++ {
			gpus[i] = gpus[i+1]
		}
		gpus[i] = left
	}
	return true
}

// Capacity prefers the option that costs the least of the GPU capacity that the
// node is expected to host in future. A node's worth is what it hosts of the
// candidates in several futures, which are drawn from what has arrived. Where most
// requests are for parts of GPUs, what an option makes useless to the workload counts too.
type Capacity struct{}

// capacityZero is added to the loss, in thousandths of a GPU, to keep it positive: a greedy
// future sometimes hosts more in a fuller state.
const capacityZero = 1 << 13

func (Capacity) bits() int { return 16 }
func (Capacity) score(o *option) uint64 {
	w := o.inv.work
	r := &o.inv.entries[o.node]
	if r.version != w.version {
		r.worth, r.version = w.worth(&r.state), w.version
	}
	loss := int64(r.worth-w.worth(o.after)) + capacityZero*futures
	if w.caution > 0 {
		loss += (w.measure(o.after) - w.measure(o.before)) * futures * w.caution / (1000 * max(w.wanted, 1))
	}
	return uint64(max(0, loss) / futures)
}
