package dialect

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// CheckSwap returns what is wrong with how a request divides a share between the GPU and the host, in bytes: a swap share takes its
// limit of capacity swapMemory, and of memory what never leaves the GPU. Memory left out, which is 0, takes all of the GPU.
func CheckSwap(config v1alpha1.ShareConfig, memory, swap uint64) error {
	switch {
	case !config.Swap && swap > 0:
		return errors.New("it takes swapMemory, which is for swap shares: leave it out, or set swap in the configuration")
	case !config.Swap:
		return nil
	case !config.Kept.IsZero():
		return errors.New("its configuration says kept, which the memory of the request says: leave out kept")
	case swap == 0:
		return errors.New("a swap share takes its limit of swapMemory, and of memory what never leaves the GPU: name both")
	case memory == 0:
		return fmt.Errorf("a swap share with a limit of %s of swapMemory would keep all of the GPU's memory: name as memory what never leaves the GPU, such as %s",
			v1alpha1.FormatBytes(swap), v1alpha1.FormatBytes(config.KeptOf(swap)))
	case memory >= swap:
		return fmt.Errorf("a swap share with a limit of %s of swapMemory would keep %s of it on the GPU as memory: name less memory, or more swapMemory",
			v1alpha1.FormatBytes(swap), v1alpha1.FormatBytes(memory))
	}
	return nil
}

// canSuspend is true of GPUs whose shares can be suspended.
var canSuspend = "has(" + attributeOf(v1alpha1.AttributeSuspends) + ")"

// swapping is what the annotations of a pod say of how its shares leave GPUs.
type swapping struct {
	// first is the annotation by which a refusal names them; it is empty where there is none.
	first string
	named bool // whether the pod says that its shares swap, or that they do not
	swap  bool
	kept  v1alpha1.Memory
	after v1alpha1.Duration
}

func swappingOf(pod *corev1.Pod) (s swapping, err error) {
	note := func(name string, read func(text string) error) {
		text, ok := pod.Annotations[name]
		if !ok || err != nil {
			return
		}
		if s.first == "" {
			s.first = name
		}
		if fault := read(text); fault != nil {
			err = refuse("annotation %s: %v", name, fault)
		}
	}
	note(v1alpha1.SwapAnnotation, func(text string) error {
		if s.named, s.swap = true, text == "true"; !s.swap && text != "false" {
			return fmt.Errorf("%q: write true or false", text)
		}
		return nil
	})
	note(v1alpha1.KeptAnnotation, func(text string) (fault error) {
		s.kept, fault = v1alpha1.ParseMemory(text)
		return fault
	})
	note(v1alpha1.SuspendAfterAnnotation, func(text string) (fault error) {
		if s.after, fault = v1alpha1.ParseDuration(text); fault == nil && s.after <= 0 {
			fault = fmt.Errorf("%q: give a time such as 10m", text)
		}
		return fault
	})
	return s, err
}

// asks reports whether the pod wants that its shares leave GPUs.
func (s *swapping) asks() bool { return s.swap || s.after != 0 || !s.kept.IsZero() }

// chooseSwap lets requests leave their GPUs as the pod's annotations say, if it has any.
func (t *Translator) chooseSwap(pod *corev1.Pod, requests []Request) error {
	s, err := swappingOf(pod)
	if err != nil {
		return err
	}
	if t.mode == ModeSlots && s.asks() {
		return refuse("annotation %s needs claims, which Kubernetes has from 1.36 on: leave it out", s.first)
	}
	for i := range requests {
		if err := s.choose(t.mode, &requests[i], requests[i].Container.of(pod).Name); err != nil {
			return err
		}
	}
	return nil
}

// choose is chooseSwap of one request, of a container of this name.
func (s *swapping) choose(mode string, r *Request, name string) error {
	if s.named {
		r.Config.Swap = s.swap
	}
	switch {
	case s.asks() && (r.Whole || r.instance()):
		return refuse("container %q asks for whole GPUs or MIG instances, and annotation %s is about shares: leave out one of the two", name, s.first)
	case mode == ModeSlots && r.Config.Swap:
		return refuse("container %q asks for memory that its GPU does not have, which needs claims, and Kubernetes has them from 1.36 on", name)
	}
	if r.Config.Kept, r.Config.SuspendAfter = s.kept, s.after; s.after != 0 {
		r.Selectors = append(r.Selectors, canSuspend)
	}
	return nil
}

// settleSwap refuses a swap share whose size does not say what never leaves the GPU.
func (r *Request) settleSwap(container string) error {
	limit := r.Memory.InBytes()
	if limit == 0 {
		return refuse("container %q asks for a swap share, which may be larger than what its GPU has free: give its memory as an amount, not as a part of a GPU", container)
	}
	if kept := r.kept(); kept == 0 || kept >= limit {
		return refuse("container %q asks for a swap share of %s of which %s would never leave the GPU: keep from %s on, and less than all", container,
			v1alpha1.FormatBytes(limit), v1alpha1.FormatBytes(kept), v1alpha1.FormatBytes(mebibyte))
	}
	return nil
}

