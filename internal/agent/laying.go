package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// laying is a layout that is being applied to a GPU. It is in the checkpoint before anything is changed: what an agent that
// is killed leaves half done the next one finishes, because the layout was found possible and somebody wants it.
type laying struct {
	UUID      string         `json:"uuid"`
	On        bool           `json:"on"`
	Instances map[string]int `json:"instances,omitempty"`
}

// params are those with which it was asked for.
func (l laying) params() control.LayoutParams {
	return control.LayoutParams{GPU: l.UUID, On: l.On, Instances: l.Instances}
}

// String says for people what layout it is.
func (l laying) String() string {
	if !l.On {
		return "MIG mode off"
	}
	var texts []string
	for _, profile := range slices.Sorted(maps.Keys(l.Instances)) {
		texts = append(texts, fmt.Sprintf("%d x %s", l.Instances[profile], profile))
	}
	if len(texts) == 0 {
		return "no instances"
	}
	return strings.Join(texts, ", ")
}

// noteLaying writes down that a layout is about to be applied to a GPU.
func (a *Agent) noteLaying(gpu backend.GPU, p control.LayoutParams) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.laying = append(a.laying, laying{UUID: gpu.UUID, On: p.On, Instances: p.Instances})
	err := a.save()
	if err != nil {
		a.dropLaying(gpu.UUID)
	}
	return err
}

// endLaying writes down that a layout was applied or taken back.
func (a *Agent) endLaying(ctx context.Context, gpu backend.GPU) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLaying(gpu.UUID)
	if err := a.save(); err != nil { // to apply it once more changes nothing
		a.config.Log.WarnContext(ctx, "cannot save that a layout was applied", "gpu", gpu.Index, "error", err)
	}
}

// dropLaying forgets a layout. Agent.mu is held.
func (a *Agent) dropLaying(uuid string) {
	a.laying = slices.DeleteFunc(a.laying, func(l laying) bool { return l.UUID == uuid })
}

// finishLayouts applies the layouts that an earlier agent was applying when it ended. One that cannot be applied is told,
// with what the GPU has, and given up.
func (a *Agent) finishLayouts(ctx context.Context) {
	a.mu.Lock()
	left := slices.Clone(a.laying)
	a.mu.Unlock()
	for _, l := range left {
		gpu := a.gpu(l.UUID)
		text := fmt.Sprintf("GPU %d got the layout that was being applied when the last agent ended: %s", gpu.Index, l)
		kind := control.EventGPU
		if err := a.finishLayout(ctx, gpu, l); err != nil {
			kind = control.EventFault
			text = fmt.Sprintf("GPU %d: the layout that was being applied when the last agent ended (%s) is not finished: %v: it has %s: `divvy gpu apply` tries again",
				gpu.Index, l, err, a.partsText(gpu))
			a.config.Log.WarnContext(ctx, "cannot finish a layout", "gpu", gpu.Index, "layout", l.String(), "error", err)
		}
		a.events.add(control.Event{Kind: kind, UUID: l.UUID, Text: text})
		a.endLaying(ctx, gpu)
	}
}

// finishLayout applies one layout at the GPU's turn.
func (a *Agent) finishLayout(ctx context.Context, gpu backend.GPU, l laying) error {
	f := a.formings[gpu.UUID]
	if f == nil || !a.Divides() {
		return fmt.Errorf("this agent does not serve the GPU %s", l.UUID)
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	to, err := a.planLayout(gpu, l.params())
	if err != nil {
		return err
	}
	return a.applyLayout(ctx, gpu, l.params(), to)
}

// partsText names the instances of a GPU.
func (a *Agent) partsText(gpu backend.GPU) string {
	d := a.divisions.get(gpu.UUID)
	if !d.On {
		return "its MIG mode off"
	}
	var texts []string
	for _, p := range d.Parts {
		texts = append(texts, fmt.Sprintf("%s at memory slice %d", p.Profile, p.Start))
	}
	if len(texts) == 0 {
		return "no instances"
	}
	return strings.Join(texts, ", ")
}
