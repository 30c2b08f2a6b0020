package claims

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// ErrUnreset says that a device still has what another user's virtual machine left in it.
var ErrUnreset = errors.New("nothing has reset it since another user's virtual machine had it, and the kernel cannot: restart the host")

// Unreset is a PCI function that a virtual machine had and nothing has reset since. The ledger ends with the machine, which resets all.
type Unreset struct {
	Function pci.Address `json:"function"`
	// UID is whose virtual machine it was, Namespace where a cluster had it.
	UID       int    `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	// Claim is the one that had it last.
	Claim string `json:"claim"`
}

// namespace is that of a cluster's claim, "" for none.
func (w Want) namespace() string {
	namespace, _, _ := strings.Cut(w.Cluster, "/")
	return namespace
}

// stale returns an error if one of the functions was another user's and was not reset since. A vGPU is the host driver's, which
// clears what it gives. The lock is held.
func (l *Ledger) stale(w Want, members []pci.Address) error {
	if w.Form == v1alpha1.BackendVGPU {
		return nil
	}
	for _, u := range l.unreset {
		if slices.Contains(members, u.Function) && (u.UID != w.UID || u.Namespace != w.namespace()) {
			return fmt.Errorf("give %s to claim %s: %w (claim %s had it)", u.Function, w.Name, ErrUnreset, u.Claim)
		}
	}
	return nil
}

// used is what is not reset once a claim has ended. The lock is held.
func (l *Ledger) used(c Claim) []Unreset {
	next := slices.DeleteFunc(slices.Clone(l.unreset), func(u Unreset) bool { return slices.Contains(c.Unreset, u.Function) })
	for _, at := range c.Unreset {
		next = append(next, Unreset{Function: at, UID: c.UID, Namespace: c.namespace(), Claim: c.Name})
	}
	return next
}
