package claims

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// entries are those of a book.
type entries []vfio.Entry

func (e entries) Entries() []vfio.Entry { return e }

// What is in the book and not any more on the machine is told as that, unless it is on its way or stuck.
func TestStandingIsTheMachines(t *testing.T) {
	const (
		device = "bus/pci/devices/0000:07:00.0"
		driver = "->../../../bus/pci/drivers/"
		made   = device + "/mdev"
	)
	at := pci.Address{Bus: 7}
	steps := []binding.Step{
		{Kind: binding.Unbind, Device: at, State: binding.State{Path: device + "/driver", Link: true}, Before: "nvidia"},
		{Kind: binding.Probe, Device: at, State: binding.State{Path: device + "/driver", Link: true}, After: binding.Driver},
		{Kind: binding.Mediate, Device: at, State: binding.State{Path: made, Link: true}, After: "nvidia-471"},
		{Kind: binding.Type, Device: at, State: binding.State{Path: device + "/nvidia/current_vgpu_type"}, Before: "0", After: "471"},
	}
	sound := map[string]string{
		"sys/" + device + "/driver": driver + binding.Driver, "sys/" + made: "->../types/nvidia-471", "sys/" + device + "/nvidia/current_vgpu_type": "471\n",
	}
	for name, c := range map[string]struct {
		file, content string // replaces what is sound, "" takes it away
		phase         vfio.Phase
		stuck         *vfio.StuckError
		want          string
	}{
		"sound":                 {phase: vfio.Bound},
		"no driver":             {file: device + "/driver", phase: vfio.Bound, want: "the driver of 0000:07:00.0 was taken away by somebody else"},
		"another driver":        {file: device + "/driver", content: driver + "nvidia", phase: vfio.Bound, want: `the driver of 0000:07:00.0 is "nvidia" now: somebody else changed it`},
		"no mediated device":    {file: made, phase: vfio.Bound, want: "the mediated device of 0000:07:00.0 was taken away by somebody else"},
		"a cleared type":        {file: device + "/nvidia/current_vgpu_type", content: "0\n", phase: vfio.Bound, want: "the type of 0000:07:00.0 was taken away by somebody else"},
		"on its way":            {file: device + "/driver", phase: vfio.Binding},
		"stuck":                 {file: device + "/driver", phase: vfio.Bound, stuck: &vfio.StuckError{Device: at}},
		"a type that is unread": {file: device + "/nvidia/current_vgpu_type", phase: vfio.Bound},
	} {
		root := sysfstest.Tree(sound)
		if c.file != "" {
			delete(root, "sys/"+c.file)
		}
		if c.content != "" {
			sysfstest.Set(root, "sys/"+c.file, c.content)
		}
		book := entries{{Owner: "train", Plan: binding.Plan{Device: at, Steps: steps}, Phase: c.phase, Stuck: c.stuck}}
		if s := StandingIn(book, root, "train"); !s.There || s.Lost != c.want || (s.Stuck != "") != (c.stuck != nil) {
			t.Errorf("%s: %+v, want %q", name, s, c.want)
		}
		if s := StandingIn(book, nil, "train"); s.Lost != "" {
			t.Errorf("%s: without a machine %+v", name, s)
		}
		if s := StandingIn(book, sysfstest.Tree(nil), "train"); (s.Lost == "device 0000:07:00.0 is gone") != (c.phase == vfio.Bound && c.stuck == nil) {
			t.Errorf("%s: without the device %+v", name, s)
		}
	}
}

// A claim whose device is lost has that as its fault, until it is there again.
func TestLostDeviceIsAFault(t *testing.T) {
	k := newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	if _, err := l.Take(t.Context(), want("train", 7), nil); err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, lost := range []string{"", "it is gone", ""} {
		k.set(func() { k.lost = lost })
		l.Look(t.Context())
		all, _ := l.List()
		faults = append(faults, all[0].Fault)
	}
	if !slices.Equal(faults, []string{"", "it is gone", ""}) {
		t.Errorf("its faults are %q", faults)
	}
	k.set(func() { k.lost = "it is gone" })
	l.Look(t.Context())
	if err := l.Release(t.Context(), "train"); err != nil {
		t.Errorf("released: %v", err)
	}
	if all, _ := l.List(); len(all) != 0 {
		t.Errorf("there is %+v", all)
	}
}
