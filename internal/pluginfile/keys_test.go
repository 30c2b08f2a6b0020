package pluginfile

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// published are the keys of api/config/v1 in every release of k8s-device-plugin from v0.12.0, the first with a file, to
// v0.20.0, each with the first release that has it.
var published = map[string][]string{
	"v0.12.0": {
		"version", "flags", "flags.migStrategy", "flags.failOnInitError", "flags.nvidiaDriverRoot",
		"flags.plugin", "flags.plugin.passDeviceSpecs", "flags.plugin.deviceListStrategy", "flags.plugin.deviceIDStrategy",
		"flags.gfd", "flags.gfd.oneshot", "flags.gfd.noTimestamp", "flags.gfd.sleepInterval", "flags.gfd.outputFile",
		"resources", "resources.gpus", "resources.gpus[].pattern", "resources.gpus[].name",
		"resources.mig", "resources.mig[].pattern", "resources.mig[].name", "sharing", "sharing.timeSlicing",
		"sharing.timeSlicing.renameByDefault", "sharing.timeSlicing.failRequestsGreaterThanOne", "sharing.timeSlicing.resources",
		"sharing.timeSlicing.resources[].name", "sharing.timeSlicing.resources[].rename",
		"sharing.timeSlicing.resources[].devices", "sharing.timeSlicing.resources[].replicas",
	},
	"v0.13.0": {"flags.gdsEnabled", "flags.mofedEnabled", "flags.gfd.machineTypeFile"},
	"v0.14.0": {"flags.plugin.cdiAnnotationPrefix", "flags.plugin.nvidiaCTKPath", "flags.plugin.containerDriverRoot"},
	"v0.15.0": {
		"flags.mpsRoot", "flags.useNodeFeatureAPI", "sharing.mps",
		"sharing.mps.renameByDefault", "sharing.mps.failRequestsGreaterThanOne", "sharing.mps.resources",
		"sharing.mps.resources[].name", "sharing.mps.resources[].rename", "sharing.mps.resources[].devices", "sharing.mps.resources[].replicas",
	},
	"v0.16.0": {"flags.nvidiaDevRoot", "flags.deviceDiscoveryStrategy"},
	"v0.17.0": {"imex", "imex.channelIDs", "imex.required"},
	"v0.18.0": {"flags.gdrcopyEnabled"},
	"v0.20.0": {"flags.plugin.sharedDevicesAllocationPolicy"},
}

