package alloc

// Adaptive is [Capacity] while tenants stay, and [Fragmentation] while they come and go. Planning for future requests
// helps while tenants only arrive. Where tenants also leave, the plan is undone, and it is better to keep free capacity
// usable now.
type Adaptive struct{}

// settledBucket is the bucket of [Fragmentation] that packed clusters with departures best.
const settledBucket = 20

func (Adaptive) bits() int { return max(Capacity{}.bits(), Fragmentation{}.bits()) }
func (Adaptive) score(o *option) uint64 {
	if o.inv.turnover.restless {
		return Fragmentation{Bucket: settledBucket}.score(o)
	}
	return Capacity{}.score(o)
}

// turnover counts requests that came and tenants that went. Both counts are halved at intervals, so recent ones count most.
type turnover struct {
	came, went int
	// restless tells that many tenants leave: it becomes true when a quarter of those that came have gone, and false
	// below an eighth. The gap keeps it from changing often, as each change makes all indexes be rebuilt.
	restless bool
}

const turnoverMemory = 4096

func (t *turnover) count(by int32) {
	if by > 0 {
		t.came++
	} else {
		t.went++
	}
	switch {
	case !t.restless && t.came+t.went > turnoverMemory/8 && t.went*4 >= t.came:
		t.restless = true
	case t.restless && t.went*8 < t.came:
		t.restless = false
	}
	if t.came+t.went >= turnoverMemory {
		t.came, t.went = t.came/2, t.went/2
	}
}
