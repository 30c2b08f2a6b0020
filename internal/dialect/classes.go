package dialect

import (
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Classes says which device classes are Divvy's, beside those that always are.
type Classes struct {
	// NVIDIA is true where [v1alpha1.ClassNVIDIA] selects Divvy's devices and not those of NVIDIA's own driver.
	NVIDIA bool
}

// Ours reports whether a class is one of Divvy's.
func (c Classes) Ours(class string) bool {
	return class == v1alpha1.ClassMIG || slices.Contains(c.devices(), class)
}

// devices are the classes that select devices of today's agents.
func (c Classes) devices() []string {
	all := append(v1alpha1.ShareClasses(), v1alpha1.ClassWhole)
	if c.NVIDIA {
		all = append(all, v1alpha1.ClassNVIDIA)
	}
	return all
}

// whole reports whether a class is of whole GPUs, and Divvy's.
func (c Classes) whole(class string) bool { return v1alpha1.IsWholeClass(class) && c.Ours(class) }
