package mig

import (
	"context"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Listed is an instance of a GPU as lists show it.
type Listed struct {
	nvml.MIGInstance
	// Name is the profile's, or its number where the GPU does not tell of it.
	Name string
	// Ours is true for those of the book.
	Ours bool
	// Half is true for a GPU instance without a compute instance: no program can use it.
	Half bool
}

// List is every instance of a GPU, by placement.
func (b *Book) List(ctx context.Context, gpu string) ([]Listed, error) {
	found, err := b.instances(ctx, gpu)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	profiles, err := b.driver.MIGProfiles(ctx, gpu)
	if err != nil {
		return nil, fmt.Errorf("read the MIG profiles of %s: %w", gpu, err)
	}
	var all []Listed
	for _, i := range found {
		l := Listed{MIGInstance: i, Name: fmt.Sprintf("profile %d", i.Profile), Half: len(i.Compute) == 0}
		if at := slices.IndexFunc(profiles, func(p nvml.MIGProfile) bool { return p.ID == i.Profile }); at >= 0 {
			l.Name = profiles[at].Name
		}
		l.Ours = slices.ContainsFunc(b.Entries(), func(e Entry) bool { return e.GPU == gpu && e.is(i) })
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Listed) int { return a.Placement.Start - b.Placement.Start })
	return all, nil
}

// Forget crosses out the whole instances of a GPU that somebody else took away, and returns them. What is made in their
// place, by whomever, is not theirs.
func (b *Book) Forget(ctx context.Context, gpu string) (gone []Entry, err error) {
	done, err := b.turn(ctx, gpu)
	if err != nil {
		return nil, err
	}
	defer done()
	listed, err := b.instances(ctx, gpu)
	if err != nil {
		return nil, err
	}
	for _, e := range b.Entries() {
		if e.GPU != gpu || e.State != Whole || e.In(listed) {
			continue
		}
		if err := b.end(ctx, e); err != nil { // a GPU instance may be left of it
			return gone, fmt.Errorf("cross out MIG instance %s at %d: %w", e.Name, e.Placement.Start, err)
		}
		gone = append(gone, e)
	}
	return gone, nil
}
