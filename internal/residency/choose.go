package residency

import (
	"cmp"
	"math"
	"slices"
)

// tried is how many shares are tried in all their combinations when some have to leave. Of more, single ones are taken
// in order and the superfluous ones are let stay.
const tried = 12

// span is how long so many bytes take to move on each GPU, ns: that of the slowest.
func (l *Law) span(bytes []uint64) (longest uint64) {
	for g, n := range bytes {
		if rate := l.gpus[g].Rate; rate > 0 {
			longest = max(longest, uint64(float64(n)/float64(rate)*second))
		}
	}
	return longest
}

// lacks is what a share lacks of its memory on each GPU.
func (l *Law) lacks(r *record) []uint64 {
	bytes := make([]uint64, len(l.gpus))
	for g := range bytes {
		bytes[g] = r.Bytes[g] - min(r.Bytes[g], r.There[g])
	}
	return bytes
}

// change is how long the memory moves when one share makes room for another, ns: what enters, and as much that leaves.
func (l *Law) change(enters *record) uint64 { return 2 * l.span(l.lacks(enters)) }

// turn is how long a turn is that ends with a change of this length.
func turn(change uint64) uint64 {
	return min(max(uint64(float64(change)/Moving), Shortest), Longest)
}

// leavesAt is when a share may leave for another, as far as time alone decides: at most now if it may.
func (l *Law) leavesAt(now uint64, r, enters *record) uint64 {
	change := l.change(enters)
	length := turn(change)
	over := r.since + length
	first := r.Online && !enters.Online
	if first {
		over = r.since + InARow*length
	}
	idle := uint64(math.MaxUint64)
	if !r.Works {
		grace := max(rest, l.span(r.Bytes))
		if first {
			grace = Longest
		}
		from := max(r.worked, r.since)
		idle = max(from+rest, min(from+grace, over))
	}
	if !first && !enters.displaced && l.atOnce(r, enters, change) {
		return now
	}
	if first {
		return min(idle, over)
	}
	owed := now
	if enters.past > r.past {
		owed += uint64((enters.past - r.past) * r.weight())
	}
	return min(idle, max(over, min(owed, r.since+InARow*length)))
}

// atOnce tells whether a share that has rested need not wait for the end of another's turn.
func (l *Law) atOnce(r, enters *record, change uint64) bool {
	if enters.Online && !r.Online {
		return true
	}
	return enters.past <= r.past && enters.asked-min(enters.asked, enters.slept) >= change
}

// leavers are the shares that leave for another, which lacks so many bytes, or nil if it has to wait. It notes until
// when.
func (l *Law) leavers(now uint64, enters *record, present []*record, lacks []uint64, again func(uint64)) []*record {
	type candidate struct {
		*record
		at uint64
	}
	var all []candidate
	for _, r := range present {
		if r.State == Resident {
			all = append(all, candidate{r, max(now, l.leavesAt(now, r, enters))})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	var may []*record
	for i, c := range all {
		may = append(may, c.record)
		if i+1 < len(all) && all[i+1].at == c.at || !covers(may, lacks) {
			continue
		}
		if c.at <= now {
			return cheapest(now, may, lacks)
		}
		enters.Until = c.at
		for _, r := range may {
			if r.Until == 0 || r.Until > c.at {
				r.Until = c.at
			}
		}
		again(c.at)
		return nil
	}
	return nil
}

// covers tells whether shares have so many bytes.
func covers(leavers []*record, short []uint64) bool {
	for g, n := range short {
		var sum uint64
		for _, r := range leavers {
			sum += r.Bytes[g]
		}
		if sum < n {
			return false
		}
	}
	return true
}

// price is what is lost when shares leave: online ones first, then work, then the turn of one that did not just take more, then
// the bytes that move.
type price struct {
	online, working, steady int
	bytes                   uint64
	count                   int
}

func (p price) compare(q price) int {
	return cmp.Or(cmp.Compare(p.online, q.online), cmp.Compare(p.working, q.working), cmp.Compare(p.steady, q.steady),
		cmp.Compare(p.bytes, q.bytes), cmp.Compare(p.count, q.count))
}

func priceOf(now uint64, leavers []*record) (p price) {
	for _, r := range leavers {
		if r.Online {
			p.online++
		}
		if r.wants(now) {
			p.working++
		}
		if !r.grew {
			p.steady = 1
		}
		for _, n := range r.There {
			p.bytes += n
		}
		p.count++
	}
	return p
}

// cheapest are those of the candidates whose leaving costs least and makes up for what is short, in the order in which
// they give. It is nil if all together do not.
func cheapest(now uint64, candidates []*record, short []uint64) []*record {
	if !covers(candidates, short) {
		return nil
	}
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, func(a, b *record) int {
		return cmp.Or(priceOf(now, []*record{a}).compare(priceOf(now, []*record{b})), cmp.Compare(a.Key, b.Key))
	})
	if len(candidates) > tried {
		return spared(candidates, short)
	}
	var best, some []*record
	least := price{online: math.MaxInt}
	for set := 1; set < 1<<len(candidates); set++ {
		some = some[:0]
		for i, r := range candidates {
			if set&(1<<i) != 0 {
				some = append(some, r)
			}
		}
		if p := priceOf(now, some); p.compare(least) < 0 && covers(some, short) {
			best, least = slices.Clone(some), p
		}
	}
	return best
}

// spared takes candidates in their order until they make up for what is short, and lets those stay, the dearest first,
// without whom the others still do.
func spared(candidates []*record, short []uint64) []*record {
	n := 1
	for !covers(candidates[:n], short) {
		n++
	}
	chosen := slices.Clone(candidates[:n])
	for i := len(chosen) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(chosen), i, i+1)
		if len(without) > 0 && covers(without, short) {
			chosen = without
		}
	}
	return chosen
}
