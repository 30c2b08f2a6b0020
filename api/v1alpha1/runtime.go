package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kernels are the handlers of RuntimeClasses whose containers run on a kernel of their own. A star at the end of one
// stands for any letters. Nil are the usual ones.
type Kernels []string

// ownKernels are the handlers that Kata Containers, gVisor and Firecracker are installed with.
var ownKernels = Kernels{"kata", "kata-*", "runsc", "runsc-*", "gvisor", "gvisor-*", "firecracker", "firecracker-*"}

// ownNames are parts of the names that RuntimeClasses of these usually have.
var ownNames = []string{"kata", "gvisor", "runsc", "firecracker"}

// handlerForm is that of a handler (RuntimeClass.handler of Kubernetes), with an optional star.
var handlerForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9]|[-a-z0-9]{0,62}\*)?$`)

// Validate returns an error unless all are handlers.
func (k Kernels) Validate() error {
	for _, handler := range k {
		if !handlerForm.MatchString(handler) {
			return fmt.Errorf("handler %q: give the handler of a RuntimeClass, such as runsc, or the beginning of some, such as kata-*", handler)
		}
	}
	return nil
}

// Has reports whether containers of a handler run on a kernel of their own. The agent neither sees their processes nor
// reaches their libraries, so no limit would hold there.
func (k Kernels) Has(handler string) bool {
	if k == nil {
		k = ownKernels
	}
	return slices.ContainsFunc(k, func(known string) bool {
		start, any := strings.CutSuffix(known, "*")
		return known == handler || any && strings.HasPrefix(handler, start)
	})
}

// Own names the RuntimeClass of a pod if its containers run on a kernel of their own, and is empty otherwise. Class is
// nil for a pod that names none, handler empty where the class is not known: then its name decides.
func (k Kernels) Own(class *string, handler string) string {
	switch {
	case class == nil:
		return ""
	case handler != "" && k.Has(handler):
		return fmt.Sprintf("%q (handler %s)", *class, handler)
	case handler == "" && (k.Has(*class) || slices.ContainsFunc(ownNames, func(part string) bool { return strings.Contains(strings.ToLower(*class), part) })):
		return fmt.Sprintf("%q", *class)
	}
	return ""
}
