package agent

import (
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// reserver keeps virtual machines from functions that containers use by the host's driver.
type reserver interface {
	Reserve(r claims.Reserved) error
	Unreserve(key string) error
	Reserved() []claims.Reserved
	Limited() []pci.Address
}

// Reserve keeps virtual machines from PCI functions that containers use, or tells which of them one has. An agent that gives nothing
// to virtual machines has nothing to keep.
func (a *Agent) Reserve(r claims.Reserved) error {
	if a.config.Machines == nil {
		return nil
	}
	return a.config.Machines.Reserve(r)
}

// Unreserve gives back what is reserved under a key.
func (a *Agent) Unreserve(key string) error {
	if a.config.Machines == nil {
		return nil
	}
	return a.config.Machines.Unreserve(key)
}

// Reserved is all that is reserved now.
func (a *Agent) Reserved() []claims.Reserved {
	if a.config.Machines == nil {
		return nil
	}
	return a.config.Machines.Reserved()
}

// Limited are the functions that no virtual machine gets until the host restarts, because containers had limits there.
func (a *Agent) Limited() []pci.Address {
	if a.config.Machines == nil {
		return nil
	}
	return a.config.Machines.Limited()
}
