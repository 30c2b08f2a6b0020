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

// Reserve notes what a claim, by "namespace/name", is about to be given, as the claim will have it: what the assignment has
// of the host is not counted. The note ends with [Ledger.Unreserve], or when the claim comes with an allocation. The same
// may be reserved again. The error is [ErrTaken], and nothing is reserved then.
func (l *Ledger) Reserve(key string, a alloc.Assignment) error {
	l.flush()
	given, err := l.claimed(a)
	if err != nil {
		return err
	}
	if before, ok := l.flights[key]; ok {
		if sameAssignment(before, given) {
			return nil
		}
		return fmt.Errorf("%w: claim %s has another place already", ErrTaken, key)
	}
	if l.claims[key] != nil {
		return fmt.Errorf("%w: claim %s is allocated already", ErrTaken, key)
	}
	if err := l.inv.Reserve(given); err != nil {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	l.flights[key] = given
	return nil
}

// Unreserve takes back what was reserved for a claim, as if it had never been. It reports whether something was.
func (l *Ledger) Unreserve(key string) bool {
	a, ok := l.flights[key]
	if !ok {
		return false
	}
	delete(l.flights, key)
	l.inv.Unreserve(a)
	l.noteFences(a.Name)
	return true
}

// claimed is an assignment with the amounts that a claim will have consumed.
func (l *Ledger) claimed(a alloc.Assignment) (alloc.Assignment, error) {
	a.CPU, a.Memory, a.Shares = 0, 0, slices.Clone(a.Shares)
	for i := range a.Shares {
		s := &a.Shares[i]
		d := l.device(a.Name, s)
		if d == nil {
			return a, fmt.Errorf("%w: node %s has no device for GPU %s", ErrTaken, a.Name, s.UUID)
		}
		if why := l.fenceOf(a.Name, s.UUID); why != "" {
			return a, fmt.Errorf("%w: GPU %s of node %s: %s", ErrTaken, s.UUID, a.Name, why)
		}
		*s = alloc.Share{UUID: s.UUID, GPU: s.GPU, Limit: s.Limit, Cores: s.Cores, Profile: s.Profile, Start: s.Start, Whole: s.Whole, NIC: -1}
		switch {
		case s.Profile != "":
			s.Limit, s.Cores = 0, 0
		case s.Whole:
			s.Limit, s.Cores = d.memory, d.cores
		default:
			s.Limit = d.rounded(v1alpha1.CapacityMemory, s.Limit)
			s.Cores = int(d.rounded(v1alpha1.CapacityCores, uint64(max(s.Cores, 0))))
		}
	}
	return a, nil
}
