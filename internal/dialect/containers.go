package dialect

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// CheckContainers refuses what no agent could prepare: a container with two of Divvy's claims, because a container is
// in one tenant, and a share in a privileged container or on a kernel of its own, where no limit would hold. Specs are
// those of the pod's claims by their names in the pod; a claim that is not there yet is left to the agent. Kernel is what
// [Translator.OwnKernel] says of the pod. An error wraps [ErrRefused].
func CheckContainers(pod *corev1.Pod, specs map[string]*resourcev1.ResourceClaimSpec, kernel string) error {
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		first := ""
		for _, use := range container.Resources.Claims {
			spec := specs[use.Name]
			if spec == nil || !Concerns(spec) {
				continue
			}
			if first != "" && first != use.Name {
				return refuse("container %q uses two claims for GPUs, %q and %q, and a container is in one tenant: put both requests into one claim", container.Name, first, use.Name)
			}
			first = use.Name
			if privileged(container) && asksShare(spec) {
				return refusePrivileged(container.Name)
			}
			if kernel != "" && asksShare(spec) {
				return refuseKernel(kernel)
			}
		}
	}
	return nil
}

// Concerns reports whether a claim names Divvy's classes or its driver.
func Concerns(spec *resourcev1.ResourceClaimSpec) bool {
	for _, a := range requestsOf(spec) {
		switch a.class {
		case v1alpha1.ClassShare, v1alpha1.ClassWhole, v1alpha1.ClassMIG:
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

func asksShare(spec *resourcev1.ResourceClaimSpec) bool {
	for _, a := range requestsOf(spec) {
		if a.class == v1alpha1.ClassShare && !a.admin {
			return true
		}
	}
	return false
}

func privileged(container *corev1.Container) bool {
	security := container.SecurityContext
	return security != nil && security.Privileged != nil && *security.Privileged
}

func refuseKernel(class string) error {
	return refuse("the pod's runtime class %s runs containers on a kernel of their own, where no limit of a share would hold: use another runtime class", class)
}

func refusePrivileged(container string) error {
	return refuse("container %q is privileged, so that no share would hold in it: ask for a whole GPU, or drop the privilege", container)
}
