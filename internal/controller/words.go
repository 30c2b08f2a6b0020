package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// title names a GPU as people do, by its index in its node.
func (d *device) title() string {
	if index := d.attribute(v1alpha1.Driver + "/" + v1alpha1.AttributeIndex); index != nil && index.IntValue != nil {
		return fmt.Sprintf("GPU %d", *index.IntValue)
	}
	return d.spec.Name
}

// complaint is the value of the first taint.
func (d *device) complaint() string {
	if len(d.spec.Taints) == 0 {
		return "unknown"
	}
	taint := d.spec.Taints[0]
	if taint.Key == v1alpha1.ChangingTaint {
		return "changing to form " + taint.Value
	}
	return cmp.Or(taint.Value, taint.Key)
}

// wanted writes what is asked with its number of GPUs.
func wanted(ways []way) string {
	count := plural(ways[0].count, "GPU")
	if text := amountsOf(ways); text != "" {
		return count + " with " + text + " free"
	}
	return count + " free as a whole"
}

// amountsOf writes what is asked of one GPU.
func amountsOf(ways []way) string {
	var all []string
	for _, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCores, v1alpha1.CapacitySwapMemory} {
		if text := amountOf(ways, name); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " and ")
}

// amountOf writes what is asked of one capacity: of several ways, all amounts that differ.
func amountOf(ways []way, name resourcev1.QualifiedName) string {
	if name == v1alpha1.CapacitySlots {
		return "a place for another share"
	}
	var different []string
	for _, w := range ways {
		if w.capacity == nil {
			continue
		}
		if q, ok := w.capacity.Requests[name]; ok && !q.IsZero() {
			if text := quantity(name, q.Value()); !slices.Contains(different, text) {
				different = append(different, text)
			}
		}
	}
	switch {
	case len(different) == 0 && name == v1alpha1.CapacityMemory && !ways[0].whole:
		return "all of its memory"
	case len(different) == 0:
		return ""
	}
	text := strings.Join(different, " or ")
	if len(different) > 1 {
		text += ", by its size,"
	}
	switch name {
	case v1alpha1.CapacityMemory:
		return text + " of memory"
	case v1alpha1.CapacitySwapMemory:
		return text + " of its host's memory for swap shares"
	}
	return text + " of its time"
}

func quantity(name resourcev1.QualifiedName, n int64) string {
	switch name {
	case v1alpha1.CapacityMemory, v1alpha1.CapacitySwapMemory:
		return size(n)
	case v1alpha1.CapacityCores:
		return fmt.Sprintf("%d percent", n)
	}
	return fmt.Sprint(n)
}

// size writes bytes, rounded down to whole MiB.
func size(n int64) string {
	return resource.NewQuantity(max(n, 0)>>20<<20, resource.BinarySI).String()
}

func haveGPUs(nodes int) string {
	if nodes == 1 {
		return "1 node has GPUs"
	}
	return fmt.Sprintf("%d nodes have GPUs", nodes)
}

func hostsHave(hosts int) string {
	if hosts == 1 {
		return "1 host has GPUs that other nodes reach"
	}
	return fmt.Sprintf("%d hosts have GPUs that other nodes reach", hosts)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func sortedNames[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
