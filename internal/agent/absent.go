package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// NoteLeftOut tells people which GPUs this agent does not serve because the driver is silent
// about them or, as refused says, answers with an error, and which it serves now that an
// earlier start left out.
func (a *Agent) NoteLeftOut(silent []int, refused map[int]string, found []int) {
	a.mu.Lock()
	a.leftOut, a.refusedGPUs = slices.Clone(silent), maps.Clone(refused)
	a.mu.Unlock()
	for _, gpu := range silent {
		a.events.add(control.Event{Kind: control.EventGPU, Text: control.LeftOutText(gpu, refused)})
	}
	for _, gpu := range found {
		a.events.add(control.Event{Kind: control.EventGPU, Text: fmt.Sprintf("the driver answers about GPU %d now, which was left out: it is served", gpu)})
	}
}

// whyUnserved says why a GPU on which there is a share is not served. Agent.mu is held.
func (a *Agent) whyUnserved() string {
	if len(a.leftOut) == 0 {
		return "the driver did not list it when the agent started"
	}
	var names []string
	for _, gpu := range a.leftOut {
		names = append(names, fmt.Sprintf("GPU %d", gpu))
	}
	return "the driver did not answer about " + joined(names, "and") + " when the agent started: try again when `divvy ls` lists it"
}

// Absent returns the GPUs that tenancies hold and that are not there, with how many
// bytes of each, and a channel that is closed when that may have changed. They were
// lost before the agent started, so that nobody watches their health.
func (a *Agent) Absent() (held map[string]uint64, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held = map[string]uint64{}
	for _, t := range a.tenants {
		if t.Tenancy == nil {
			continue
		}
		for i, s := range t.Shares {
			if a.gpu(s.UUID).Index < 0 {
				held[s.UUID] += t.counted(i)
			}
		}
	}
	return held, a.changed
}

// Wholes returns the GPUs that tenancies have as a whole, with how many bytes the
// scheduler counts for each, and a channel that is closed when that may have changed. A
// device of an earlier version's counts for none, also one that is expected.
func (a *Agent) Wholes() (counted map[string]uint64, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	counted = map[string]uint64{}
	for uuid := range a.expected {
		counted[uuid] = 0
	}
	for _, t := range a.tenants {
		if t.Tenancy == nil {
			continue
		}
		for _, s := range t.Tenancy.Shares {
			if s.Whole {
				counted[s.UUID] = 0
			} else if s.Exclusive {
				counted[s.UUID] = s.Memory
			}
		}
	}
	return counted, a.changed
}
