package claims

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Reserved are PCI functions that containers use by the host's driver, such as those of a network card. No virtual machine gets
// one of them meanwhile.
type Reserved struct {
	// Key tells whose they are, such as the UID of a cluster's claim; Name is that claim's, as namespace/name.
	Key       string        `json:"key"`
	Name      string        `json:"name"`
	Functions []pci.Address `json:"functions"`
	// Limited are those of Functions with an RDMA adapter of which the kernel limits what containers take.
	Limited []pci.Address `json:"limited,omitempty"`
}

// Reserve keeps virtual machines from functions, also after a restart; it is an [ErrTaken] where a claim has one of them, or is about
// to, and an [ErrUnreset] where one was another namespace's and was not reset since. What was reserved under the same key before is replaced. Several keys may have one function.
func (l *Ledger) Reserve(r Reserved) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.claims {
		if at := slices.IndexFunc(r.Functions, c.Has); at >= 0 {
			return fmt.Errorf("reserve %s for %s: %w: claim %s has it for a virtual machine (%s)", r.Functions[at], r.Name, ErrTaken, c.Name, c.Form)
		}
	}
	if err := l.stale(Want{Name: r.Name, Cluster: r.Name}, r.Functions); err != nil {
		return err
	}
	next := without(l.reserved, r.Key)
	if len(r.Functions) > 0 {
		next = append(next, r)
	}
	return l.saveReserved(next)
}

// Unreserve gives back what is reserved under a key. That nothing is, is no error.
func (l *Ledger) Unreserve(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saveReserved(without(l.reserved, key))
}

// Reserved is all that is reserved now.
func (l *Ledger) Reserved() []Reserved {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reserved)
}

// without is a copy without what is reserved under a key.
func without(all []Reserved, key string) []Reserved {
	return slices.DeleteFunc(slices.Clone(all), func(r Reserved) bool { return r.Key == key })
}

// saveReserved writes down what is reserved. The lock is held.
func (l *Ledger) saveReserved(next []Reserved) error {
	if len(next) == len(l.reserved) && !slices.ContainsFunc(next, func(r Reserved) bool {
		return !slices.ContainsFunc(l.reserved, func(o Reserved) bool { return reflect.DeepEqual(r, o) })
	}) {
		return nil
	}
	reserved, limited := l.reserved, l.limited
	l.reserved, l.limited = next, withLimits(limited, next)
	if err := l.save(l.claims); err != nil {
		l.reserved, l.limited = reserved, limited
		return err
	}
	return nil
}
