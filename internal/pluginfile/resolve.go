package pluginfile

import (
	"fmt"
	"strconv"
	"strings"
)

// GPU is a GPU of a node.
type GPU struct {
	Index int
	UUID  string
}

// means reports whether an entry's devices include a GPU.
func (d Devices) means(gpu GPU) bool {
	if d.has(gpu.Index) {
		return true
	}
	for _, name := range d.List {
		if strings.EqualFold(name, gpu.UUID) {
			return true
		}
	}
	return false
}

// Resolve returns the entry of each GPU of a node, nil for GPUs without replicas, and the names in the file of GPUs that
// the node does not have, which a file for several nodes may well have. An error says that a GPU has two entries.
func (c *Config) Resolve(gpus []GPU) (entries []*Replicated, absent []string, err error) {
	entries = make([]*Replicated, len(gpus))
	for i := range c.Replicated {
		e := &c.Replicated[i]
		for at, gpu := range gpus {
			switch {
			case !e.Devices.means(gpu):
			case entries[at] != nil:
				return nil, nil, fmt.Errorf("GPU %d has replicas by %s and by %s: one entry for each GPU", gpu.Index, entries[at].Field, e.Field)
			default:
				entries[at] = e
			}
		}
		absent = append(absent, e.Devices.absent(gpus)...)
	}
	return entries, absent, nil
}

// absent returns the names of GPUs that are not among these.
func (d Devices) absent(gpus []GPU) []string {
	var names []string
	for i := range d.Count {
		if (Devices{List: []string{strconv.Itoa(i)}}).none(gpus) {
			names = append(names, strconv.Itoa(i))
		}
	}
	for _, name := range d.List {
		if (Devices{List: []string{name}}).none(gpus) {
			names = append(names, name)
		}
	}
	return names
}

func (d Devices) none(gpus []GPU) bool {
	for _, gpu := range gpus {
		if d.means(gpu) {
			return false
		}
	}
	return true
}