func TestTableHasThePublishedKeys(t *testing.T) {
	var want, got []string
	for since, paths := range published {
		for _, path := range paths {
			want = append(want, path+" "+since)
		}
	}
	for _, k := range keys {
		got = append(got, k.path+" "+k.since)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the table has\n%s\nbut published are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// shared is an entry around which the values of sharing stand.
func shared(kind, entry string) string {
	return "sharing: {" + kind + ": {resources: [{name: nvidia.com/gpu, replicas: 2" + entry + "}]}}"
}

// parts is an entry of a resource with a strategy.
func parts(strategy, name, entry string) string {
	return "{flags: {migStrategy: " + strategy + "}, sharing: {timeSlicing: {resources: [{name: " + name + ", replicas: 2" + entry + "}]}}}"
}

// outcomes has at least one value of every key that has values. A want that begins with ! is a fault.
var outcomes = []struct{ key, text, want, says string }{
	{"version", "version: v1", "works", "read as of this version"},
	{"version", "version: v2", "!", `"v2" is not what this version of Divvy reads`},
	{"flags.migStrategy", "flags: {migStrategy: none}", "works", "no GPU in MIG mode is given out"},
	{"flags.migStrategy", "flags: {migStrategy: single}", "works", "MIG devices count as nvidia.com/gpu, where all GPUs of a node have devices of one profile"},
	{"flags.migStrategy", "flags: {migStrategy: mixed}", "works", "MIG devices count as nvidia.com/mig-PROFILE"},
	{"flags.migStrategy", "flags: {migStrategy: double}", "!", "none, single, mixed"},
	{"flags.failOnInitError", "flags: {failOnInitError: true}", "no effect", "waits for one"},
	{"flags.failOnInitError", `flags: {failOnInitError: "true"}`, "!", "true or false"},
	{"flags.mpsRoot", "flags: {mpsRoot: /run/nvidia/mps}", "no effect", "own run directory"},
	{"flags.nvidiaDriverRoot", "flags: {nvidiaDriverRoot: /run/nvidia/driver}", "works", "agent.driverRoot"},
	{"flags.nvidiaDriverRoot", "flags: {nvidiaDriverRoot: driver}", "!", "not an absolute path"},
	{"flags.nvidiaDevRoot", "flags: {nvidiaDevRoot: /}", "no effect", "those of the host"},
	{"flags.nvidiaDevRoot", "flags: {nvidiaDevRoot: /d, nvidiaDriverRoot: /d}", "no effect", "those of the host"},
	{"flags.nvidiaDevRoot", "flags: {nvidiaDevRoot: /elsewhere}", "refused", "/dev alone"},
	{"flags.gdrcopyEnabled", "flags: {gdrcopyEnabled: true}", "refused", "GDRCopy"},
	{"flags.gdrcopyEnabled", "flags: {gdrcopyEnabled: false}", "no effect", "GDRCopy"},
	{"flags.gdsEnabled", "flags: {gdsEnabled: true}", "refused", "GPUDirect Storage"},
	{"flags.mofedEnabled", "flags: {mofedEnabled: true}", "refused", "Mellanox"},
	{"flags.useNodeFeatureAPI", "flags: {useNodeFeatureAPI: true}", "no effect", "to the node itself"},
	{"flags.deviceDiscoveryStrategy", "flags: {deviceDiscoveryStrategy: nvml}", "no effect", "always asks NVML"},
	{"flags.deviceDiscoveryStrategy", "flags: {deviceDiscoveryStrategy: tegra}", "refused", "Tegra"},
	{"flags.plugin.passDeviceSpecs", "flags: {plugin: {passDeviceSpecs: true}}", "no effect", "by CDI for claims"},
	{"flags.plugin.deviceListStrategy", "flags: {plugin: {deviceListStrategy: envvar}}", "no effect", "by CDI for claims"},
	{"flags.plugin.deviceListStrategy", "flags: {plugin: {deviceListStrategy: [cdi-cri, envvar]}}", "no effect", "by CDI for claims"},
	{"flags.plugin.deviceListStrategy", "flags: {plugin: {deviceListStrategy: [mail]}}", "!", `"mail" is not one of`},
	{"flags.plugin.deviceIDStrategy", "flags: {plugin: {deviceIDStrategy: index}}", "no effect", "named by UUID"},
	{"flags.plugin.cdiAnnotationPrefix", "flags: {plugin: {cdiAnnotationPrefix: cdi.k8s.io/}}", "no effect", "by CDI for claims"},
	{"flags.plugin.nvidiaCTKPath", "flags: {plugin: {nvidiaCTKPath: /usr/bin/nvidia-ctk}}", "no effect", "hooks of Divvy's own"},
	{"flags.plugin.containerDriverRoot", "flags: {plugin: {containerDriverRoot: /driver-root}}", "no effect", "the chart decides"},
	{"flags.plugin.sharedDevicesAllocationPolicy", "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}", "works", "told to prefer"},
	{"flags.gfd.oneshot", "flags: {gfd: {oneshot: true}}", "no effect", "for as long as the agent runs"},
	{"flags.gfd.noTimestamp", "flags: {gfd: {noTimestamp: false}}", "no effect", "no label with a time"},
	{"flags.gfd.sleepInterval", "flags: {gfd: {sleepInterval: 60s}}", "no effect", "every ten minutes"},
	{"flags.gfd.sleepInterval", "flags: {gfd: {sleepInterval: infinite}}", "no effect", "every ten minutes"},
	{"flags.gfd.sleepInterval", "flags: {gfd: {sleepInterval: often}}", "!", "not a time"},
	{"flags.gfd.outputFile", "flags: {gfd: {outputFile: /etc/x}}", "no effect", "to the node itself"},
	{"flags.gfd.machineTypeFile", "flags: {gfd: {machineTypeFile: /sys/class/dmi/id/product_name}}", "works", "gpu.machine"},
	{"flags.gfd.machineTypeFile", "flags: {gfd: {machineTypeFile: /etc/machine}}", "refused", "alone"},
	{"resources.gpus[].pattern", "resources: {gpus: [{pattern: '*', name: nvidia.com/gpu}]}", "refused", "by model"},
	{"resources.gpus[].name", "resources: {gpus: [{pattern: '*', name: nvidia.com/gpu}]}", "refused", "by model"},
	{"resources.mig[].pattern", "resources: {mig: [{pattern: 1g.5gb, name: small}]}", "refused", "by model"},
	{"resources.mig[].name", "resources: {mig: [{pattern: 1g.5gb, name: small}]}", "refused", "by model"},
	{"imex.channelIDs", "imex: {channelIDs: []}", "no effect", "no IMEX channel anyway"},
	{"imex.channelIDs", "imex: {channelIDs: [0]}", "refused", "no IMEX channels"},
	{"imex.channelIDs", "imex: {channelIDs: [1]}", "!", "[] or [0]"},
	{"imex.required", "imex: {required: true}", "no effect", "qualifies imex.channelIDs"},
	{"sharing.timeSlicing.renameByDefault", "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}", "works", "nvidia.com/gpu.shared"},
	{"sharing.mps.renameByDefault", "sharing: {mps: {renameByDefault: false, resources: [{name: gpu, replicas: 2}]}}", "works", "go by nvidia.com/gpu"},
	{"sharing.timeSlicing.failRequestsGreaterThanOne", "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}", "works", "is refused"},
	{"sharing.mps.failRequestsGreaterThanOne", "sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 2}]}}", "works", "the parts of all replicas"},
	{"sharing.timeSlicing.resources[].name", shared("timeSlicing", ""), "works", "not in MIG mode"},
	{"sharing.timeSlicing.resources[].name", parts("mixed", "mig-1g.5gb", ""), "works", "MIG devices of this profile"},
	{"sharing.timeSlicing.resources[].name", parts("mixed", "nvidia.com/mig-1g.10gb.me", ""), "works", "MIG devices of this profile"},
	{"sharing.timeSlicing.resources[].name", parts("single", "mig-1g.5gb", ""), "no effect", "with flags.migStrategy mixed alone, and it is single"},
	{"sharing.timeSlicing.resources[].name", "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}", "no effect", "and it is none"},
	{"sharing.timeSlicing.resources[].name", parts("single", "gpu", ""), "works", "the MIG devices of a node, or its GPUs"},
	{"sharing.timeSlicing.resources[].name", parts("mixed", "mig-1c.3g.20gb", ""), "refused", "share a GPU instance"},
	{"sharing.timeSlicing.resources[].name", parts("mixed", "mig-small", ""), "!", "no resource of the device plugin"},
	{"sharing.timeSlicing.resources[].name", "sharing: {timeSlicing: {resources: [{name: nvidia.com/tpu, replicas: 2}]}}", "!", "no resource of the device plugin"},
	{"sharing.mps.resources[].name", shared("mps", ""), "works", "not in MIG mode"},
	{"sharing.timeSlicing.resources[].rename", shared("timeSlicing", ", rename: gpu.shared"), "works", "go by nvidia.com/gpu.shared"},
	{"sharing.timeSlicing.resources[].rename", shared("timeSlicing", ", rename: nvidia.com/slow"), "refused", "another name"},
	{"sharing.timeSlicing.resources[].rename", parts("mixed", "mig-1g.5gb", ", rename: mig-1g.5gb.shared"), "works", "go by nvidia.com/mig-1g.5gb.shared"},
	{"sharing.timeSlicing.resources[].rename", parts("mixed", "mig-1g.5gb", ", rename: gpu.shared"), "refused", "nvidia.com/mig-1g.5gb.shared or nvidia.com/mig-1g.5gb"},
	{"sharing.mps.resources[].rename", shared("mps", ", rename: nvidia.com/gpu.shared"), "works", "go by nvidia.com/gpu.shared"},
	{"sharing.timeSlicing.resources[].devices", shared("timeSlicing", ", devices: all"), "works", "every GPU"},
	{"sharing.timeSlicing.resources[].devices", shared("timeSlicing", ", devices: 3"), "works", "indexes 0 to 2"},
	{"sharing.timeSlicing.resources[].devices", shared("timeSlicing", ", devices: 0"), "!", "no number of GPUs"},
	{"sharing.timeSlicing.resources[].devices", shared("timeSlicing", ", devices: some"), "!", "neither all"},
	{"sharing.mps.resources[].devices", shared("mps", ", devices: [0, GPU-b1028956-cfa2-0990-bf4a-5da9abb51763]"), "works", "these GPUs alone"},
	{"sharing.timeSlicing.resources[].devices", parts("mixed", "mig-1g.5gb", ", devices: ['0:1', MIG-b1028956-cfa2-0990-bf4a-5da9abb51763]"), "works", "these devices alone"},
	{"sharing.timeSlicing.resources[].devices", parts("single", "gpu", ", devices: [MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/3/0]"), "works", "these devices alone"},
	{"sharing.timeSlicing.resources[].devices", parts("mixed", "mig-1g.5gb", ", devices: 2"), "works", "the first 2 devices of this name"},
	{"sharing.timeSlicing.resources[].devices[]", shared("timeSlicing", ", devices: ['0:1']"), "refused", "with flags.migStrategy single alone, and it is none"},
	{"sharing.timeSlicing.resources[].devices[]", parts("mixed", "mig-1g.5gb", ", devices: [0]"), "!", "0 is a GPU, and nvidia.com/mig-1g.5gb counts MIG devices"},
	{"sharing.timeSlicing.resources[].devices[]", shared("timeSlicing", ", devices: [MIG-1]"), "!", "neither an index nor a UUID"},
	{"sharing.timeSlicing.resources[].replicas", shared("timeSlicing", ""), "works", "1/2 of the memory"},
	{"sharing.timeSlicing.resources[].replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}", "works", "all of the memory"},
	{"sharing.timeSlicing.resources[].replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: -4}]}}", "!", "-4 replicas: give 1 or more"},
	{"sharing.timeSlicing.resources[].replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 0}]}}", "!", "0 replicas: give 1 or more"},
	{"sharing.timeSlicing.resources[].replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 65}]}}", "!", "more than the 64"},
	{"sharing.timeSlicing.resources[].replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1.5}]}}", "!", "no whole number"},
	{"sharing.mps.resources[].replicas", "sharing: {mps: {resources: [{name: gpu, replicas: 3}]}}", "works", "at most 33 percent"},
	{"sharing.mps.resources[].replicas", "sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}", "!", "more than the 48"},
}

var inList = regexp.MustCompile(`\[\d+\]`)

// Every published key has outcomes of its own or of the keys below it, and they are as told.
func TestOutcomeOfEveryKey(t *testing.T) {
	for _, paths := range published {
		for _, path := range paths {
			t.Run(path, func(t *testing.T) {
				tried := 0
				for _, o := range outcomes {
					if o.key == path || strings.HasPrefix(o.key, path+".") || strings.HasPrefix(o.key, path+"[]") {
						tried++
						checkOutcome(t, o.key, o.text, o.want, o.says)
					}
				}
				if tried == 0 {
					t.Error("no row of outcomes")
				}
			})
		}
	}
}

func checkOutcome(t *testing.T, key, text, want, says string) {
	t.Helper()
	c, err := Parse("f", []byte(text))
	if want == "!" {
		var fault *Fault
		if !errors.As(err, &fault) || inList.ReplaceAllString(fault.Field, "[]") != key || !strings.Contains(fault.Problem, says) || fault.Line != 1 {
			t.Errorf("%s\ngives %v, which is not a fault of %s at line 1 with %q", text, err, key, says)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	if !slices.ContainsFunc(c.Notes, func(n Note) bool {
		return inList.ReplaceAllString(n.Field, "[]") == key && string(n.Outcome) == want && strings.Contains(n.Text, says)
	}) {
		t.Errorf("%s\ngives %+v, of which none is %s of %s with %q", text, c.Notes, want, key, says)
	}
	if refused := c.Err("f"); (want == "refused") != (refused != nil) {
		t.Errorf("%s: %s, and the error of refused keys is %v", text, want, refused)
	}
}

// No key without a row of outcomes, and no value of those files without a note.
func TestNoKeyIsIgnored(t *testing.T) {
	has := map[string]bool{}
	for _, o := range outcomes {
		has[o.key] = true
		c, err := Parse("f", []byte(o.text))
		if err != nil {
			continue
		}
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(o.text), &root); err != nil {
			t.Fatal(err)
		}
		for _, field := range leaves(root.Content[0], "") {
			if !slices.ContainsFunc(c.Notes, func(n Note) bool { return n.Field == field }) {
				t.Errorf("%s: nothing says what became of %s", o.text, field)
			}
		}
	}
	for _, k := range keys {
		if k.read != nil && !has[k.path] {
			t.Errorf("%s has no row of outcomes", k.path)
		}
	}
}

// leaves are the paths of the values of a tree; a list of values is one.
func leaves(node *yaml.Node, at string) []string {
	var all []string
	switch {
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			all = append(all, leaves(node.Content[i+1], strings.TrimPrefix(at+"."+node.Content[i].Value, "."))...)
		}
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0 && node.Content[0].Kind == yaml.MappingNode:
		for i, one := range node.Content {
			all = append(all, leaves(one, at+"["+string(rune('0'+i))+"]")...)
		}
	default:
		all = append(all, at)
	}
	return all
}
