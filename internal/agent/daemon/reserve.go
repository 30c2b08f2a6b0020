package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// Reserve implements [agent.Machines]. As a claim is, a reservation is in the ledger before it asks what is being taken away.
func (m *machines) Reserve(r claims.Reserved) error {
	known := slices.ContainsFunc(m.Ledger.Reserved(), func(o claims.Reserved) bool { return o.Key == r.Key })
	if err := m.Ledger.Reserve(r); err != nil || known {
		return err // what is reserved is not taken away
	}
	if err := m.going.refuse(r.Functions); err != nil {
		return errors.Join(fmt.Errorf("reserve functions for %s: %w", r.Name, err), m.Ledger.Unreserve(r.Key))
	}
	return nil
}

// unreserved returns an error if containers use one of a card's virtual functions that are to be taken away.
func (m *machines) unreserved(device pci.Address, functions []pci.Address) error {
	for _, r := range m.Ledger.Reserved() {
		if slices.ContainsFunc(functions, func(f pci.Address) bool { return slices.Contains(r.Functions, f) }) {
			return fmt.Errorf("disable the virtual functions of %s: %w: containers use one by the cluster's claim %s", device, vgpu.ErrUsed, r.Name)
		}
	}
	return nil
}
