package agent

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// division is how a GPU is divided by MIG, as it was read or made last. Nobody changes one.
type division struct {
	backend.Division
	// model is that of a GPU in MIG mode.
	model *layouts.Model
	// unknown says why it could not be read, empty where it could.
	unknown string
}

// divisions are those of all GPUs. The zero value knows of none. Its lock is the innermost one.
type divisions struct {
	mu     sync.RWMutex
	of     map[string]division // by UUID
	models map[string]*layouts.Model
	// changes counts how often a GPU was divided otherwise than before.
	changes int
}

// version is another number whenever a GPU is divided otherwise.
func (d *divisions) version() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.changes
}

// get is that of a GPU; a GPU of which nothing is known is not in MIG mode.
func (d *divisions) get(uuid string) division {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.of[uuid]
}

// set replaces that of a GPU.
func (d *divisions) set(uuid string, now division) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of, d.models = map[string]division{}, map[string]*layouts.Model{}
	}
	if now.On {
		id := fmt.Sprint(now.Profiles)
		if d.models[id] == nil {
			model, err := layouts.NewModel(now.Profiles)
			if err != nil {
				return err
			}
			d.models[id] = model
		}
		now.model = d.models[id]
	}
	if !reflect.DeepEqual(d.of[uuid].Division, now.Division) {
		d.changes++
	}
	d.of[uuid] = now
	return nil
}

// part is the instance with a UUID.
func (d *division) part(uuid string) (p backend.Part, ok bool) {
	at := slices.IndexFunc(d.Parts, func(p backend.Part) bool { return p.UUID == uuid })
	if at < 0 || uuid == "" {
		return p, false
	}
	return d.Parts[at], true
}

// at is the instance of a profile that begins at a memory slice.
func (d *division) at(profile string, start int) (p backend.Part, ok bool) {
	at := slices.IndexFunc(d.Parts, func(p backend.Part) bool { return p.Profile == profile && p.Start == start })
	if at < 0 {
		return p, false
	}
	return d.Parts[at], true
}

// size is what an instance of a profile has.
func (d *division) size(profile string) (s backend.Instance, ok bool) {
	at := slices.IndexFunc(d.Sizes, func(s backend.Instance) bool { return s.Profile == profile })
	if at < 0 {
		return s, false
	}
	return d.Sizes[at], true
}

// divider is the backend that makes instances, nil where there is none.
func (a *Agent) divider() backend.Divider {
	for _, k := range a.config.Backends.Kinds() {
		if divider, ok := k.Backend.(backend.Divider); ok {
			return divider
		}
	}
	return nil
}

// makesInstances reports whether the agent can make MIG instances. One that cannot gives out those that are there.
func (a *Agent) makesInstances() bool {
	divider := a.divider()
	maker, ok := divider.(interface{ MakesInstances() bool })
	return divider != nil && (!ok || maker.MakesInstances())
}

// dividableGPU reports whether a GPU has MIG, as far as the backend tells.
func (a *Agent) dividableGPU(gpu backend.GPU) bool {
	divider := a.divider()
	chooser, ok := divider.(backend.Chooser)
	return divider != nil && (!ok || chooser.Unsuited(gpu) == "")
}

// Divides reports whether the agent serves GPUs in MIG mode.
func (a *Agent) Divides() bool { return a.divider() != nil }

// Division is how a GPU is divided by MIG, and a channel that is closed when that or anything else of the ledger may be
// otherwise. Unknown says why it could not be read.
func (a *Agent) Division(uuid string) (d backend.Division, unknown string, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.divisions.get(uuid)
	return now.Division, now.unknown, a.changed
}

// inMIGMode reports whether a GPU is in MIG mode.
func (a *Agent) inMIGMode(uuid string) bool {
	d := a.divisions.get(uuid)
	return d.On
}

// recoverDivisions finishes what an earlier agent began, and reads how the GPUs are divided.
func (a *Agent) recoverDivisions(ctx context.Context) {
	divider := a.divider()
	if divider == nil {
		return
	}
	vanished, err := divider.RecoverInstances(ctx)
	if err != nil {
		a.config.Log.WarnContext(ctx, "cannot finish what an earlier agent began with MIG instances", "error", err)
		a.events.add(control.Event{Kind: control.EventFault, Text: "what an earlier agent began with MIG instances is not finished: " + err.Error()})
	}
	for _, gone := range vanished {
		gpu := a.gpu(gone.Parent)
		a.events.add(control.Event{Kind: control.EventGPU, UUID: gone.Parent, Text: fmt.Sprintf("GPU %d: %s is gone: somebody else took it away, or the GPU was reset, before this agent started", gpu.Index, instanceText(gone))})
	}
	a.readDivisions(ctx)
}

// readDivisions reads how all GPUs are divided.
func (a *Agent) readDivisions(ctx context.Context) {
	if a.divider() == nil {
		return
	}
	var running sync.WaitGroup
	for _, gpu := range a.gpus {
		running.Go(func() {
			f := a.formings[gpu.UUID]
			f.turn.Lock()
			defer f.turn.Unlock()
			a.readInTurn(ctx, gpu)
		})
	}
	running.Wait()
}

