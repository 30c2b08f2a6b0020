package v1alpha1

import (
	"slices"
	"strings"
)

// ownKernels are parts of the names that RuntimeClasses have whose containers run on
// a kernel of their own: Kata Containers, gVisor and Firecracker.
var ownKernels = []string{"kata", "gvisor", "runsc", "firecracker"}

// OwnKernel reports whether the containers of a RuntimeClass run on a kernel of their
// own, by the class's name; nil is none. The agent neither sees their processes nor
// reaches their libraries, so no limit would hold there.
func OwnKernel(class *string) bool {
	return class != nil && slices.ContainsFunc(ownKernels, func(part string) bool { return strings.Contains(strings.ToLower(*class), part) })
}
