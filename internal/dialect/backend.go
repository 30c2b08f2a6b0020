package dialect

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// chooseBackend gives requests the backend that the pod's annotation names, if any.
func (t *Translator) chooseBackend(pod *corev1.Pod, requests []Request) error {
	text, named := pod.Annotations[v1alpha1.BackendAnnotation]
	if !named {
		return nil
	}
	backend := v1alpha1.Backend(text)
	switch {
	case backend != v1alpha1.BackendMIG && (backend == "" || v1alpha1.FormOf(backend) == ""):
		return refuse("annotation %s: backend %q is not known: use slice, timeslice, mps, mig or remote", v1alpha1.BackendAnnotation, text)
	case t.mode == ModeSlots && backend != v1alpha1.BackendSlice:
		return refuse("annotation %s: backend %s needs claims, which Kubernetes has from 1.36 on: leave it out", v1alpha1.BackendAnnotation, text)
	}
	for i := range requests {
		r := &requests[i]
		if err := r.suits(backend, r.Container.of(pod).Name); err != nil {
			return err
		}
		r.Config.Backend = backend
	}
	return nil
}

// suits returns why a container's request cannot have a backend that the pod's annotation names.
func (r *Request) suits(backend v1alpha1.Backend, container string) error {
	switch {
	case r.instance() && backend != v1alpha1.BackendMIG:
		return refuse("container %q asks for a MIG instance, and annotation %s for backend %s: leave out one of the two", container, v1alpha1.BackendAnnotation, backend)
	case r.Whole:
		return refuse("container %q asks for whole GPUs, and annotation %s is about shares: leave out one of the two", container, v1alpha1.BackendAnnotation)
	case backend == v1alpha1.BackendMPS && r.Count > 1:
		return refuse("container %q asks for %d GPUs with backend mps: ask for one, because each has a control daemon of its own and a process can be the client of one only", container, r.Count)
	case backend == v1alpha1.BackendRemote && (r.Pairs != "" || r.SameNUMA):
		return refuse("container %q asks for GPUs near cards or each other, and annotation %s for those of other hosts: leave out one of the two", container, v1alpha1.BackendAnnotation)
	}
	return nil
}

// claimConfig is what a request's claim has to say beside its class, which says which backend the share has, and its amounts,
// which say what a swap share keeps.
func (r *Request) claimConfig() v1alpha1.ShareConfig {
	config := r.Config
	if config.Kept = (v1alpha1.Memory{}); config == (v1alpha1.ShareConfig{Backend: config.Backend}) {
		return v1alpha1.ShareConfig{}
	}
	return config
}
