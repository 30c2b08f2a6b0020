package residency

// Resume goes on with a share that another caller before this one left in a state. It is called before the first decision
// that has the share.
func (l *Law) Resume(now uint64, key string, order Order) {
	if l.records == nil {
		l.records = map[string]*record{}
	}
	r := &record{Order: Order{State: order.State, Give: order.Give}, since: now, began: now, slept: now}
	r.past = l.floor(now, r)
	l.records[key] = r
}

// Take goes on with shares that another Law has decided about until now, because their GPUs have become those of another
// set of shares. Both know the same GPUs. Virtual times of shares that never had a GPU in common cannot be compared: the
// least of each Law counts as the same.
func (l *Law) Take(from *Law, keys []string) {
	shift := 0.0
	if len(l.records) == 0 {
		l.records, l.last = map[string]*record{}, from.last
	} else {
		shift = least(l.records) - least(from.records)
	}
	for _, key := range keys {
		if r := from.records[key]; r != nil {
			r.past += shift
			l.records[key] = r
			delete(from.records, key)
		}
	}
}

// least is the least virtual time of all shares.
func least(records map[string]*record) (found float64) {
	first := true
	for _, r := range records {
		if first || r.past < found {
			first, found = false, r.past
		}
	}
	return found
}
