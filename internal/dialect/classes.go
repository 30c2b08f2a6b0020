package dialect

import (
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Classes says which device classes are Divvy's, beside those that always are.
type Classes struct {
	// NVIDIA is true where [v1alpha1.ClassNVIDIA] and [v1alpha1.ClassNVIDIAMIG] select Divvy's devices and not those of
	// NVIDIA's own driver.
	NVIDIA bool
}

// Ours reports whether a class is one of Divvy's.
func (c Classes) Ours(class string) bool {
	return slices.Contains(c.all(), class)
}

// all are the classes that are Divvy's.
func (c Classes) all() []string {
	all := append(c.devices(), v1alpha1.ClassMIG)
	if c.NVIDIA {
		all = append(all, v1alpha1.ClassNVIDIAMIG)
	}
	return all
}

// devices are the classes that select GPUs.
func (c Classes) devices() []string {
	all := append(v1alpha1.ShareClasses(), v1alpha1.ClassWhole)
	if c.NVIDIA {
		all = append(all, v1alpha1.ClassNVIDIA)
	}
	return all
}

// whole reports whether a class is of whole GPUs, and Divvy's.
func (c Classes) whole(class string) bool { return v1alpha1.IsWholeClass(class) && c.Ours(class) }

// instance reports whether a class is of MIG instances, and Divvy's.
func (c Classes) instance(class string) bool { return v1alpha1.IsInstanceClass(class) && c.Ours(class) }
