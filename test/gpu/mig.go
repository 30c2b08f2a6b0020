package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func migCases() []testCase {
	return []testCase{
		{name: "mig_profiles", asks: "Are the profiles of MIG instances those of the simulated GPU of this model?",
			expected: "the same names, numbers, slices, multiprocessors, memory and, on a GPU in MIG mode, places",
			means:    "the simulated GPU shows other instances than the card; Divvy itself reads them from the driver",
			limit:    30 * time.Second, needs: needs{listed: true}, run: migProfiles},
	}
}

// migProfile is a profile as NVML tells it. Size and Starts are unknown where the GPU is not in MIG mode.
type migProfile struct {
	Name      string `json:"name"`
	ID        uint32 `json:"id"`
	Slices    uint32 `json:"slices"`
	Instances uint32 `json:"instances"`
	SMs       uint32 `json:"sms"`
	MemoryMiB uint64 `json:"memory_mib"`

	Size   uint32   `json:"size"`
	Starts []uint32 `json:"starts"`
}

func (p migProfile) text() string {
	text := fmt.Sprintf("id %d, %d slices, %d at once, %d multiprocessors, %d MiB", p.ID, p.Slices, p.Instances, p.SMs, p.MemoryMiB)
	if p.Starts != nil {
		text += fmt.Sprintf(", %d memory slices at %v", p.Size, p.Starts)
	}
	return text
}

// modelled are the profiles of the simulated GPU of a model, by names; nil where there is none.
func modelled(model string) (map[string]migProfile, error) {
	for _, name := range simgpu.Names() {
		m, err := simgpu.Load(name)
		if err != nil {
			return nil, err
		}
		if m.GPU.Name != model || len(m.GPU.MIGProfiles) == 0 {
			continue
		}
		profiles := map[string]migProfile{}
		for _, p := range m.GPU.MIGProfiles {
			profiles[p.Name] = migProfile{p.Name, p.ID, p.Slices, p.Instances, p.Multiprocessors, uint64(p.Memory) / mib, p.Size, p.Starts}
		}
		return profiles, nil
	}
	return nil, nil
}

func migProfiles(t *trial) error {
	var said struct {
		GPUs []struct {
			Instances int          `json:"instances"`
			Profiles  []migProfile `json:"profiles"`
		} `json:"gpus"`
	}
	if err := t.ask(&said, t.natively(), t.gpuprobe(), "mig"); err != nil {
		return err
	}
	var other []string
	asked := 0
	for i, g := range said.GPUs {
		if i >= len(t.machine.GPUs) || len(g.Profiles) == 0 {
			continue
		}
		model, err := modelled(t.machine.GPUs[i].Name)
		if err != nil {
			return err
		}
		asked++
		t.note("GPU %d, %s: %d instances", i, t.machine.GPUs[i].Name, g.Instances)
		other = append(other, t.compareProfiles(g.Profiles, model)...)
	}
	switch {
	case asked == 0:
		return skip("no GPU has MIG, or the driver does not name profiles")
	case len(other) > 0:
		return differ("%v", other)
	}
	return nil
}

// compareProfiles notes what the driver tells of a GPU, and returns what the simulated one has otherwise.
func (t *trial) compareProfiles(found []migProfile, model map[string]migProfile) (other []string) {
	for _, p := range found {
		want, known := model[p.Name]
		if p.Starts == nil {
			want.Size, want.Starts = 0, nil
		}
		expected := "not simulated"
		if known {
			expected = want.text()
		}
		seen := p.text()
		if expected != seen {
			seen += "; simulated: " + expected
		}
		t.facts = append(t.facts, fact{What: p.Name, Seen: seen})
		if model != nil && expected != p.text() {
			other = append(other, p.Name)
		}
	}
	for name := range model {
		if !slices.ContainsFunc(found, func(p migProfile) bool { return p.Name == name }) {
			other = append(other, name+" is missing")
		}
	}
	slices.Sort(other)
	if model == nil {
		t.note("no GPU of this model is simulated: send the report")
	}
	return other
}
