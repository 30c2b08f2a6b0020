package claims

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// ErrLimited says that a function cannot leave its driver: Linux keeps the limits of a cgroup that is gone with the RDMA adapter, and
// reads freed memory when the adapter goes (free_cg_rpool_locked of kernel/cgroup/rdma.c).
var ErrLimited = errors.New("since the host started, containers had limits on its RDMA adapter, or the record of that was lost, and the kernel may stop when that is taken away: restart the host first, and load no driver of it anew until then")

// Limited are the functions on whose RDMA adapter containers have or had limits. The ledger ends with the machine, as limits do.
func (l *Ledger) Limited() []pci.Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.limited)
}

// Limit has functions be taken for such on whose adapters containers had limits, as where a ledger was lost that would tell.
func (l *Ledger) Limit(functions []pci.Address) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	limited := l.limited
	l.limited = withLimits(limited, []Reserved{{Limited: functions}})
	if err := l.save(l.claims); err != nil {
		l.limited = limited
		return err
	}
	return nil
}

// MayLeave is an [ErrLimited] where one of the functions cannot leave its driver.
func (l *Ledger) MayLeave(functions []pci.Address) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mayLeave(functions)
}

// mayLeave is [Ledger.MayLeave] while the lock is held.
func (l *Ledger) mayLeave(functions []pci.Address) error {
	if at := slices.IndexFunc(functions, func(f pci.Address) bool { return slices.Contains(l.limited, f) }); at >= 0 {
		return fmt.Errorf("take %s from its driver: %w", functions[at], ErrLimited)
	}
	return nil
}

// withLimits adds what is reserved now to functions that had limits, in their order.
func withLimits(limited []pci.Address, reserved []Reserved) []pci.Address {
	all := slices.Clone(limited)
	for _, r := range reserved {
		all = append(all, r.Limited...)
	}
	slices.SortFunc(all, pci.Address.Compare)
	return slices.Compact(all)
}
