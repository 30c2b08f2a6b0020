package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// dividable returns the GPU whose division is to be changed, or why it never is.
func (a *Agent) dividable(peer *control.Peer, name string) (gpu backend.GPU, err error) {
	switch {
	case peer.UID != 0 && peer.UID != a.config.Info.UID:
		return gpu, control.Errorf(control.CodeDenied, "how a GPU is divided by MIG concerns all users of it: ask as root")
	case a.config.Info.Ephemeral:
		return gpu, control.Errorf(control.CodeInvalid, "your own agent ends with its last share, and changes no MIG mode and no layout: start a system agent, as root")
	case !a.Divides():
		return gpu, control.Errorf(control.CodeInvalid, "this agent makes no MIG instances")
	}
	uuids, err := a.resolve([]string{name})
	if err != nil {
		return gpu, err
	}
	return a.gpu(uuids[0]), nil
}

// migMode turns the MIG mode of a GPU on or off.
func (a *Agent) migMode(ctx context.Context, peer *control.Peer, p control.MIGModeParams) (*control.Formed, error) {
	gpu, err := a.dividable(peer, p.GPU)
	if err != nil {
		return nil, err
	}
	tell := tellAwaited(ctx)
	release, err := a.closeGPU(ctx, gpu, p.Wait, tell)
	if err != nil {
		return nil, err
	}
	defer release()
	for {
		err := a.turnMode(ctx, gpu, p.On)
		if err == nil {
			break
		}
		if !p.Wait || !errors.Is(err, mig.ErrUsed) {
			return nil, control.Errorf(control.CodeRefused, "GPU %d keeps its MIG mode: %v%s", gpu.Index, err, orWait(err, mig.ErrUsed))
		}
		tell(fmt.Sprintf("GPU %d: %v", gpu.Index, err))
		select {
		case <-time.After(leaves):
		case <-ctx.Done():
			return nil, control.Errorf(control.CodeRefused, "GPU %d keeps its MIG mode: %v", gpu.Index, err)
		}
	}
	a.sweep(ctx)
	v := a.formed(ctx, gpu)
	v.Fault = ""
	return &v, nil
}

// turnMode turns the mode at once, or leaves everything as it was. The GPU is closed and has no shares.
func (a *Agent) turnMode(ctx context.Context, gpu backend.GPU, on bool) error {
	f := a.formings[gpu.UUID]
	f.turn.Lock()
	defer f.turn.Unlock()
	a.readInTurn(ctx, gpu)
	if d := a.divisions.get(gpu.UUID); d.unknown == "" && d.On == on && d.Pending == on {
		return nil
	}
	if err := a.leaveInTurn(ctx, gpu); err != nil {
		return err
	}
	gone, err := a.clear(ctx, gpu)
	if err == nil {
		err = a.setMode(ctx, gpu, on)
	}
	if err != nil {
		return errors.Join(err, a.putBack(context.WithoutCancel(ctx), gpu, nil, gone))
	}
	return nil
}

// setMode turns the mode of a GPU that has no instances. Who calls it has the turn at the GPU's form.
func (a *Agent) setMode(ctx context.Context, gpu backend.GPU, on bool) error {
	a.step("mig-mode-begun")
	before := a.divisions.get(gpu.UUID)
	err := a.divider().SetMode(ctx, gpu, on)
	a.step("mig-mode-set")
	a.readInTurn(context.WithoutCancel(ctx), gpu)
	if err != nil {
		return err
	}
	form, by := a.config.Forms.Of(gpu)
	if by == control.GivenByHand && on != (form.Backend == v1alpha1.BackendMIG) {
		if _, err := a.config.Forms.give(gpu.UUID, agentconfig.Form{}); err != nil {
			return err
		}
	}
	word := "off"
	if on {
		word = "on"
	}
	text := fmt.Sprintf("the MIG mode of GPU %d was turned %s", gpu.Index, word)
	if before.On == on && before.unknown == "" {
		text = fmt.Sprintf("the MIG mode of GPU %d stays %s after its next reset: the change that was pending was taken back", gpu.Index, word)
	}
	a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: text})
	return nil
}

