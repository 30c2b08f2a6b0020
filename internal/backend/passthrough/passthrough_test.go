package passthrough_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend/passthrough"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

type book struct{}

func (book) Bind(context.Context, string, binding.Plan) error        { return nil }
func (book) Release(context.Context, string) ([]vfio.Foreign, error) { return nil, nil }
func (book) Entries() []vfio.Entry                                   { return nil }

// What is given tells which functions nothing resets.
func TestGivenTellsWhatNothingResets(t *testing.T) {
	at := pci.Address{Bus: 1}
	for want, ways := range map[int][]string{0: {"flr"}, 1: nil} {
		d := facts.Device{Group: 7, Driver: "nvidia", ResetKnown: true, Resets: ways}
		d.Address = at
		host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}, Devices: []facts.Device{d}}
		given, err := passthrough.Whole(book{}, nil, func() (*facts.Host, error) { return host, nil }).Take(t.Context(),
			claims.Want{Name: "train", Device: at}, func([]pci.Address) error { return nil })
		if err != nil || !slices.Equal(given.Members, []pci.Address{at}) || len(given.Unreset) != want {
			t.Errorf("by %v: %+v, %v", ways, given, err)
		}
	}
}

// What others had set of a device before is a note of what is given.
func TestGivenTellsWhatOthersHadSet(t *testing.T) {
	d := facts.Device{Group: 7, Driver: "nvidia", Override: "nvidia"}
	host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}, Devices: []facts.Device{d}}
	given, err := passthrough.Whole(book{}, nil, func() (*facts.Host, error) { return host, nil }).Take(t.Context(),
		claims.Want{Name: "train"}, func([]pci.Address) error { return nil })
	if err != nil || len(given.Notes) != 1 || !strings.Contains(given.Notes[0], `driver_override of 0000:00:00.0 to "nvidia"`) {
		t.Errorf("%q, %v", given.Notes, err)
	}
}