// kept is what a swap share keeps on the GPU, in whole MiB.
func (r *Request) kept() uint64 { return r.Config.KeptOf(r.Memory.InBytes()) / mebibyte * mebibyte }

// evicted is how many bytes the shares of a request of a claim, or of all where it names none, may have moved from GPUs into the
// memory of the container that uses them: of a swap share what it does not keep, and of one that is suspended all of it.
func evicted(spec *resourcev1.ResourceClaimSpec, request string) uint64 {
	var sum uint64
	most := make(map[string]uint64) // of the ways of a request
	for _, a := range requestsOf(spec) {
		if request != "" && request != a.parent || a.admin || a.capacity == nil {
			continue
		}
		config := configFor(spec, a)
		memory, swap := amount(a.capacity.Requests, v1alpha1.CapacityMemory), amount(a.capacity.Requests, v1alpha1.CapacitySwapMemory)
		var one uint64
		switch {
		case config.Swap:
			one = swap - min(memory, swap)
		case config.SuspendAfter != 0:
			one = memory
		}
		one *= uint64(min(max(a.count, 1), MaxGPUs))
		sum += max(one, most[a.parent]) - most[a.parent]
		most[a.parent] = max(one, most[a.parent])
	}
	return sum
}

// configFor is what a claim says of the shares of a request. What does not decode says nothing here.
func configFor(spec *resourcev1.ResourceClaimSpec, a ask) v1alpha1.ShareConfig {
	for i := range spec.Devices.Config {
		c := &spec.Devices.Config[i]
		if c.Opaque == nil || c.Opaque.Driver != v1alpha1.Driver || !a.is(c.Requests) {
			continue
		}
		if config, err := v1alpha1.DecodeShareConfig(c.Opaque.Parameters.Raw); err == nil {
			return config
		}
	}
	return v1alpha1.ShareConfig{}
}

// CheckHostMemory refuses a pod whose containers' limits of memory do not hold what may be moved into it from their GPUs: the
// driver's pages are the container's own, and it would be killed for them. What a container needs for itself is what it
// requests, unless that is its limit, which Kubernetes makes of a limit alone. The error wraps [ErrRefused].
func CheckHostMemory(pod *corev1.Pod, specs map[string]*resourcev1.ResourceClaimSpec) error {
	var all, requested uint64
	counted := make(map[corev1.ResourceClaim]bool)
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		var moved uint64
		for _, use := range container.Resources.Claims {
			if spec := specs[use.Name]; spec != nil {
				one := evicted(spec, use.Request)
				if moved += one; !counted[use] {
					counted[use] = true
					all += one
				}
			}
		}
		if !ref.Init || ref.sidecar(pod) {
			requested += bytesOf(container.Resources.Requests)
		}
		if text := tooSmall(container.Resources.Limits, bytesOf(container.Resources.Requests), moved); text != "" {
			return refuse("container %q %s", container.Name, text)
		}
	}
	if own := pod.Spec.Resources; own != nil {
		if text := tooSmall(own.Limits, max(bytesOf(own.Requests), requested), all); text != "" {
			return refuse("the pod %s", text)
		}
	}
	return nil
}

// tooSmall says why a limit of memory does not hold so many moved bytes beside what is requested, "" where it does.
func tooSmall(limits corev1.ResourceList, requested, moved uint64) string {
	limit := bytesOf(limits)
	own := requested
	if requested >= limit {
		own = 0
	}
	if _, limited := limits[corev1.ResourceMemory]; !limited || moved == 0 || moved+own <= limit && moved < limit {
		return ""
	}
	text, has := v1alpha1.FormatBytes(moved), v1alpha1.FormatBytes(limit)
	if own == 0 {
		return fmt.Sprintf("may have %s moved from its GPUs into its own memory, and its limit of memory is %s: set the limit to %s and what its programs need themselves, or leave it out", text, has, text)
	}
	return fmt.Sprintf("may have %s moved from its GPUs into its own memory and requests %s for itself, and its limit of memory is %s: set the limit to %s or more, or leave it out",
		text, v1alpha1.FormatBytes(own), has, v1alpha1.FormatBytes(moved+own))
}

// bytesOf is an amount of memory in a list, rounded up to bytes and at most what sums hold.
func bytesOf(list corev1.ResourceList) uint64 {
	quantity, ok := list[corev1.ResourceMemory]
	if !ok {
		return 0
	}
	if near := quantity.AsApproximateFloat64(); !(near < 1<<50) {
		return 1 << 50
	}
	return uint64(max(quantity.Value(), 0))
}

// limitsMemory reports whether a container, or its pod, has a limit of memory.
func limitsMemory(pod *corev1.Pod, container *corev1.Container) bool {
	_, own := container.Resources.Limits[corev1.ResourceMemory]
	if pod.Spec.Resources != nil {
		_, podsOwn := pod.Spec.Resources.Limits[corev1.ResourceMemory]
		own = own || podsOwn
	}
	return own
}
