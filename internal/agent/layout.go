package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/migfile"
)

// layout gives a GPU a layout of MIG instances: all of it, or nothing.
func (a *Agent) layout(ctx context.Context, peer *control.Peer, p control.LayoutParams) (*control.Rearrangement, error) {
	gpu, err := a.dividable(peer, p.GPU)
	if err != nil {
		return nil, err
	}
	if !p.On && len(p.Instances) > 0 {
		return nil, control.Errorf(control.CodeInvalid, "a GPU has no MIG instances while its MIG mode is off")
	}
	if !p.Dry {
		release, err := a.closeFor(gpu, "its layout is about to change")
		if err != nil {
			return nil, err
		}
		defer release()
	}
	f := a.formings[gpu.UUID]
	f.turn.Lock()
	defer f.turn.Unlock()
	a.readInTurn(ctx, gpu)
	d := a.divisions.get(gpu.UUID)
	if d.unknown != "" {
		return nil, control.Errorf(control.CodeRefused, "GPU %d: how it is divided is not known: %s", gpu.Index, d.unknown)
	}
	to, err := a.planLayout(gpu, p)
	if err != nil || p.Dry || to.Empty() && !p.On {
		return to, err
	}
	if err := a.noteLaying(gpu, p); err != nil {
		return nil, err
	}
	err = a.applyLayout(ctx, gpu, p, to)
	a.endLaying(ctx, gpu)
	if err != nil {
		return nil, control.Errorf(control.CodeRefused, "GPU %d keeps its layout: %v", gpu.Index, err)
	}
	return to, nil
}

// closeFor keeps new shares from a GPU. Those that are there stay. Release opens it again.
func (a *Agent) closeFor(gpu backend.GPU, why string) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.formings[gpu.UUID]
	if f.closed != "" {
		return nil, control.Errorf(control.CodeRefused, "GPU %d: %s already: somebody else asked for that", gpu.Index, f.closed)
	}
	f.closed = why
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		f.closed = ""
		a.announce()
	}, nil
}

// planLayout works out what gives a GPU a layout. It changes nothing. Who calls it has the turn at the GPU's form.
func (a *Agent) planLayout(gpu backend.GPU, p control.LayoutParams) (*control.Rearrangement, error) {
	d := a.divisions.get(gpu.UUID)
	to := &control.Rearrangement{Index: gpu.Index, UUID: gpu.UUID}
	if d.On != p.On {
		to.Mode = new(p.On)
	}
	have := a.inPlace(gpu, d)
	if to.Mode != nil {
		a.mu.Lock()
		users := a.usersOf(gpu)
		a.mu.Unlock()
		if len(users) > 0 {
			return nil, control.Errorf(control.CodeRefused, "GPU %d has shares: %s: end them first", gpu.Index, strings.Join(users, ", "))
		}
	}
	if lost := a.lostOn(gpu); len(lost) > 0 {
		return nil, control.Errorf(control.CodeRefused, "GPU %d has shares whose instances were taken away: %s: end them first", gpu.Index, strings.Join(lost, ", "))
	}
	if !d.On || !p.On {
		return to, a.planMode(gpu, p, have, to)
	}
	plan, err := migfile.PlanFor(d.model, have, p.Instances)
	if err != nil {
		return nil, control.Errorf(control.CodeRefused, "GPU %d: %v", gpu.Index, err)
	}
	for _, i := range plan.Remove {
		to.Remove = append(to.Remove, control.Placement{UUID: i.UUID, Profile: i.Profile, Start: i.Start})
	}
	for _, place := range plan.Add {
		to.Add = append(to.Add, control.Placement{Profile: d.model.Profiles()[place.Profile].Name, Start: place.Start})
	}
	return to, nil
}

// lostOn are the shares of a GPU whose MIG instance somebody else took away: what is made in its place has the same UUID.
func (a *Agent) lostOn(gpu backend.GPU) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.sorted() {
		if t.gone != "" && slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == gpu.UUID }) {
			names = append(names, t.fullName())
		}
	}
	return names
}

