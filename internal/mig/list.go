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

// Gone are the whole instances of the book that somebody else took away, as an agent that runs has to notice. They stay
// in the book until [Book.Recover].
func (b *Book) Gone(ctx context.Context) ([]Entry, error) {
	var gone []Entry
	for _, e := range b.Entries() {
		if e.State != Whole {
			continue
		}
		whole, err := b.stands(ctx, e)
		if err != nil {
			return gone, err
		}
		if !whole {
			gone = append(gone, e)
		}
	}
	return gone, nil
}
