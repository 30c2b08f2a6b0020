package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// ErrProfile marks a profile or a place that a GPU does not have.
var ErrProfile = errors.New("no such MIG profile")

// Unsuited implements [backend.Chooser].
func (b *Backend) Unsuited(gpu backend.GPU) string {
	if b.options.Capable(gpu) {
		return ""
	}
	return "it has no MIG"
}

// Division implements [backend.Divider].
func (b *Backend) Division(ctx context.Context, gpu backend.GPU) (backend.Division, error) {
	mode, err := b.options.Reader.MIGMode(ctx, gpu.UUID)
	if errors.Is(err, nvml.ErrNoMIG) {
		return backend.Division{}, nil
	}
	if err != nil {
		return backend.Division{}, fmt.Errorf("see how it is divided by MIG: %w", err)
	}
	d := backend.Division{On: mode.Current, Pending: mode.Pending}
	if !d.On {
		return d, nil
	}
	profiles, err := b.profilesOf(ctx, gpu)
	if err != nil {
		return backend.Division{}, fmt.Errorf("see how it is divided by MIG: %w", err)
	}
	for _, p := range profiles {
		d.Profiles = append(d.Profiles, allocated(p))
		d.Sizes = append(d.Sizes, backend.Instance{Parent: gpu.UUID, Profile: p.Name, Size: sizeOf(p), Bytes: p.Bytes, Multiprocessors: p.Multiprocessors})
	}
	// The book is read first: what it says is then there already, or is being made.
	var entries []mig.Entry
	if b.options.Book != nil {
		entries = b.options.Book.Entries()
	}
	found, err := b.options.Reader.MIGInstances(ctx, gpu.UUID)
	if err != nil {
		return backend.Division{}, fmt.Errorf("see how it is divided by MIG: %w", err)
	}
	if slices.ContainsFunc(entries, func(e mig.Entry) bool { return e.GPU == gpu.UUID && e.State == mig.Whole && !e.In(found) }) {
		if _, err := b.options.Book.Forget(ctx, gpu.UUID); err != nil {
			return backend.Division{}, fmt.Errorf("cross out instances that are gone: %w", err)
		}
		entries = b.options.Book.Entries()
	}
	d.Parts = parts(gpu.UUID, profiles, entries, found)
	for i := range d.Parts {
		b.NoteReserved(ctx, gpu, d.Parts[i].Instance)
		d.Parts[i].ContextBytes = b.KnownContextOn(gpu, d.Parts[i].Instance)
	}
	for i := range d.Sizes {
		d.Sizes[i].ContextBytes, d.Sizes[i].Reserved = b.KnownContextOn(gpu, d.Sizes[i]), b.KnownReservedOn(gpu, d.Sizes[i])
	}
	return d, nil
}

// profilesOf are the profiles of a GPU in MIG mode.
func (b *Backend) profilesOf(ctx context.Context, gpu backend.GPU) ([]nvml.MIGProfile, error) {
	b.mu.Lock()
	known := b.profiles[gpu.UUID]
	b.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := b.options.Reader.MIGProfiles(ctx, gpu.UUID)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.profiles[gpu.UUID] = found
	return found, nil
}

// parts are the instances of a GPU with who made them, by place. It is pure.
func parts(parent string, profiles []nvml.MIGProfile, entries []mig.Entry, found []nvml.MIGInstance) []backend.Part {
	all := make([]backend.Part, 0, len(found))
	for _, i := range found {
		p := backend.Part{Origin: backend.OriginForeign, Instance: backend.Instance{
			Parent: parent, Profile: fmt.Sprintf("profile %d", i.Profile), Start: i.Placement.Start, Size: i.Placement.Size, GPUInstance: i.ID,
		}}
		if at := slices.IndexFunc(profiles, func(p nvml.MIGProfile) bool { return p.ID == i.Profile }); at >= 0 {
			p.Profile, p.Bytes, p.Multiprocessors = profiles[at].Name, profiles[at].Bytes, profiles[at].Multiprocessors
			p.Half = half(i, profiles[at].Slices)
		} else {
			p.Half = half(i, 0)
		}
		if len(i.Compute) == 1 {
			p.UUID, p.ComputeInstance, p.Reserved = i.Compute[0].UUID, i.Compute[0].ID, i.Compute[0].Reserved
		}
		if e, ours := entryOf(entries, parent, i); ours {
			p.Origin = originOf(e)
			if p.Origin == backend.OriginVGPU {
				p.Half = "it backs a vGPU"
			}
			if e.State != mig.Whole {
				p.Half = "Divvy is about to " + map[bool]string{true: "take it away", false: "make it"}[e.State == mig.Ending]
			}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b backend.Part) int { return a.Start - b.Start })
	return all
}