// clear takes all instances of a GPU away, of which no share has one, and returns what it took. Those of other tools are
// an error. Who calls it has the turn at the GPU's form.
func (a *Agent) clear(ctx context.Context, gpu backend.GPU) (gone []backend.Part, err error) {
	d := a.divisions.get(gpu.UUID)
	for _, p := range d.Parts {
		if p.Origin == backend.OriginForeign {
			return nil, fmt.Errorf("%w: %s is another tool's: take it away with that", mig.ErrUsed, cmp.Or(instanceText(p.Instance), p.Half))
		}
		if p.Origin == backend.OriginVGPU {
			return nil, fmt.Errorf("%w: %s backs a vGPU: release that first", mig.ErrUsed, instanceText(p.Instance))
		}
	}
	for _, p := range d.Parts {
		if err := a.takeAway(ctx, gpu, p); err != nil {
			return gone, err
		}
		gone = append(gone, p)
	}
	return gone, nil
}

// takeAway takes an instance away that no share has. Who calls it has the turn at the GPU's form.
func (a *Agent) takeAway(ctx context.Context, gpu backend.GPU, p backend.Part) error {
	a.mu.Lock()
	had := a.inside[p.UUID]
	a.mu.Unlock()
	if had != "" {
		if err := a.leaveInstance(ctx, instanceGPU(gpu, p.Instance), had); err != nil {
			return err
		}
	}
	if err := a.divider().Destroy(ctx, gpu, p.UUID); err != nil {
		return fmt.Errorf("take away %s: %w", instanceText(p.Instance), err)
	}
	a.dropPart(gpu, p.UUID)
	a.step("layout-removed")
	return nil
}

// putBack takes away what was made and makes again what was taken away.
func (a *Agent) putBack(ctx context.Context, gpu backend.GPU, made []backend.Instance, gone []backend.Part) error {
	var faults []error
	for _, i := range made {
		faults = append(faults, a.takeAway(ctx, gpu, backend.Part{Instance: i}))
	}
	for _, p := range gone {
		if p.Origin != backend.OriginLayout {
			continue
		}
		again, err := a.divider().Create(ctx, gpu, p.Profile, p.Start, p.Origin)
		if err != nil {
			faults = append(faults, fmt.Errorf("make %s again: %w", instanceText(p.Instance), err))
			continue
		}
		a.addPart(gpu, backend.Part{Instance: again, Origin: p.Origin})
	}
	return errors.Join(faults...)
}

// dividedOf describes how a GPU is divided by MIG, nil for one that has no MIG. Agent.mu is held.
func (a *Agent) dividedOf(gpu backend.GPU) *control.Divided {
	d := a.divisions.get(gpu.UUID)
	if !a.dividableGPU(gpu) {
		return nil
	}
	v := &control.Divided{On: d.On, Pending: d.Pending, Unknown: d.unknown}
	g := alloc.GPU{UUID: gpu.UUID}
	a.addDivision(&g, nil)
	for _, p := range d.Parts {
		v.Instances = append(v.Instances, a.describeInstance(p))
	}
	for i, s := range d.Sizes {
		one := control.Profile{Name: s.Profile, Bytes: s.Bytes, Multiprocessors: s.Multiprocessors, Size: s.Size}
		for _, start := range d.Profiles[i].Starts {
			placed := d.model.Placed(i, start)
			if g.Slices&d.model.Slices(placed) == 0 && d.model.Valid(g.Instances|placed) {
				one.Free = append(one.Free, start)
			}
		}
		v.Profiles = append(v.Profiles, one)
	}
	return v
}

// instancesOf reports whether a GPU is in MIG mode, and describes its instances with what a snapshot has of their memory.
// Agent.mu is held.
func (a *Agent) instancesOf(gpu backend.GPU, v *snapshot) (mode bool, all []control.Instance) {
	d := a.divisions.get(gpu.UUID)
	for _, p := range d.Parts {
		one := a.describeInstance(p)
		if p.UUID != "" {
			one.Used = v.inUse(p.UUID)
		}
		all = append(all, one)
	}
	return d.On, all
}

// describeInstance describes an instance with its shares. Agent.mu is held.
func (a *Agent) describeInstance(p backend.Part) control.Instance {
	v := control.Instance{Part: p}
	for _, t := range a.sorted() {
		if p.UUID == "" || !t.has(p.UUID) {
			continue
		}
		v.Backend = t.backend()
		v.Shares = append(v.Shares, control.FormedShare{Name: t.Name, User: t.User})
	}
	for _, o := range a.outside {
		for _, i := range a.intruders {
			if i.pid == o.PID && i.uuid == o.UUID && len(i.instances) > 0 && i.on(p.Instance) {
				o.Answer = ""
				v.Outside = append(v.Outside, o)
			}
		}
	}
	return v
}
