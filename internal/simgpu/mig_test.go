package simgpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layouts counts the sets of instances that do not overlap. Profiles with media extensions, of which there is one at
// most, would count a place twice.
func layouts(profiles []MIGProfile, taken uint32) int {
	count := 1
	for i, p := range profiles {
		for k, start := range p.Starts {
			bits := (uint32(1)<<p.Size - 1) << start
			if taken&bits != 0 {
				continue
			}
			// Each set is counted in one order: this profile's later starts, then the later profiles.
			rest := append([]MIGProfile{{Size: p.Size, Starts: p.Starts[k+1:]}}, profiles[i+1:]...)
			count += layouts(rest, taken|bits)
		}
	}
	return count
}

func TestMIGProfilesOfMachines(t *testing.T) {
	for machine, want := range map[string]struct{ profiles, layouts int }{
		"a100-80g": {7, 723}, "a800x8": {7, 723}, "h100x8": {7, 723}, "h200x8": {7, 723}, "b200x8": {7, 723}, "a30": {5, 26}, "t4": {0, 1},
	} {
		m := load(t, machine)
		plain := slices.DeleteFunc(slices.Clone(m.GPU.MIGProfiles), func(p MIGProfile) bool { return strings.HasSuffix(p.Name, "+me") })
		if got := layouts(plain, 0); len(m.GPU.MIGProfiles) != want.profiles || got != want.layouts {
			t.Errorf("%s: %d profiles with %d layouts, want %+v", machine, len(m.GPU.MIGProfiles), got, want)
		}
		for _, p := range m.GPU.MIGProfiles {
			most := uint64(m.GPU.Memory-m.GPU.Reserved) * uint64(p.Size) / uint64(m.GPU.migSlices())
			if uint64(p.Memory) > most {
				t.Errorf("%s: %s has %v, of %d bytes that its slices have", machine, p.Name, p.Memory, most)
			}
		}
	}
}

func TestImageOfMIGProfiles(t *testing.T) {
	image := imageOf(t, load(t, "a100-80g"), "s")
	if image.MIGProfileCount != 7 || image.MIGSlices != 8 {
		t.Fatalf("%d profiles over %d memory slices", image.MIGProfileCount, image.MIGSlices)
	}
	p := image.MIGProfiles[4]
	if text(p.Name[:]) != "3g.40gb" || p.ID != 9 || p.Kind != 2 || p.Starts != 1|1<<4 || p.Size != 4 || p.Slices != 3 || p.MemoryMib != 40192 || p.Multiprocessors != 42 {
		t.Errorf("the profile 3g.40gb is %+v", p)
	}
	// A machine with less memory has smaller instances.
	if p := imageOf(t, load(t, "a100-80g", "gpu.memory=1Gi", "gpu.reserved=64Mi"), "s").MIGProfiles[0]; p.MemoryMib != 120 {
		t.Errorf("one memory slice of 960 MiB is %d MiB", p.MemoryMib)
	}
}

func TestFaultsOfMIGProfiles(t *testing.T) {
	for override, want := range map[string]string{
		"gpu.migProfiles[0].name=one":     "is not of the form",
		"gpu.migProfiles[0].kind=9_SLICE": "is none of",
		"gpu.migProfiles[0].id=20":        "another profile has this id or kind",
		"gpu.migProfiles[0].size=3":       "is not a power of two",
		"gpu.migProfiles[0].slices=9":     "is not between 1 and 8",
		"gpu.migProfiles[0].starts[0]=8":  "cannot begin there",
		"gpu.migProfiles[0].instances=0":  "is not between 1 and 8",
		"gpu.migProfiles[0].memory=5Ti":   "is not between",
		"gpu.mig=false":                   "the model has no MIG",
	} {
		if _, err := Load("a100-80g", override); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", override, err, want)
		}
	}
}

func TestCapabilitiesOfAMachine(t *testing.T) {
	store := builtStore(t)
	instance := start(t, store, "lab", load(t, "a100-80g", "gpu.memory=1Gi", "gpu.reserved=64Mi", "gpus[0].migMode=true"), "")
	read := func(path string) string {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	minors := read(filepath.Join(instance.Proc(), "driver/nvidia-caps/mig-minors"))
	for _, line := range []string{"config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi1/ci0/access 13", "gpu0/gi14/ci7/access 137"} {
		if !strings.Contains("\n"+minors, "\n"+line+"\n") {
			t.Errorf("mig-minors has no line %q", line)
		}
	}
	if got := read(filepath.Join(instance.Proc(), "driver/nvidia/capabilities/mig/config")); got != "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n" {
		t.Errorf("the capability to change instances is %q", got)
	}
	if mig := report(t, store, instance).GPUs[0].MIG; mig == nil || !mig.On || !mig.Pending || len(mig.Instances) != 0 {
		t.Errorf("the report has %+v", mig)
	}
	other := start(t, store, "t4", load(t, "t4"), "")
	if report(t, store, other).GPUs[0].MIG != nil {
		t.Error("a T4 has MIG")
	}
}
