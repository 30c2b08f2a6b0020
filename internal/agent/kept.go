package agent

// counted is how many bytes of its GPU a share takes from the others: what it is granted, of which a swap share keeps a part
// there and a suspended one nothing. Agent.mu is held.
func (t *tenant) counted(share int) uint64 {
	s := &t.Shares[share]
	switch {
	case t.Away.off():
		return 0
	case s.Swap:
		return max(s.kept(), s.BeforeKept)
	}
	return t.granted(share)
}

// turn is the room in which a swap share has its turns on its GPU, 0 for any other share. Agent.mu is held.
func (t *tenant) turn(share int) uint64 {
	s := &t.Shares[share]
	if !s.Swap || s.Turn == 0 {
		return s.swapped()
	}
	return s.Turn
}

// turnsOf is the room for turns on a share's GPU, for the first of the swap shares that need all of it, 0 for any other share.
// Agent.mu is held.
func (a *Agent) turnsOf(t *tenant, share int) (room uint64) {
	var first *tenant
	for _, o := range a.sorted() {
		for i, s := range o.Shares {
			if s.UUID == t.Shares[share].UUID && o.turn(i) > room {
				room, first = o.turn(i), o
			}
		}
	}
	if first != t {
		return 0
	}
	return room
}

// giveBack lets others have what the tenant no longer has in use since a limit was lowered,
// and reports whether that is anything. It does not come back to the tenant: whoever is
// granted it has it. Agent.mu is held.
func (t *tenant) giveBack() (anything bool) {
	for i := range t.Shares {
		s := &t.Shares[i]
		if keeps := max(s.kept(), t.keeps(i)); i < len(t.seen.Usage) && keeps < s.BeforeKept {
			s.BeforeKept, anything = keeps, true
		}
		if s.Before <= s.Limit {
			continue
		}
		if holds := max(s.Limit, t.holds(i)); holds < s.Before {
			s.Before, anything = holds, true
		}
	}
	return anything
}

// holds is what of a share is in use as far as that is known: as much as it may have while
// that is not told. Agent.mu is held.
func (t *tenant) holds(share int) uint64 {
	s := t.Shares[share]
	on, told := t.on[s.UUID], share < len(t.seen.Usage)
	switch {
	case on != nil && on.pending:
		return s.Before // of some process it is not known yet whether it is the tenant's
	case on != nil && on.observed != nil && !s.Swap: // of which a part may be where the driver does not show it
		// Pages can tell less than there is, and the driver's figures can be late.
		return max(*on.observed, t.used(share))
	case told && t.used(share) <= s.Limit:
		return s.Limit
	}
	return s.Before
}

// observed is what the driver told last that the tenant has on a GPU, nil if it did not.
// Agent.mu is held.
func (t *tenant) observed(uuid string) *uint64 {
	if on := t.on[uuid]; on != nil {
		return on.observed
	}
	return nil
}

// inUse is how much of a share is in use by whichever of the pages and the driver tells
// of more. Agent.mu is held.
func (t *tenant) inUse(share int) uint64 {
	used := t.used(share)
	if observed := t.observed(t.Shares[share].UUID); observed != nil {
		used = max(used, *observed)
	}
	return used
}
