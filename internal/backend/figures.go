package backend

import "time"

// Figures are what a look at a tenant found. What they say of its processes and
// of its use may be the tenant's own word; Live is the kernel's. A list of another
// length than is said here is left out and shown as the tenant's fault.
type Figures struct {
	// Usage is what the tenant uses, with as many entries as the tenant has Shares
	// and in their order, or nil where that cannot be told.
	Usage []Usage
	// Processes are those that use the shares, and those that did and whose memory
	// is not free yet. They count also where Usage is nil. Beside an error, nil says
	// that they cannot be told.
	Processes []Process
	// Live reports whether a process of the tenant lives. It is known also where
	// Usage is not.
	Live bool
	// Reaped reports that processes had died and that what they held is free.
	Reaped bool
	// Freed is how many bytes of each share that was, with as many entries as
	// Shares, or nil if nobody had died or that cannot be told.
	Freed []uint64
	// Needs says what a program of the tenant asked for that the backend cannot give, for people; empty for nothing. It is the
	// tenant's word.
	Needs string
	// Excess says what the tenant took beyond what was made for it, and what was
	// done about it, one text for each finding.
	Excess []string
}

// Usage is what a tenant uses of one share, in bytes.
type Usage struct {
	Used uint64
	// Pending is what it is about to use.
	Pending uint64
	// Overhead is the part of Used that the driver took on its own, such as contexts.
	Overhead uint64
	// Kept is the part of Used that never leaves the GPU, for a swap share; 0 for any other share.
	Kept uint64
	// ByDescriptor is the part of Used that no process of the tenant holds: exported
	// memory that file descriptors keep, in whatever process.
	ByDescriptor uint64
	// Peak is the most that was ever used at once, 0 for a backend that does not know it.
	Peak uint64
	// Copied and Awaited are ns of real time in which the share's programs were in copies between host and GPU, and in calls
	// that wait for the GPU; 0 for a backend that does not know them.
	Copied, Awaited uint64
	// Refusals are the share's refused allocations, nil without any and for a backend that does
	// not know them.
	Refusals *Refusals
	// Time is the GPU time that the share took, nil for a backend whose GPU time
	// the arbiter divides, which knows it.
	Time *Time
}

// Refusals are refused allocations of a share.
type Refusals struct {
	// ByLimit counts those that the share's limit refused, and ByGPU those that the driver
	// refused although they fit into the share.
	ByLimit, ByGPU uint64
	// Largest and Last are bytes that the largest and the last one could have taken.
	Largest, Last uint64
	// At is when the last one was, and LastByGPU whether the driver refused it.
	At        time.Time
	LastByGPU bool
}

// Time is the GPU time of a share.
type Time struct {
	// Used is how much it was since the share began.
	Used time.Duration
	// Percent is the part of the GPU's time lately, 0 to 100; nil if unknown.
	Percent *float64
}

// Process is a process that uses a tenant's shares.
type Process struct {
	// PID is the agent's number of it, 0 if unknown.
	PID int
	// Live is false for one that died and was not reaped yet.
	Live bool
	// Used is what it holds of each share, in bytes, with as many entries as Shares,
	// or nil where that cannot be told.
	Used []uint64
}

// Found is a tenant that an earlier agent made, as far as that can be told
// without a checkpoint.
type Found struct {
	// Tenant has all that it was granted. Of a GPU the UUID alone is sure. The Layer
	// is [LayerContainer] for a tenant of a cluster and for no other: such a tenant
	// lives until it is released, any other as long as its processes.
	Tenant  Tenant
	Created time.Time
	// NameCut reports that the end of the name may be missing.
	NameCut bool
	// Record is what a [Keeper] was given last, nil if there is none or, with the error
	// RecordErr, if it cannot be read. Whoever owns the place of the tenants may have
	// written it.
	Record    []byte
	RecordErr error
	// Err is why nothing else is known but Tenant.ID, Tenant.Dir and the Record.
	Err error
}
