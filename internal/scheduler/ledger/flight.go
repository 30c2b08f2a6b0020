package ledger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// ErrTaken marks a place that cannot be reserved any more.
var ErrTaken = errors.New("place is taken")

// flight is what was reserved for a claim that is not written yet.
type flight struct {
	given   alloc.Assignment
	devices []deviceID
}

// Reserve notes what a claim, by "namespace/name", is about to be given, as the claim will have it: what the assignment has
// of the host is not counted. The note ends with [Ledger.Unreserve], or when the claim comes with an allocation. The same
// may be reserved again. The error is [ErrTaken], and nothing is reserved then.
func (l *Ledger) Reserve(key string, a alloc.Assignment) error {
	l.flush()
	f, devices, err := l.claimed(a)
	if err != nil {
		return err
	}
	if before, ok := l.flights[key]; ok {
		if sameAssignment(before.given, f.given) {
			return nil
		}
		return fmt.Errorf("%w: claim %s has another place already", ErrTaken, key)
	}
	if l.claims[key] != nil {
		return fmt.Errorf("%w: claim %s is allocated already", ErrTaken, key)
	}
	for i := range a.Shares {
		if why := l.closed(a.Name, &a.Shares[i], devices[i]); why != "" {
			return fmt.Errorf("%w: %s of node %s %s", ErrTaken, a.Shares[i].Called(), a.Name, why)
		}
	}
	if err := l.inv.Reserve(f.given); err != nil {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	l.flights[key] = f
	for _, id := range f.devices {
		l.count(id, 1)
	}
	return nil
}

// Unreserve takes back what was reserved for a claim, as if it had never been. It reports whether something was.
func (l *Ledger) Unreserve(key string) bool {
	f, ok := l.flights[key]
	if !ok {
		return false
	}
	delete(l.flights, key)
	l.inv.Unreserve(f.given)
	l.noteFences(f.given.Name)
	for _, id := range f.devices {
		l.count(id, -1)
	}
	return true
}

// claimed is an assignment with the amounts that a claim will have consumed, and the device of each share.
func (l *Ledger) claimed(a alloc.Assignment) (f flight, devices []*device, err error) {
	a.CPU, a.Memory, a.Shares = 0, 0, slices.Clone(a.Shares)
	for i := range a.Shares {
		s := &a.Shares[i]
		d := l.device(a.Name, s)
		if d == nil {
			return f, nil, fmt.Errorf("%w: node %s has no device for %s", ErrTaken, a.Name, s.Called())
		}
		devices = append(devices, d)
		whole := s.Whole
		*s = alloc.Share{UUID: s.UUID, GPU: s.GPU, Limit: s.Limit, SwapMemory: s.SwapMemory, Cores: s.Cores, Profile: s.Profile, Start: s.Start, NIC: s.NIC}
		switch {
		case s.Profile != "":
			s.Limit, s.Cores = 0, 0
		case whole:
			s.Limit, s.Cores = d.memory, d.cores
		default:
			s.Limit = d.rounded(v1alpha1.CapacityMemory, s.Limit)
			s.SwapMemory = d.rounded(v1alpha1.CapacitySwapMemory, s.SwapMemory)
			s.Cores = int(min(d.rounded(v1alpha1.CapacityCores, uint64(max(s.Cores, 0))), mostCores))
		}
		if !d.shared {
			f.devices = append(f.devices, deviceID{d.pool.name, d.spec.Name})
		}
	}
	f.given = a
	return f, devices, nil
}

// closed says why a share cannot be reserved, beside what the allocator sees of it.
func (l *Ledger) closed(name string, s *alloc.Share, d *device) string {
	at, ok := l.inv.Position(name)
	if !ok {
		return "has gone with its node"
	}
	if s.UUID == "" { // a card, of which the allocator sees all
		return ""
	}
	n := l.inv.Node(at)
	k := slices.IndexFunc(n.GPUs, func(g alloc.GPU) bool { return g.UUID == s.UUID })
	switch {
	case k < 0:
		return "is not served"
	case n.GPUs[k].Fence != "":
		return "is fenced: it " + n.GPUs[k].Fence
	case s.Whole && n.GPUs[k].Tenants > 0:
		return "has tenants"
	case s.Profile != "" && !d.gpu.enginesLast(&n.GPUs[k], s):
		return "has too few engines left for " + s.Profile
	}
	return ""
}
