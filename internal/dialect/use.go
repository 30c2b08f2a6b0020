package dialect

import (
	"cmp"
	"hash/fnv"
	"math/bits"
	"regexp"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// million is one GPU, as [Use] has parts of one.
const million = 1_000_000

// slot is what the smallest share has of the shares that a GPU has room for: a GPU full of them is a GPU.
const slot = million / v1alpha1.SlotsPerGPU

// Use is what claims take, summed over their GPUs. Sums can be taken apart again by Minus.
type Use struct {
	// GPUs counts a GPU once for every share of it.
	GPUs uint64
	// Whole counts the GPUs of which a claim takes all the memory.
	Whole uint64
	// Memory is in bytes.
	Memory uint64
	// Cores is in percent of one GPU's time; a whole GPU is 100.
	Cores uint64
	// Part is the part of a GPU's memory in millionths, and Portion the largest of the parts of memory, of time and of the
	// shares that fit on a GPU.
	Part, Portion uint64
	// Unsized counts GPUs that are taken whole and whose size is not known. Uncounted counts requests for all GPUs of a
	// node.
	Unsized, Uncounted uint64
	// Instances counts MIG instances, which GPUs has too.
	Instances uint64
	// Cards counts RDMA cards, one once for every share of it.
	Cards uint64
}

// Plus returns the sum of both.
func (u Use) Plus(o Use) Use {
	return Use{u.GPUs + o.GPUs, u.Whole + o.Whole, u.Memory + o.Memory, u.Cores + o.Cores, u.Part + o.Part, u.Portion + o.Portion, u.Unsized + o.Unsized, u.Uncounted + o.Uncounted, u.Instances + o.Instances, u.Cards + o.Cards}
}

// Minus returns what is left of a sum without one of its terms.
func (u Use) Minus(o Use) Use {
	return Use{u.GPUs - o.GPUs, u.Whole - o.Whole, u.Memory - o.Memory, u.Cores - o.Cores, u.Part - o.Part, u.Portion - o.Portion, u.Unsized - o.Unsized, u.Uncounted - o.Uncounted, u.Instances - o.Instances, u.Cards - o.Cards}
}

// Larger returns the maximum of both, field by field.
func (u Use) Larger(o Use) Use {
	return Use{
		max(u.GPUs, o.GPUs), max(u.Whole, o.Whole), max(u.Memory, o.Memory), max(u.Cores, o.Cores),
		max(u.Part, o.Part), max(u.Portion, o.Portion), max(u.Unsized, o.Unsized), max(u.Uncounted, o.Uncounted), max(u.Instances, o.Instances), max(u.Cards, o.Cards),
	}
}

// times returns n times what one GPU takes.
func (u Use) times(n uint64) Use {
	return Use{n * u.GPUs, n * u.Whole, n * u.Memory, n * u.Cores, n * u.Part, n * u.Portion, n * u.Unsized, u.Uncounted, n * u.Instances, n * u.Cards}
}

// Counted is what counting needs to know of one claim. It is small, because it is kept of every claim that waits.
type Counted struct {
	allocated bool
	asked     [][]way
	given     []given
}

// way is a request, or one alternative of it.
type way struct {
	class   string
	count   uint64
	least   uint64        // size of GPU that it takes, where it asks for a part; otherwise 0
	memory  uint64        // of each GPU; 0 is all of it
	part    v1alpha1.Part // of each GPU in place of memory, In is 0 where there is none
	cores   uint64
	noCores bool // it leaves cores out
	all     bool // all GPUs of a node
}

// given is one device of an allocation.
type given struct {
	pool, device string
	whole, card  bool
	memory       uint64 // 0 where the allocation does not say
	cores        uint64
}

// CountedOf reads a claim: what was allocated to it, or before that what it asks, of whatever driver.
func CountedOf(spec *resourcev1.ResourceClaimSpec, allocation *resourcev1.AllocationResult) Counted {
	if allocation != nil {
		return Counted{allocated: true, given: givenBy(spec, allocation)}
	}
	var c Counted
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		var ways []way
		if e := r.Exactly; e != nil && !isAdmins(e) {
			ways = append(ways, wayOf(e.DeviceClassName, e.AllocationMode, e.Count, e.Selectors, e.Capacity))
		}
		for _, w := range r.FirstAvailable {
			ways = append(ways, wayOf(w.DeviceClassName, w.AllocationMode, w.Count, w.Selectors, w.Capacity))
		}
		if len(ways) > 0 {
			c.asked = append(c.asked, ways)
		}
	}
	c.asked = gathered(c.asked)
	return c
}

