package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// Reserve implements [agent.Machines]. As a claim is, what is reserved is in the ledger before it is asked what is being taken away.
func (m *machines) Reserve(r claims.Reserved) error {
	known := slices.ContainsFunc(m.Reserved(), func(o claims.Reserved) bool { return o.Key == r.Key })
	if err := m.Ledger.Reserve(r); err != nil || known {
		return err // what is reserved is not taken away
	}
	if err := m.going.refuse(r.Functions); err != nil {
		return errors.Join(fmt.Errorf("reserve functions for %s: %w", r.Name, err), m.Unreserve(r.Key))
	}
	return nil
}
