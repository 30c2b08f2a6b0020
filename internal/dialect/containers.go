package dialect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// CheckContainers refuses what no agent could prepare: a container with two of Divvy's claims, because a container is
// in one tenant, a GPU in a privileged container, and a share on a kernel of its own, where no limit would hold. Specs are
// those of the pod's claims by their names in the pod; a claim that is not there yet is left to the agent. Kernel is what
// [Translator.OwnKernel] says of the pod. An error wraps [ErrRefused].
func (c Classes) CheckContainers(pod *corev1.Pod, specs map[string]*resourcev1.ResourceClaimSpec, kernel string) error {
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		first := ""
		for _, use := range container.Resources.Claims {
			spec := specs[use.Name]
			if spec == nil || !c.Concerns(spec) {
				continue
			}
			if first != "" && first != use.Name {
				return refuse("container %q uses two claims for GPUs, %q and %q, and a container is in one tenant: put both requests into one claim", container.Name, first, use.Name)
			}
			first = use.Name
			if Privileged(container) && gives(spec, use.Request, c.Ours) {
				return RefusePrivileged(container.Name)
			}
			if kernel != "" && gives(spec, use.Request, func(class string) bool { return v1alpha1.SharesOf(class) != "" }) {
				return refuseKernel(kernel)
			}
		}
	}
	return nil
}

// CheckedClaims returns the names, in the pod and each once, of the claims that [CheckContainers] and [CheckHostMemory] have to
// know: those of containers that use several, are privileged, or run on a kernel of their own, and where shares can leave
// GPUs, of those with a limit of memory.
func CheckedClaims(pod *corev1.Pod, kernel string, swaps bool) []string {
	var names []string
	seen := make(map[string]bool)
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		if moved := swaps && limitsMemory(pod, container); !moved && len(container.Resources.Claims) < 2 && !Privileged(container) && kernel == "" {
			continue
		}
		for _, use := range container.Resources.Claims {
			if !seen[use.Name] {
				seen[use.Name] = true
				names = append(names, use.Name)
			}
		}
	}
	return names
}

// Concerns reports whether a claim names Divvy's classes or its driver.
func (c Classes) Concerns(spec *resourcev1.ResourceClaimSpec) bool {
	for _, a := range requestsOf(spec) {
		if c.Ours(a.class) {
			return true
		}
	}
	for i := range spec.Devices.Config {
		if opaque := spec.Devices.Config[i].Opaque; opaque != nil && opaque.Driver == v1alpha1.Driver {
			return true
		}
	}
	return false
}

// gives reports whether a container that names a request of a claim, or "" for all of it, gets a GPU of such a class.
// Admin access gives none.
func gives(spec *resourcev1.ResourceClaimSpec, request string, such func(class string) bool) bool {
	return slices.ContainsFunc(requestsOf(spec), func(a ask) bool {
		return (request == "" || request == a.parent) && !a.admin && such(a.class)
	})
}

// Privileged reports whether a container is privileged. It then has the devices of all GPUs of its node, so that it
// would leave neither other tenants' shares nor other whole GPUs alone. It gets neither form; admin access, which takes
// nothing, it may have.
func Privileged(container *corev1.Container) bool {
	security := container.SecurityContext
	return security != nil && security.Privileged != nil && *security.Privileged
}

func refuseKernel(class string) error {
	return refuse("the pod's runtime class %s runs containers on a kernel of their own, where no limit of a share would hold: use another runtime class", class)
}

// RefusePrivileged says why a privileged container gets no GPU. The error wraps [ErrRefused].
func RefusePrivileged(container string) error {
	return refuse("container %q is privileged and would see every GPU of its node: use a container without the privilege", container)
}
