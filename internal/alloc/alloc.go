// Package alloc chooses GPUs for a request. It is pure: an inventory and a
// request go in, an assignment or a refusal comes out, and nothing else is
// looked at.
//
// It places on one host, one GPU at a time: the fullest GPU on which a share
// fits, so that large requests find GPUs that are still empty.
package alloc

import "fmt"

// GPU is what the allocator knows of a GPU. Amounts are bytes and percent.
type GPU struct {
	UUID  string
	Index int
	// Capacity is what the GPU has for tenants.
	Capacity uint64
	// Granted is the sum of the limits of its shares.
	Granted uint64
	// Cores is the sum of their guaranteed cores, 0 to 100.
	Cores int
	// ContextBytes is what one process takes before it allocates anything: a
	// smaller limit is of no use to anybody.
	ContextBytes uint64
}

// FreeMemory is what can still be granted without overcommit.
func (g GPU) FreeMemory() uint64 {
	return g.Capacity - min(g.Granted, g.Capacity)
}

// FreeCores is how much GPU time can still be guaranteed, in percent.
func (g GPU) FreeCores() int {
	return max(0, 100-g.Cores)
}

// Inventory is a host's GPUs.
type Inventory []GPU

// Request asks for one share on each of Count different GPUs.
type Request struct {
	Count int
	// GPU names one GPU by UUID or index; empty leaves the choice open.
	GPU string
	// Memory is the limit in bytes on a GPU with this capacity.
	Memory func(capacity uint64) uint64
	// Cores to guarantee, 0 to 100.
	Cores int
	// Overcommit lets the sum of limits exceed a GPU; one limit never may.
	Overcommit bool
}

// Grant is one share of an assignment.
type Grant struct {
	UUID  string
	Limit uint64
}

// Assignment is one grant for each GPU asked for, in the order of preference.
type Assignment []Grant

// Reason groups refusals by what the asker can do.
type Reason int

// The reasons.
const (
	// ReasonNever is a request that this host cannot serve even when empty.
	ReasonNever Reason = iota
	// ReasonUnknown is a GPU that this host has not.
	ReasonUnknown
	// ReasonFull is a request that fits when others have ended.
	ReasonFull
)

// Refusal says why a request cannot be granted, and what would fit.
type Refusal struct {
	Reason Reason
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string {
	return r.Text
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}
