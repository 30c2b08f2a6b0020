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
		{name: "mig_share", asks: "Does a share work on a MIG instance that is there, and end at its limits?",
			expected: "it sees this instance alone, with its memory and multiprocessors; a part of it ends at the part's memory; afterwards all instances are as before",
			means:    "a share on a MIG instance does not work, or has more than it was granted, or Divvy changed an instance that it did not make",
			limit:    2 * time.Minute, needs: needs{instance: true}, run: migShare},
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

// migInstance is one as NVML tells it.
type migInstance struct {
	UUID    string `json:"uuid"`
	Profile string `json:"profile"`
	Total   uint64 `json:"total"`
	Users   int    `json:"users"`
}

// divided is a GPU with what it can be divided into and what it is.
type divided struct {
	UUID      string        `json:"uuid"`
	MIG       bool          `json:"mig"`
	Instances []migInstance `json:"instances"`
	Profiles  []migProfile  `json:"profiles"`
}

func (t *trial) divided(at place) ([]divided, error) {
	var said struct {
		GPUs []divided `json:"gpus"`
	}
	err := t.ask(&said, at, t.gpuprobe(), "mig")
	return said.GPUs, err
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
	gpus, err := t.divided(t.natively())
	if err != nil {
		return err
	}
	var other []string
	asked := 0
	for i, g := range gpus {
		if i >= len(t.machine.GPUs) || len(g.Profiles) == 0 {
			continue
		}
		model, err := modelled(t.machine.GPUs[i].Name)
		if err != nil {
			return err
		}
		asked++
		t.note("GPU %d, %s: %d instances", i, t.machine.GPUs[i].Name, len(g.Instances))
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
