package pluginfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// key is a key of the file.
type key struct {
	// path has [] after each list.
	path string
	// since is the first version of the device plugin that reads the key.
	since string
	list  bool
	// begin is called before the keys below a mapping or below an item of a list are read.
	begin func(r *reader, node *yaml.Node, field string)
	// read reads a value; nil means that keys follow below.
	read func(r *reader, node *yaml.Node, field string)
}

func (k *key) parent() string {
	i := strings.LastIndex(k.path, ".")
	return k.path[:max(i, 0)]
}

func (k *key) name() string { return k.path[strings.LastIndex(k.path, ".")+1:] }

// below reads the keys below a mapping or an item of a list.
func (k *key) below(r *reader, node *yaml.Node, path, field string) {
	if k.begin != nil && node.Kind == yaml.MappingNode {
		k.begin(r, node, field)
	}
	r.mapping(node, path, field)
}

// keys are those of every published version. It is filled by init, because reading a value looks into it.
var keys []*key

var byPath = map[string]*key{}

func init() {
	keys = slices.Concat(topKeys(), sharingKeys("timeSlicing", "v0.12.0"), sharingKeys("mps", "v0.15.0"))
	for _, k := range keys {
		byPath[k.path] = k
	}
}

func topKeys() []*key {
	return []*key{
		{path: "version", since: "v0.12.0", read: (*reader).version},
		{path: "flags", since: "v0.12.0"},
		{path: "flags.migStrategy", since: "v0.12.0", read: (*reader).migStrategy},
		{path: "flags.failOnInitError", since: "v0.12.0", read: told(boolean, "an agent on a node without a driver or a GPU waits for one, and its readiness says so")},
		{path: "flags.mpsRoot", since: "v0.15.0", read: told(text, "the agent keeps the directories of MPS in its own run directory")},
		{path: "flags.nvidiaDriverRoot", since: "v0.12.0", read: (*reader).driverRoot},
		{path: "flags.nvidiaDevRoot", since: "v0.16.0", read: (*reader).deviceRoot},
		{path: "flags.gdrcopyEnabled", since: "v0.18.0", read: device("GDRCopy")},
		{path: "flags.gdsEnabled", since: "v0.13.0", read: device("GPUDirect Storage")},
		{path: "flags.mofedEnabled", since: "v0.13.0", read: device("Mellanox OFED")},
		{path: "flags.useNodeFeatureAPI", since: "v0.15.0", read: told(boolean, "the agent writes its labels to the node itself")},
		{path: "flags.deviceDiscoveryStrategy", since: "v0.16.0", read: (*reader).discovery},
		{path: "flags.plugin", since: "v0.12.0"},
		{path: "flags.plugin.passDeviceSpecs", since: "v0.12.0", read: told(boolean, given)},
		{path: "flags.plugin.deviceListStrategy", since: "v0.12.0", read: (*reader).listStrategy},
		{path: "flags.plugin.deviceIDStrategy", since: "v0.12.0", read: told(oneOf("uuid", "index"), "GPUs are always named by UUID")},
		{path: "flags.plugin.cdiAnnotationPrefix", since: "v0.14.0", read: told(text, given)},
		{path: "flags.plugin.nvidiaCTKPath", since: "v0.14.0", read: told(text, "containers get hooks of Divvy's own")},
		{path: "flags.plugin.containerDriverRoot", since: "v0.14.0", read: told(text, "the chart decides where the agent's container has the host's files")},
		{path: "flags.plugin.sharedDevicesAllocationPolicy", since: "v0.20.0", read: (*reader).allocation},
		{path: "flags.gfd", since: "v0.12.0", begin: func(r *reader, _ *yaml.Node, _ string) { r.config.Labels = true }},
		{path: "flags.gfd.oneshot", since: "v0.12.0", read: told(boolean, "labels follow the GPUs for as long as the agent runs")},
		{path: "flags.gfd.noTimestamp", since: "v0.12.0", read: told(boolean, "no label with a time is written: it would change the node although its GPUs did not change")},
		{path: "flags.gfd.sleepInterval", since: "v0.12.0", read: told(duration, "labels are written when the GPUs change, and again every ten minutes")},
		{path: "flags.gfd.outputFile", since: "v0.12.0", read: told(text, "the agent writes its labels to the node itself")},
		{path: "flags.gfd.machineTypeFile", since: "v0.13.0", read: (*reader).machineType},
		{path: "resources", since: "v0.12.0"},
		{path: "resources.gpus", since: "v0.12.0", list: true, begin: (*reader).naming},
		{path: "resources.gpus[].pattern", since: "v0.12.0", read: named},
		{path: "resources.gpus[].name", since: "v0.12.0", read: named},
		{path: "resources.mig", since: "v0.12.0", list: true, begin: (*reader).naming},
		{path: "resources.mig[].pattern", since: "v0.12.0", read: named},
		{path: "resources.mig[].name", since: "v0.12.0", read: named},
		{path: "sharing", since: "v0.12.0"},
		{path: "imex", since: "v0.17.0"},
		{path: "imex.channelIDs", since: "v0.17.0", read: (*reader).channels},
		{path: "imex.required", since: "v0.17.0", read: (*reader).channelRequired},
	}
}

func sharingKeys(name, since string) []*key {
	at := "sharing." + name
	return []*key{
		{path: at, since: since, begin: (*reader).share},
		{path: at + ".renameByDefault", since: since, read: (*reader).renameByDefault},
		{path: at + ".failRequestsGreaterThanOne", since: since, read: (*reader).failGreater},
		{path: at + ".resources", since: since, list: true, begin: (*reader).beginEntry},
		{path: at + ".resources[].name", since: since, read: (*reader).resourceName},
		{path: at + ".resources[].rename", since: since, read: (*reader).rename},
		{path: at + ".resources[].devices", since: since, read: (*reader).devices},
		{path: at + ".resources[].replicas", since: since, read: (*reader).replicas},
	}
}

// Key is a key of the file that has a value, for a manual.
type Key struct {
	// Path has [] after each list.
	Path string
	// Since is the first version of the device plugin that reads it.
	Since string
}

// Keys are those of every published version that have values.
func Keys() (all []Key) {
	for _, k := range keys {
		if k.read != nil {
			all = append(all, Key{k.path, k.since})
		}
	}
	return all
}
