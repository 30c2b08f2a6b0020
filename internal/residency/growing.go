package residency

// more tells whether there is more on some GPU than before.
func more(bytes, before []uint64) bool {
	for g, n := range bytes {
		if g >= len(before) && n > 0 || g < len(before) && n > before[g] {
			return true
		}
	}
	return false
}

// shrink has shares leave until what is there fits, because one of them has taken more memory or there is less room. Of those
// that work, who has taken more leaves first: nobody loses a turn by what another one takes.
func (l *Law) shrink(now uint64, present []*record) {
	short := make([]uint64, len(l.gpus))
	over := false
	for g, gpu := range l.gpus {
		if used := l.used(present, g); used > gpu.Room {
			short[g], over = used-gpu.Room, true
		}
	}
	if !over {
		return
	}
	var candidates []*record
	for _, r := range present {
		if r.State == Resident || r.State == Entering {
			candidates = append(candidates, r)
		}
	}
	if chosen := cheapest(now, candidates, short); chosen != nil {
		l.leave(now, chosen, present, nil)
	}
}

// used are the bytes of one GPU that belong to shares that stay there. Those that leave already make the room that is short.
func (l *Law) used(present []*record, g int) (used uint64) {
	for _, r := range present {
		if r.State == Resident || r.State == Entering {
			used += r.Bytes[g]
		}
	}
	return used
}