// readInTurn reads how a GPU is divided. Who calls it has the turn at the GPU's form, so that nothing is made or taken
// away meanwhile. What cannot be read stays as it was.
func (a *Agent) readInTurn(ctx context.Context, gpu backend.GPU) {
	divider := a.divider()
	if divider == nil {
		return
	}
	a.formings[gpu.UUID].read = time.Now() // before: what is done meanwhile may not be in the answer
	before := a.divisions.get(gpu.UUID)
	read, err := divider.Division(ctx, gpu)
	now := division{Division: read}
	if err == nil {
		err = a.divisions.set(gpu.UUID, now)
	}
	a.complain(ctx, "cannot read how a GPU is divided by MIG", gpu.Index, err)
	if err != nil {
		now = before
		now.unknown = err.Error()
		_ = a.divisions.set(gpu.UUID, now) // it was a model before
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteVanished(ctx, gpu)
	if !reflect.DeepEqual(before.Division, read) || before.unknown != "" {
		a.announce()
	}
}

// noteVanished tells those whose instance somebody else took away. Agent.mu is held.
func (a *Agent) noteVanished(ctx context.Context, gpu backend.GPU) {
	d := a.divisions.get(gpu.UUID)
	for _, t := range a.sorted() {
		for _, s := range t.Shares {
			if s.UUID != gpu.UUID || s.Instance == nil || s.Instance.UUID == "" || t.gone != "" {
				continue
			}
			if _, there := d.part(s.Instance.UUID); there {
				continue
			}
			t.gone = instanceText(*s.Instance) + " was taken away by somebody else: its programs fail, and nothing is made in its stead: end the share, and start it again"
			a.config.Log.WarnContext(ctx, "the MIG instance of a share is gone", "tenant", t.Name, "gpu", gpu.Index, "instance", s.Instance.UUID)
			a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, UUID: s.UUID, Text: t.gone})
			a.tellTenant(ctx, t, fmt.Sprintf("divvy: share %s, GPU %d: %s", t.Name, gpu.Index, t.gone))
			a.tell()
		}
	}
}

// tellTenant writes a line to where the process that asked for a tenant writes its errors. It does not wait. Agent.mu is
// held.
func (a *Agent) tellTenant(ctx context.Context, t *tenant, line string) {
	if a.config.Tell == nil || !t.process {
		return
	}
	holder, uid := t.Holder, t.UID
	go a.tellProcess(ctx, holder, uid, line)
}

func (a *Agent) tellProcess(ctx context.Context, holder process.ID, uid int, line string) {
	if err := a.config.Tell(holder, uid, line); err != nil {
		a.config.Log.DebugContext(ctx, "cannot tell a share's user what befell it", "error", err)
	}
}

// instanceText names an instance for people.
func instanceText(i backend.Instance) string {
	return fmt.Sprintf("MIG instance %s at memory slice %d (%s)", i.Profile, i.Start, i.UUID)
}

// instanceOn names an instance of a GPU for people. One that is to be made has no UUID.
func instanceOn(i backend.Instance, index int) string {
	return fmt.Sprintf("MIG instance %s at memory slice %d of GPU %d", i.Profile, i.Start, index)
}

// addDivision adds to a GPU, whose tenants are known, what of it MIG instances have. Agent.mu is held.
func (a *Agent) addDivision(g *alloc.GPU, except *tenant) {
	d := a.divisions.get(g.UUID)
	if !d.On {
		return
	}
	g.Form, g.Profiles = string(v1alpha1.BackendMIG), d.Profiles
	add := func(i backend.Instance) {
		placed := d.model.Placed(d.model.Profile(i.Profile), i.Start)
		g.Slices |= (uint32(1)<<i.Size - 1) << i.Start
		if d.model.Valid(g.Instances | placed) {
			g.Instances |= placed
		}
	}
	for _, p := range d.Parts {
		add(p.Instance)
	}
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if t == except || s.UUID != g.UUID || s.Instance == nil {
				continue
			}
			// One that is to be made, or that somebody else took away: whatever is made in its place has the same UUID, so
			// the share would be on it.
			if _, there := d.part(s.Instance.UUID); !there {
				add(*s.Instance)
			}
		}
	}
}

// device is the GPU of a share as a backend knows it: a MIG instance is like a GPU.
func (a *Agent) device(s share) backend.GPU {
	gpu := a.gpu(s.UUID)
	if s.Instance != nil {
		return instanceGPU(gpu, *s.Instance)
	}
	return gpu
}

// instanceGPU is an instance of a GPU as a GPU.
func instanceGPU(gpu backend.GPU, i backend.Instance) backend.GPU {
	if gpu.Index >= 0 {
		gpu.Total, gpu.Reserved = i.Bytes, i.Reserved
	}
	gpu.UUID, gpu.Instance, gpu.ContextBytes = i.UUID, i, cmp.Or(i.ContextBytes, gpu.ContextBytes)
	return gpu
}
