package agent

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// NoteLeftOut tells people which GPUs this agent does not serve because the driver does not
// answer about them, and which it serves now that an earlier start left out.
func (a *Agent) NoteLeftOut(silent, found []int) {
	a.mu.Lock()
	a.leftOut = slices.Clone(silent)
	a.mu.Unlock()
	for _, gpu := range silent {
		a.events.add(control.Event{Kind: control.EventGPU, Text: fmt.Sprintf("GPU %d is left out: the driver has not answered about it yet", gpu)})
	}
	for _, gpu := range found {
		a.events.add(control.Event{Kind: control.EventGPU, Text: fmt.Sprintf("the driver answers about GPU %d now, which was left out: it is served", gpu)})
	}
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