// planMode adds what a change of the mode does with instances.
func (a *Agent) planMode(gpu backend.GPU, p control.LayoutParams, have []migfile.Instance, to *control.Rearrangement) error {
	for _, i := range have {
		if i.Fixed != "" {
			return control.Errorf(control.CodeRefused, "GPU %d: %s %s has to stay: %s", gpu.Index, i.Profile, i.UUID, i.Fixed)
		}
		to.Remove = append(to.Remove, control.Placement{UUID: i.UUID, Profile: i.Profile, Start: i.Start})
	}
	var names []string
	for name, n := range p.Instances {
		for range n {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		to.Add = append(to.Add, control.Placement{Profile: name, Start: -1})
	}
	return nil
}

// fixedBy says whose an instance is that no layout takes away.
var fixedBy = map[backend.Origin]string{backend.OriginForeign: "another tool's", backend.OriginVGPU: "of a vGPU"}

// inPlace are the instances of a GPU, with why those have to stay that no layout may take away.
func (a *Agent) inPlace(gpu backend.GPU, d division) (have []migfile.Instance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range d.Parts {
		one := migfile.Instance{UUID: p.UUID, Profile: p.Profile, Start: p.Start, Half: p.Half != "" && p.Origin == backend.OriginForeign}
		var users []string
		for _, t := range a.sorted() {
			if p.UUID != "" && t.has(p.UUID) {
				users = append(users, t.fullName())
			}
		}
		for _, i := range a.intruders {
			if i.on(p.Instance) {
				users = append(users, "process "+strconv.Itoa(i.pid))
			}
		}
		if one.Fixed = fixedBy[p.Origin]; len(users) > 0 {
			one.Fixed = "used by " + strings.Join(users, ", ")
		}
		have = append(have, one)
	}
	for _, t := range a.sorted() {
		for _, s := range t.Shares {
			if s.UUID == gpu.UUID && s.Instance != nil && s.Instance.UUID == "" {
				have = append(have, migfile.Instance{UUID: "about to be made", Profile: s.Instance.Profile, Start: s.Instance.Start, Fixed: "for " + t.fullName()})
			}
		}
	}
	return have
}

// applyLayout carries a rearrangement out. What was done is put back if something fails. Who calls it has the turn at the
// GPU's form.
func (a *Agent) applyLayout(ctx context.Context, gpu backend.GPU, p control.LayoutParams, to *control.Rearrangement) (err error) {
	var made []backend.Instance
	var gone []backend.Part
	turned := false
	defer func() {
		if err == nil {
			return
		}
		back := context.WithoutCancel(ctx)
		if turned {
			_ = a.putBack(back, gpu, made, nil)
			err = errors.Join(err, a.turnTo(back, gpu, !p.On))
			made = nil
		}
		err = errors.Join(err, a.putBack(back, gpu, made, gone))
	}()
	for _, place := range to.Remove {
		d := a.divisions.get(gpu.UUID)
		part, ok := d.part(place.UUID)
		if !ok {
			continue
		}
		if err := a.takeAway(ctx, gpu, part); err != nil {
			return err
		}
		gone = append(gone, part)
	}
	if to.Mode != nil {
		if err := a.turnFor(ctx, gpu, p, to); err != nil {
			return err
		}
		turned = true
	}
	for _, place := range to.Add {
		one, err := a.divider().Create(ctx, gpu, place.Profile, place.Start, backend.OriginLayout)
		if err != nil {
			return fmt.Errorf("make %s at memory slice %d: %w", place.Profile, place.Start, err)
		}
		a.addPart(gpu, backend.Part{Instance: one, Origin: backend.OriginLayout})
		made = append(made, one)
		a.step("layout-added")
	}
	return a.keepLayout(ctx, gpu)
}

// turnTo is setMode with an error that says what was tried: a layout is more than a mode.
func (a *Agent) turnTo(ctx context.Context, gpu backend.GPU, on bool) error {
	if err := a.setMode(ctx, gpu, on); err != nil {
		word := "off"
		if on {
			word = "on"
		}
		return fmt.Errorf("turn the MIG mode %s: %w", word, err)
	}
	return nil
}

// turnFor turns the mode, and plans what is to be made then.
func (a *Agent) turnFor(ctx context.Context, gpu backend.GPU, p control.LayoutParams, to *control.Rearrangement) error {
	if err := a.leaveInTurn(ctx, gpu); err != nil {
		return err
	}
	if err := a.turnTo(ctx, gpu, p.On); err != nil || !p.On {
		return err
	}
	planned, err := a.planLayout(gpu, p)
	if err != nil {
		return errors.Join(err, a.turnTo(context.WithoutCancel(ctx), gpu, false))
	}
	to.Add = planned.Add
	return nil
}

// keepLayout makes the instances of shares that a layout keeps those of the layout, so that they stay.
func (a *Agent) keepLayout(ctx context.Context, gpu backend.GPU) error {
	d := a.divisions.get(gpu.UUID)
	var claimed []string
	for _, p := range d.Parts {
		if p.Origin != backend.OriginShare {
			continue
		}
		if err := a.divider().Claim(ctx, gpu, p.UUID, backend.OriginLayout); err != nil {
			err = fmt.Errorf("keep %s: %w", instanceText(p.Instance), err)
			for _, uuid := range claimed {
				err = errors.Join(err, a.divider().Claim(context.WithoutCancel(ctx), gpu, uuid, backend.OriginShare))
			}
			return err
		}
		claimed = append(claimed, p.UUID)
	}
	d.Parts = slices.Clone(d.Parts)
	for i := range d.Parts {
		if slices.Contains(claimed, d.Parts[i].UUID) {
			d.Parts[i].Origin = backend.OriginLayout
		}
	}
	return a.divisions.set(gpu.UUID, d)
}
