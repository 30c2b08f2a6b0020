package v1alpha1

import "slices"

// Isolation names what neighbours on a GPU must not reach.
type Isolation string

// What can be isolated. docs/forms.md says by which test or source each backend does.
const (
	// IsolateFaults: a neighbour's fatal fault does not end the share's work.
	IsolateFaults Isolation = "faults"
	// IsolateMemory: neighbours cannot touch the share's memory, and take no more than theirs.
	IsolateMemory Isolation = "memory"
	// IsolateBandwidth: neighbours take nothing of the share's memory bandwidth.
	IsolateBandwidth Isolation = "bandwidth"
	// IsolateNone: nothing, because the programs on the GPU belong together. What fills a GPU best with many small ones is
	// preferred then.
	IsolateNone Isolation = "none"
)

// isolates has what each backend isolates.
var isolates = map[Backend][]Isolation{
	BackendSlice:     {IsolateFaults, IsolateMemory},
	BackendTimeslice: {IsolateFaults, IsolateMemory},
	BackendMPS:       {IsolateMemory},
	BackendMIG:       {IsolateFaults, IsolateMemory, IsolateBandwidth},
	BackendRemote:    {IsolateFaults, IsolateMemory},
}

// validateIsolation tells of an isolation that is unknown or that the backend does not give.
func (r *ShareRequest) validateIsolation(fault func(format string, args ...any)) {
	switch r.Isolate {
	case "", IsolateFaults, IsolateMemory, IsolateBandwidth, IsolateNone:
	default:
		fault("isolate %q: use faults, memory, bandwidth or none", r.Isolate)
		return
	}
	given, known := isolates[r.Backend]
	if r.Isolate == "" || r.Isolate == IsolateNone || !known || slices.Contains(given, r.Isolate) {
		return
	}
	why := "shares of a GPU use its memory bandwidth together, unless hardware divides it"
	if r.Isolate == IsolateFaults {
		why = "a fatal fault in one share ends the work of all on its GPU"
	}
	fault("backend %s does not isolate %s: %s", r.Backend, r.Isolate, why)
}
