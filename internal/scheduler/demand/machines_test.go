package demand_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

func modelOf(t testing.TB, name string) *layouts.Model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../testdata/mig", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := layouts.NewModel(profiles)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var gigabytes = regexp.MustCompile(`\.(\d+)gb`)

// instanceAt describes an instance: its memory is what the profile's name says, and its processors follow from its slices.
func instanceAt(m *layouts.Model, profile, start int) pool.Instance {
	p := m.Profiles()[profile]
	var memory uint64
	fmt.Sscan(gigabytes.FindStringSubmatch(p.Name)[1], &memory)
	return pool.Instance{Profile: p.Name, Start: start, Size: p.Size, Takes: p.Takes, Memory: memory << 30, Multiprocessors: 14 * int(p.Takes[layouts.ComputeSlices])}
}

// dividable are GPUs whose layout may change.
func dividable(t testing.TB, first, n int) []pool.GPU {
	t.Helper()
	m := modelOf(t, "a100-80gb")
	gpus := gpusOf(first, n, 79<<30)
	for i := range gpus {
		gpus[i].Form, gpus[i].Division = pool.MIG, &pool.Division{Dynamic: true, Multiprocessors: 98}
		for rank, p := range m.Placements() {
			one := instanceAt(m, p.Profile, p.Start)
			one.Rank = rank
			gpus[i].Division.Instances = append(gpus[i].Division.Instances, one)
		}
	}
	return gpus
}

// divided are GPUs with these instances each, such as 1g.10gb@3.
func divided(t testing.TB, first, n int, instances ...string) []pool.GPU {
	t.Helper()
	m := modelOf(t, "a100-80gb")
	gpus := gpusOf(first, n, 79<<30)
	for i := range gpus {
		gpus[i].Form, gpus[i].Division, gpus[i].NVIDIANames = pool.MIG, &pool.Division{Multiprocessors: 98}, true
		for k, text := range instances {
			name, at, _ := strings.Cut(text, "@")
			start := 0
			fmt.Sscan(at, &start)
			if m.Placed(m.Profile(name), start) == 0 {
				t.Fatalf("no placement %s", text)
			}
			one := instanceAt(m, m.Profile(name), start)
			one.UUID = fmt.Sprintf("MIG-%08x-2222-4333-8444-%012x", first+i, k)
			gpus[i].Division.Instances = append(gpus[i].Division.Instances, one)
		}
	}
	return gpus
}

// ofForm gives GPUs a form, and shares default cores where the form has any.
func ofForm(gpus []pool.GPU, form pool.Form, cores int) []pool.GPU {
	for i := range gpus {
		gpus[i].Form, gpus[i].DefaultCores, gpus[i].NVIDIANames = form, cores, true
	}
	return gpus
}

// every has nodes with GPUs of each form, and of two models.
func every(t testing.TB) *cluster {
	other := ofForm(gpusOf(700, 2, 40<<30), pool.Shared, 0)
	for i := range other {
		other[i].Model, other[i].Architecture = "Tesla T4", "turing"
	}
	c := newCluster(t,
		gpusOf(0, 8, 80<<30), ofForm(gpusOf(100, 4, 80<<30), pool.Shared, 40), ofForm(gpusOf(200, 2, 80<<30), pool.Timeslice, 0),
		ofForm(gpusOf(300, 2, 80<<30), pool.MPS, 0), dividable(t, 400, 2),
		divided(t, 500, 2, "1g.10gb@0", "1g.10gb@1", "2g.20gb@2", "3g.40gb@4"), other)
	c.classes["any.example.com"] = madeClass("any.example.com", `device.driver == "divvy.dev"`)
	return c
}
