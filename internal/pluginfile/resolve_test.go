package pluginfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// uuidOf is a UUID that ends in a number.
func uuidOf(n int) string { return fmt.Sprintf("b1028956-cfa2-0990-bf4a-%012d", n) }

// divided is a GPU in MIG mode with devices of these profiles, whose UUIDs count from ten times the index.
func divided(index int, profiles ...string) GPU {
	g := GPU{Index: index, UUID: "GPU-" + uuidOf(index), MIG: true}
	for i, p := range profiles {
		g.Instances = append(g.Instances, Instance{UUID: "MIG-" + uuidOf(10*index+i), Profile: p, GPUInstance: 7 + i})
	}
	return g
}

// listedAs writes devices as "name index:place*replicas …".
func listedAs(gpus []GPU, devices []Device) string {
	var all []string
	for i := range devices {
		d := &devices[i]
		text := strings.TrimPrefix(d.Name(), "nvidia.com/") + " " + strings.TrimPrefix(strings.TrimPrefix(d.text(gpus), "GPU "), "MIG device ")
		if d.Entry != nil {
			text += fmt.Sprintf("*%d %s", d.Entry.Replicas, d.Entry.Backend)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestResolveOfInstances(t *testing.T) {
	plain := GPU{Index: 1, UUID: "GPU-" + uuidOf(1)}
	mixed := []GPU{divided(0, "3g.40gb", "1g.10gb", "1g.10gb+me"), plain, divided(2, "1g.10gb")}
	same := []GPU{divided(0, "1g.10gb", "1g.10gb"), divided(1, "1g.10gb")}
	entry := func(kind, text string) string { return ", sharing: {" + kind + ": {" + text + "}}" }
	for name, c := range map[string]struct {
		gpus     []GPU
		strategy string
		sharing  string
		want     string // or what the error says
		absent   string
	}{
		"none counts no device of MIG":    {gpus: mixed, strategy: "none", want: "gpu 1"},
		"mixed":                           {gpus: mixed, strategy: "mixed", want: "mig-3g.40gb 0:0, mig-1g.10gb 0:1, mig-1g.10gb.me 0:2, gpu 1, mig-1g.10gb 2:0"},
		"mixed with a GPU of none":        {gpus: []GPU{divided(0), plain}, strategy: "mixed", want: "gpu 1"},
		"single":                          {gpus: same, strategy: "single", want: "gpu 0:0, gpu 0:1, gpu 1:0"},
		"single without MIG":              {gpus: []GPU{plain}, strategy: "single", want: "gpu 1"},
		"single with two profiles":        {gpus: []GPU{divided(0, "1g.10gb"), divided(1, "3g.40gb")}, strategy: "single", want: "flags.migStrategy single: there are instances of profiles 1g.10gb and 3g.40gb: divide all GPUs"},
		"single beside a GPU without MIG": {gpus: []GPU{divided(0, "1g.10gb"), plain}, strategy: "single", want: "GPU 0 is in MIG mode, and GPU 1 is not"},
		"single with an empty GPU":        {gpus: []GPU{divided(0, "1g.10gb"), divided(1)}, strategy: "single", want: "GPU 1 is in MIG mode and has no instances"},
		"replicas of one profile": {
			gpus: mixed, strategy: "mixed", sharing: entry("timeSlicing", "renameByDefault: true, resources: [{name: mig-1g.10gb, replicas: 2}, {name: gpu, replicas: 4}]"),
			want: "mig-3g.40gb 0:0, mig-1g.10gb.shared 0:1*2 timeslice, mig-1g.10gb.me 0:2, gpu.shared 1*4 timeslice, mig-1g.10gb.shared 2:0*2 timeslice",
		},
		"replicas of one instance": {
			gpus: mixed, strategy: "mixed", sharing: entry("mps", "resources: [{name: mig-1g.10gb, replicas: 3, devices: ['2:0', '9:0']}]"),
			want: "mig-3g.40gb 0:0, mig-1g.10gb 0:1, mig-1g.10gb.me 0:2, gpu 1, mig-1g.10gb 2:0*3 mps", absent: "9:0",
		},
		"replicas by UUIDs of both kinds": {
			gpus: mixed, strategy: "mixed", sharing: entry("mps", "resources: [{name: mig-1g.10gb, replicas: 3, devices: [MIG-"+uuidOf(20)+", MIG-GPU-"+uuidOf(0)+"/8/0]}]"),
			want: "mig-3g.40gb 0:0, mig-1g.10gb 0:1*3 mps, mig-1g.10gb.me 0:2, gpu 1, mig-1g.10gb 2:0*3 mps",
		},
		"replicas of the first": {
			gpus: same, strategy: "single", sharing: entry("timeSlicing", "resources: [{name: gpu, replicas: 2, devices: 2}]"),
			want: "gpu 0:0*2 timeslice, gpu 0:1*2 timeslice, gpu 1:0",
		},
		"more than there are": {
			gpus: same[1:], strategy: "single", sharing: entry("timeSlicing", "resources: [{name: gpu, replicas: 2, devices: 2}]"),
			want: "gpu 1:0*2 timeslice", absent: "1",
		},
	} {
		config, err := Parse("f", []byte("{flags: {migStrategy: "+c.strategy+"}"+c.sharing+"}"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		devices, absent, err := config.Resolve(c.gpus)
		if err != nil {
			if !errors.Is(err, ErrStrategy) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, not %s", name, err, c.want)
			}
			continue
		}
		if got := listedAs(c.gpus, devices); got != c.want {
			t.Errorf("%s:\n%s, not\n%s", name, got, c.want)
		}
		if got := strings.Join(absent, ", "); got != c.absent {
			t.Errorf("%s: %s is absent, not %s", name, got, c.absent)
		}
	}
}

// The replicas of one name have one failRequestsGreaterThanOne, and those of a profile are no replicas of GPUs.
func TestNamesOfInstances(t *testing.T) {
	c, err := Parse("f", []byte("{flags: {migStrategy: mixed}, sharing: {timeSlicing: {resources: [{name: mig-1g.10gb, replicas: 2}]}, mps: {resources: [{name: gpu, replicas: 2}]}}}"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range c.Replicated {
		names = append(names, c.Replicated[i].Name())
	}
	if !slices.Equal(names, []string{"nvidia.com/mig-1g.10gb", "nvidia.com/gpu"}) {
		t.Errorf("replicas go by %v", names)
	}
	if got := c.Agent("f"); !strings.Contains(got, "backends.mig") || strings.Contains(got, "timeslice:") || !strings.Contains(got, "mps:\n    - {gpus: all, replicas: 2}") {
		t.Errorf("an agent's configuration is\n%s", got)
	}
}
