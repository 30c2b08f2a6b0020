// Package backing makes the GPU instances behind vGPUs by the book of MIG instances.
package backing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// MIG are the GPU instances of a machine by the book of MIG instances. Each is made whole, with its compute instance, as that
// book makes all.
type MIG struct {
	Book   *mig.Book
	Driver mig.Reader
	// UUID is the driver's name of the GPU at an address, "" for none.
	UUID func(gpu pci.Address) string
}

var _ vgpu.Instances = MIG{}

// origin says in the book for whom an instance is.
func origin(owner string) string { return string(backend.OriginVGPU) + "." + owner }

// Make implements [vgpu.Instances]. The instance goes where it leaves the most places for others.
func (m MIG) Make(ctx context.Context, gpu pci.Address, profile, owner string) (int, error) {
	uuid := m.UUID(gpu)
	if uuid == "" {
		return 0, fmt.Errorf("%w: %s", nvml.ErrVanished, gpu)
	}
	for _, e := range m.Book.Entries() {
		switch {
		case e.Origin != origin(owner) || e.State != mig.Whole:
		case e.GPU == uuid && e.Name == profile:
			return e.ID, nil
		default:
			return 0, fmt.Errorf("%w: instance %s on %s", vgpu.ErrOwner, e.Name, e.GPU)
		}
	}
	profiles, err := m.Driver.MIGProfiles(ctx, uuid)
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(profiles, func(p nvml.MIGProfile) bool { return p.Name == profile })
	if at < 0 {
		return 0, fmt.Errorf("%w: the GPU has no profile %s", mig.ErrOccupied, profile)
	}
	err = fmt.Errorf("%w: it has no place", mig.ErrOccupied)
	for _, place := range ranked(profiles, profiles[at]) {
		var made mig.Entry
		if made, err = m.Book.Create(ctx, uuid, profiles[at], place, origin(owner)); err == nil {
			return made.ID, nil
		}
		if !errors.Is(err, mig.ErrOccupied) {
			break
		}
	}
	return 0, err
}

// ranked are the places of a profile, those first that are in the way of the fewest places of all profiles, and of these the last.
func ranked(profiles []nvml.MIGProfile, p nvml.MIGProfile) []nvml.MIGPlacement {
	ways := func(at nvml.MIGPlacement) (count int) {
		for _, other := range profiles {
			for _, place := range other.Placements {
				if at.Start < place.Start+place.Size && place.Start < at.Start+at.Size {
					count++
				}
			}
		}
		return count
	}
	places := slices.Clone(p.Placements)
	slices.SortStableFunc(places, func(a, b nvml.MIGPlacement) int {
		if d := ways(a) - ways(b); d != 0 {
			return d
		}
		return b.Start - a.Start
	})
	return places
}

// Take implements [vgpu.Instances].
func (m MIG) Take(ctx context.Context, owner string) error {
	for _, e := range m.Book.Entries() {
		if e.Origin != origin(owner) {
			continue
		}
		err := m.Book.Settle(ctx, e.GPU) // of what is half made
		if e.State == mig.Whole {
			err = m.Book.Destroy(ctx, e.UUID)
		}
		if err != nil {
			return fmt.Errorf("take GPU instance %s of %s away: %w", e.Name, e.GPU, err)
		}
	}
	return nil
}

// Owners implements [vgpu.Instances].
func (m MIG) Owners() (owners []string) {
	for _, e := range m.Book.Entries() {
		if owner, is := strings.CutPrefix(e.Origin, origin("")); is && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	return owners
}
