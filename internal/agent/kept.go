package agent

// counted is how many bytes of its GPU a share takes from the others: its limit or, while
// it has more in use because the limit was lowered below that, what it still has.
// Agent.mu is held.
func (t *tenant) counted(share int) uint64 {
	s := t.Shares[share]
	if s.Before <= s.Limit {
		return s.Limit
	}
	told := share < len(t.seen.Usage)
	observed := t.observed(s.UUID)
	switch {
	case observed != nil:
		// Pages can tell less than there is, and the driver's figures can be late.
		return max(s.Limit, min(s.Before, max(*observed, t.used(share))))
	case told && t.used(share) <= s.Limit:
		return s.Limit
	}
	return s.Before
}

// countedAll is the sum over a tenant's shares. Agent.mu is held.
func (t *tenant) countedAll() (sum uint64) {
	for i := range t.Shares {
		sum += t.counted(i)
	}
	return sum
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
