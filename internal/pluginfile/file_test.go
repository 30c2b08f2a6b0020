package pluginfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestFaults(t *testing.T) {
	const gpu = "{name: nvidia.com/gpu, replicas: 2}"
	for _, c := range []struct{ text, want string }{
		{"", "f: the file is empty"},
		{"version: v1\n---\nversion: v1", "f: more than one document"},
		{"- v1", "f:1: a configuration is a mapping"},
		{"version: v1\nflags: [", "f:"},
		{"version: v1\nversion: v1", "f:2: version: given twice"},
		{"version: v1\nsharing:\n  renameByDefault: true", "f:3: sharing.renameByDefault: this key does not belong here: its place is sharing.timeSlicing.renameByDefault or sharing.mps.renameByDefault"},
		{"sharing:\n  mps:\n    resources:\n    - name: gpu\n      replicas: 2\n      renameByDefault: true", "f:6: sharing.mps.resources[0].renameByDefault: this key does not belong here: its place is sharing.mps.renameByDefault"},
		{"migStrategy: none", "f:1: migStrategy: this key does not belong here: its place is flags.migStrategy"},
		{"flags: {passDeviceSpecs: true}", "f:1: flags.passDeviceSpecs: this key does not belong here: its place is flags.plugin.passDeviceSpecs"},
		{"sharing: {timeSlicing: {replicas: 4, resources: [" + gpu + "]}}", "its place is sharing.timeSlicing.resources[].replicas"},
		{"timeSlicing: {resources: []}", "f:1: timeSlicing: this key does not belong here: its place is sharing.timeSlicing"},
		{"flags: {migstrategy: none}", "flags.migstrategy: unknown key: it is written migStrategy"},
		{"sharing: {slots: 3}", "sharing.slots: unknown key; known here: mps, timeSlicing"},
		{"sharing: {mps: {}}", "f:1: sharing.mps.resources: missing"},
		{"sharing: {mps: {resources: [{replicas: 2}]}}", "sharing.mps.resources[0].name: missing"},
		{"sharing: {mps: {resources: [{name: gpu}]}}", "sharing.mps.resources[0].replicas: missing"},
		{"sharing: {mps: {resources: [4]}}", "sharing.mps.resources[0]: must be a mapping"},
		{"sharing: {mps: {resources: {name: gpu}}}", "sharing.mps.resources: must be a list"},
		{"sharing: {timeSlicing: {resources: [" + gpu + ", " + gpu + "]}}", "resources[1]: every GPU has replicas by sharing.timeSlicing.resources[0] already"},
		{"sharing: {timeSlicing: {resources: [" + gpu + "]}, mps: {resources: [" + gpu + "]}}", "sharing.mps.resources[0]: every GPU has replicas by sharing.timeSlicing.resources[0] already"},
		{"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 2}, {name: gpu, replicas: 3, devices: [1]}]}}", "resources[1]: GPU 1 has replicas by"},
		{"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [1, 1]}]}}", "devices[1]: names the same GPU twice"},
		{"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: []}]}}", "names no GPU"},
		{"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [GPU-1]}]}}", "neither an index nor a UUID"},
		{
			"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}, mps: {resources: [{name: gpu, replicas: 2, devices: [1]}]}}",
			"sharing.mps.resources[0]: its replicas have the name of those of sharing.timeSlicing.resources[0], and another failRequestsGreaterThanOne",
		},
		{"resources: {gpus: [{name: a}]}", "resources.gpus[0].pattern: missing"},
	} {
		_, err := Parse("f", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrFile) {
			t.Errorf("%q gives %v, not %q", c.text, err, c.want)
		}
	}
}

// Everything wrong with a file is told at once, in the order of its lines.
func TestFaultsAreJoined(t *testing.T) {
	_, err := Parse("f", []byte("nothing: 1\nflags:\n  migStrategy: three\nsharing: {mps: {resources: [{name: gpu, replicas: -1}]}}"))
	want := []string{"f:1: nothing", "f:3: flags.migStrategy", "f:4: sharing.mps.resources[0].replicas"}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d faults: %v", len(lines), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("fault %d is %s, not of %s", i, lines[i], want[i])
		}
	}
}

const perGPU = `
version: v1
flags: {nvidiaDriverRoot: /run/nvidia/driver, plugin: {sharedDevicesAllocationPolicy: packed}, gfd: {noTimestamp: true}}
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, devices: 2, replicas: 4}
  mps:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, devices: [GPU-b1028956-cfa2-0990-bf4a-5da9abb51763], replicas: 1}
`

func TestReplicasOfEachGPU(t *testing.T) {
	c, err := Parse("f", []byte(perGPU))
	if err != nil {
		t.Fatal(err)
	}
	slicing := Replicated{Field: "sharing.timeSlicing.resources[0]", Resource: GPUResource, Backend: "timeslice", Devices: Devices{Count: 2}, Replicas: 4, Renamed: true, Single: true}
	mps := Replicated{Field: "sharing.mps.resources[0]", Resource: GPUResource, Backend: "mps", Devices: Devices{List: []string{"GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"}}, Replicas: 1, Renamed: true, Single: true}
	if want := []Replicated{slicing, mps}; !reflect.DeepEqual(c.Replicated, want) {
		t.Errorf("replicas are %+v, not %+v", c.Replicated, want)
	}
	if !c.Packed || !c.Labels || c.DriverRoot != "/run/nvidia/driver" {
		t.Errorf("packed %v, labels %v, driver root %q", c.Packed, c.Labels, c.DriverRoot)
	}
	gpus := []GPU{{UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}, {Index: 2, UUID: "GPU-2"}, {Index: 3, UUID: "gpu-B1028956-cfa2-0990-bf4a-5da9abb51763"}}
	devices, absent, err := c.Resolve(gpus)
	if err != nil || len(absent) > 0 {
		t.Fatalf("%v, absent %v", err, absent)
	}
	var entries []*Replicated
	for i, d := range devices {
		if entries = append(entries, d.Entry); d.GPU != i || d.Instance != -1 || d.Resource != GPUResource {
			t.Errorf("device %d is %+v", i, d)
		}
	}
	if want := []*Replicated{&slicing, &slicing, nil, &mps}; !reflect.DeepEqual(entries, want) {
		t.Errorf("the GPUs have %+v", entries)
	}
	if _, absent, _ = c.Resolve(gpus[:1]); !reflect.DeepEqual(absent, []string{"1", "GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"}) {
		t.Errorf("a node with one GPU lacks %v", absent)
	}
	gpus[0].UUID = gpus[3].UUID
	if _, _, err = c.Resolve(gpus); err == nil || !strings.Contains(err.Error(), "GPU 0 has replicas by sharing.timeSlicing.resources[0] and by sharing.mps.resources[0]") {
		t.Errorf("a GPU with two entries gives %v", err)
	}
}

func TestDefaultsOfTheirs(t *testing.T) {
	for kind, single := range map[string]bool{"timeSlicing": false, "mps": true} {
		c, err := Parse("f", []byte("sharing: {"+kind+": {resources: [{name: gpu, replicas: 2}]}}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Replicated[0]; got.Single != single || got.Renamed || !got.Devices.All() {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(perGPU))
	for _, o := range outcomes {
		f.Add([]byte(o.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Fatalf("an error without its mark: %v", err)
			}
			return
		}
		for _, e := range c.Replicated {
			if e.Replicas < 1 || e.Replicas > MaxReplicas {
				t.Fatalf("%d replicas", e.Replicas)
			}
		}
	})
}
