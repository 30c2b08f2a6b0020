package alloc

// Adaptive is [Capacity] while what is placed stays, and [Fragmentation] while tenants come and go. Looking ahead
// pays where the future adds to what is there; where departures undo it, what can be used now counts, and holes that
// only a particular later request would fill stay holes.
type Adaptive struct{}

// settledBucket is the bucket of fragmentation that packed clusters with departures best.
const settledBucket = 20

// Name implements Term.
func (Adaptive) Name() string { return "capacity lost, by what tenants do" }

// One bit above the scores tells which of the two it is, so that a choice can be explained.
func (Adaptive) bits() int { return Capacity{}.bits() + 1 }
func (Adaptive) score(o *option) uint64 {
	if o.inv.turnover.restless {
		return 1<<Capacity{}.bits() | Fragmentation{Bucket: settledBucket}.score(o)
	}
	return Capacity{}.score(o)
}

func (Adaptive) describe(score uint64) string {
	if score>>(Capacity{}).bits() != 0 {
		return "tenants come and go: fragmentation caused, in steps"
	}
	return Capacity{}.describe(score)
}

// turnover counts tenants that came and went. Both counts are halved now and then, so that it follows a cluster
// whose use changes.
type turnover struct {
	came, went int
	// restless is whether many of those that came go again. It begins when a quarter did and ends below an eighth:
	// each change makes all keys anew.
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