// None reports whether the claim can never count: nothing of it is ours, and nothing waits.
func (c Counted) None() bool { return len(c.asked) == 0 && len(c.given) == 0 }

// Allocation tells allocations apart: it is 0 for a claim that waits, and otherwise hardly ever equal for two.
func (c Counted) Allocation() uint64 {
	if !c.allocated {
		return 0
	}
	sum := fnv.New64a()
	for _, g := range c.given {
		_, _ = sum.Write([]byte(g.pool + "/" + g.device + "/" + strconv.FormatUint(g.memory, 10) + "/" + strconv.FormatUint(g.cores, 10) + "/" + strconv.FormatBool(g.whole) + "\n"))
	}
	return max(sum.Sum64(), 1)
}

func wayOf(class string, mode resourcev1.DeviceAllocationMode, count int64, selectors []resourcev1.DeviceSelector, capacity *resourcev1.CapacityRequirements) way {
	w := way{class: class, count: uint64(min(max(count, 1), MaxGPUs)), least: leastSize(selectors), noCores: true, all: mode == resourcev1.DeviceAllocationModeAll}
	if capacity == nil {
		return w
	}
	w.memory = limitOf(capacity.Requests)
	if _, said := capacity.Requests[v1alpha1.CapacityCores]; said {
		w.noCores, w.cores = false, amount(capacity.Requests, v1alpha1.CapacityCores)
	}
	return w
}

// sizesIn finds the quantities that an expression of a selector names.
var sizesIn = regexp.MustCompile(`quantity\("([0-9]{1,18})"\)`)

// leastSize returns the smallest size that a request for a part of a GPU allows: one of the selectors that templates
// have binds it. It is 0 where none does.
func leastSize(all []resourcev1.DeviceSelector) uint64 {
	for _, s := range all {
		if s.CEL == nil {
			continue
		}
		var sizes []uint64
		for _, found := range sizesIn.FindAllStringSubmatch(s.CEL.Expression, 3) {
			n, _ := strconv.ParseUint(found[1], 10, 64)
			sizes = append(sizes, n)
		}
		if len(sizes) > 0 && s.CEL.Expression == (span{sizes[0], sizes[len(sizes)-1]}).selector() {
			return sizes[0]
		}
	}
	return 0
}

func givenBy(spec *resourcev1.ResourceClaimSpec, allocation *resourcev1.AllocationResult) []given {
	var all []given
	for i := range allocation.Devices.Results {
		r := &allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		if v1alpha1.IsNICClass(classOf(spec, r.Request)) {
			all = append(all, given{pool: r.Pool, device: r.Device, card: true})
			continue
		}
		all = append(all, given{
			pool: r.Pool, device: r.Device,
			whole:  r.ShareID == nil || v1alpha1.IsWholeClass(classOf(spec, r.Request)),
			memory: limitOf(r.ConsumedCapacity),
			cores:  amount(r.ConsumedCapacity, v1alpha1.CapacityCores),
		})
	}
	return all
}

// classOf returns the class of a request, or of one alternative, by the name that results give it.
func classOf(spec *resourcev1.ResourceClaimSpec, request string) string {
	for _, a := range requestsOf(spec) {
		if a.name == request {
			return a.class
		}
	}
	return ""
}

// Use returns what the claim takes of Divvy's GPUs: what was allocated to it, or before that the most that it can come
// to with the GPUs that are known. Settled is true once other GPUs cannot change it.
func (c Counted) Use(sizes *Sizes) (sum Use, settled bool) {
	settled = c.allocated
	for _, g := range c.given {
		one, sized := g.use(sizes)
		settled = settled && sized
		sum = sum.Plus(one)
	}
	for _, ways := range c.asked {
		var most Use
		for i := range ways {
			most = most.Larger(ways[i].use(sizes))
		}
		sum = sum.Plus(most)
	}
	sum.Memory = min(sum.Memory, mostCounted)
	return sum, settled
}

