package migfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// State is what one GPU has.
type State struct {
	Index   int
	Enabled bool
	// Instances are how many there are of each profile.
	Instances map[string]int
}

func (s State) equal(o State) bool {
	return s.Enabled == o.Enabled && maps.Equal(s.Instances, o.Instances)
}

// Export writes a file with one configuration that has the GPUs as they are. GPUs that are alike have one entry.
func Export(name string, gpus []State) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "version: v1\nmig-configs:\n  %s:\n", name)
	written := map[int]bool{}
	for i, first := range gpus {
		if written[i] {
			continue
		}
		var indexes []int
		for j, other := range gpus {
			if first.equal(other) {
				written[j] = true
				indexes = append(indexes, other.Index)
			}
		}
		slices.Sort(indexes)
		fmt.Fprintf(&out, "  - devices: %s\n    mig-enabled: %t\n", deviceList(indexes, len(gpus)), first.Enabled)
		if !first.Enabled {
			continue
		}
		fmt.Fprint(&out, "    mig-devices:")
		if len(first.Instances) == 0 {
			fmt.Fprint(&out, " {}")
		}
		fmt.Fprintln(&out)
		for _, profile := range slices.Sorted(maps.Keys(first.Instances)) {
			fmt.Fprintf(&out, "      %q: %d\n", profile, first.Instances[profile])
		}
	}
	return out.Bytes()
}

func deviceList(indexes []int, all int) string {
	if len(indexes) == all {
		return "all"
	}
	text := "["
	for i, index := range indexes {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(index)
	}
	return text + "]"
}