// half says why no share can have an instance as a whole, empty where one can.
func half(i nvml.MIGInstance, computeSlices int) string {
	switch {
	case len(i.Compute) == 0:
		return "it has no compute instance"
	case len(i.Compute) > 1:
		return fmt.Sprintf("it has %d compute instances", len(i.Compute))
	case i.Compute[0].Slices > 0 && i.Compute[0].Slices < computeSlices:
		return fmt.Sprintf("its compute instance has %d of its %d compute slices", i.Compute[0].Slices, computeSlices)
	case !strings.HasPrefix(i.Compute[0].UUID, uuidPrefix) || len(i.Compute[0].UUID) != uuidLength:
		return fmt.Sprintf("the driver's name of it, %s, is not a UUID: install driver 470 or newer", i.Compute[0].UUID)
	}
	return ""
}

// Names of instances are UUIDs since driver 470. Before that they were made of the GPU's name and two numbers.
const (
	uuidPrefix = "MIG-"
	uuidLength = len(uuidPrefix) + 36
)

// entryOf is the entry of the book about an instance.
func entryOf(entries []mig.Entry, parent string, i nvml.MIGInstance) (mig.Entry, bool) {
	at := slices.IndexFunc(entries, func(e mig.Entry) bool { return e.GPU == parent && e.Has(i) })
	if at < 0 {
		return mig.Entry{}, false
	}
	return entries[at], true
}

// originOf is who an entry's instance is for. An entry that does not say was made for a share.
func originOf(e mig.Entry) backend.Origin {
	switch {
	case backend.Origin(e.Origin) == backend.OriginLayout:
		return backend.OriginLayout
	case strings.HasPrefix(e.Origin, string(backend.OriginVGPU)+"."): // its owner follows
		return backend.OriginVGPU
	}
	return backend.OriginShare
}

func instanceOf(e mig.Entry, p nvml.MIGProfile) backend.Instance {
	return backend.Instance{
		UUID: e.UUID, Parent: e.GPU, Profile: e.Name, Start: e.Placement.Start, Size: e.Placement.Size, GPUInstance: e.ID, ComputeInstance: e.Compute,
		Bytes: p.Bytes, Multiprocessors: p.Multiprocessors,
	}
}

// placed finds a profile by its name, and its place that begins at a memory slice.
func placed(profiles []nvml.MIGProfile, name string, start int) (nvml.MIGProfile, nvml.MIGPlacement, error) {
	at := slices.IndexFunc(profiles, func(p nvml.MIGProfile) bool { return p.Name == name })
	if at < 0 {
		var names []string
		for _, p := range profiles {
			names = append(names, p.Name)
		}
		return nvml.MIGProfile{}, nvml.MIGPlacement{}, fmt.Errorf("%w %s: it has %s", ErrProfile, name, strings.Join(names, ", "))
	}
	p := profiles[at]
	begins := slices.IndexFunc(p.Placements, func(at nvml.MIGPlacement) bool { return at.Start == start })
	if begins < 0 {
		return p, nvml.MIGPlacement{}, fmt.Errorf("%w at memory slice %d: a %s can begin at %v", ErrProfile, start, name, startsOf(p))
	}
	return p, p.Placements[begins], nil
}

func startsOf(p nvml.MIGProfile) (starts []int) {
	for _, at := range p.Placements {
		starts = append(starts, at.Start)
	}
	return starts
}

func sizeOf(p nvml.MIGProfile) int {
	if len(p.Placements) == 0 {
		return 0
	}
	return p.Placements[0].Size
}

// allocated is a profile as the allocator has it.
func allocated(p nvml.MIGProfile) alloc.Profile {
	a := alloc.Profile{Name: p.Name, Size: sizeOf(p), Starts: startsOf(p)}
	a.Takes[layouts.ComputeSlices] = uint8(p.Slices)
	for i, counter := range []layouts.Counter{layouts.CopyEngines, layouts.Decoders, layouts.Encoders, layouts.JPEGEngines, layouts.FlowEngines} {
		a.Takes[counter] = uint8(p.Engines[i])
	}
	return a
}