// mostCounted bounds what one claim is counted for, so that sums do not overflow: 64 TiB.
const mostCounted = 1 << 46

// use is what a device counts for. If its size is not known, it counts as the largest GPU that is.
func (g given) use(sizes *Sizes) (one Use, sized bool) {
	if g.card {
		return Use{Cards: 1}, true
	}
	size := sizes.of(g.pool, g.device)
	if isInstance(g.device) {
		return instanceOf(size), size > 0
	}
	if sized = size > 0; !sized {
		size = max(sizes.largest(), g.memory)
	}
	if g.memory == 0 {
		one = exclusive(size)
		if !g.whole {
			one.Cores = g.cores
		}
		return one, sized
	}
	one = Use{GPUs: 1, Memory: g.memory, Cores: g.cores}
	if g.whole {
		one.Cores = v1alpha1.MaxCores
	}
	if one.Part = million; sized {
		one.Part = part(g.memory, size)
	}
	return one.rounded(g.whole), sized
}

// use is the most that a way can come to: as a share and as a whole GPU, where its class selects such devices.
func (w way) use(sizes *Sizes) Use {
	var one Use
	if v1alpha1.IsNICClass(w.class) {
		return Use{Cards: w.count}
	}
	forms := sizes.forms(w.class)
	if forms.Instances {
		one = instanceOf(w.memory)
	}
	if forms.Shared {
		one = one.Larger(w.share(sizes))
	}
	if forms.Whole {
		one = one.Larger(exclusive(sizes.largest()))
	}
	if one == (Use{}) {
		return one
	}
	one = one.times(w.count)
	if w.all {
		one.Uncounted = 1
	}
	return one
}

func (w way) share(sizes *Sizes) Use {
	cores := w.cores
	if w.noCores {
		cores = sizes.cores
	}
	if w.part.In > 0 {
		w.least = sizes.largest()
		w.memory = v1alpha1.PartOf(w.part.Of, w.part.In).Of(w.least)
	}
	if w.memory == 0 {
		one := exclusive(sizes.largest())
		one.Cores = cores
		return one
	}
	one := Use{GPUs: 1, Memory: w.memory, Cores: cores, Part: million}
	if size := cmp.Or(w.least, sizes.least(w.memory)); size > 0 {
		one.Part = part(w.memory, size)
	}
	return one.rounded(false)
}

// exclusive is all of a GPU of that size, which is 0 where it is not known.
func exclusive(size uint64) Use {
	one := Use{GPUs: 1, Whole: 1, Memory: size, Cores: v1alpha1.MaxCores, Part: million, Portion: million}
	if size == 0 {
		one.Unsized = 1
	}
	return one
}

// rounded fills in what follows from the parts of memory and time.
func (u Use) rounded(whole bool) Use {
	if u.Part == million || whole {
		u.Whole, u.Part = 1, million
	}
	u.Portion = max(u.Part, min(u.Cores*million/v1alpha1.MaxCores, million), slot)
	return u
}

// part returns how many millionths of a size an amount is.
func part(n, size uint64) uint64 {
	if n >= size {
		return million
	}
	high, low := bits.Mul64(n, million)
	quotient, _ := bits.Div64(high, low, size)
	return quotient
}

// UseOf returns what a claim takes of Divvy's GPUs, see [Counted.Use].
func UseOf(spec *resourcev1.ResourceClaimSpec, allocation *resourcev1.AllocationResult, sizes *Sizes) Use {
	use, _ := CountedOf(spec, allocation).Use(sizes)
	return use
}

// limitOf is the limit of a share with these amounts. That of a swap share counts, and not what it keeps on the GPU: who may have so
// much memory would have any amount otherwise.
func limitOf(amounts map[resourcev1.QualifiedName]resource.Quantity) uint64 {
	if swap := amount(amounts, v1alpha1.CapacitySwapMemory); swap > 0 {
		return swap
	}
	return amount(amounts, v1alpha1.CapacityMemory)
}

// amount returns a whole quantity, at most 1<<50 so that sums do not overflow, or 0 for any other quantity.
func amount(from map[resourcev1.QualifiedName]resource.Quantity, name resourcev1.QualifiedName) uint64 {
	n, ok := WholeNumber(from[name])
	if !ok || n < 0 {
		return 0
	}
	return uint64(min(n, 1<<50))
}
