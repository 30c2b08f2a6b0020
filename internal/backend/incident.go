package backend

import "github.com/divvy-gpu/divvy/internal/process"

// Reporter is a backend that keeps something running for its tenants, which can fail under them.
type Reporter interface {
	// Report names who is told what befalls tenants from now on. It is called once, before the first Enter. What is told
	// returns soon and may be called from several goroutines, one at a time for each GPU.
	Report(tell func(Incident))
	// Own reports whether a process is one that the backend keeps running: it belongs to no tenant, and may be on GPUs.
	Own(id process.ID) bool
}

// Proxy is a backend whose tenants' processes use the GPU for others.
type Proxy interface {
	// Client is the process for which one of a tenant's uses the GPU, as that one tells; 0 where it tells none.
	Client(t Tenant, pid int) int
}

// Chooser is a backend that not every GPU suits.
type Chooser interface {
	// Unsuited is why a GPU can never have the backend's shares, "" where it can.
	Unsuited(gpu GPU) string
}

// Incident is what befell all of a backend's tenants on a GPU.
type Incident struct {
	// UUID is the GPU's, or that of the MIG instance.
	UUID string
	// Text says what happened and what it means for programs, for people.
	Text string
	// Over says that new programs are served again; those that failed stay so.
	Over bool
	// Note is true for a remark that is no fault.
	Note bool
	// By is the process that did it against the rules, the zero ID where there is none or it is not known.
	By process.ID
}
