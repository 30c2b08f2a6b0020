package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// ErrRefused marks every error of a translation: the request cannot be honoured. The text is one line and names the
// reason.
var ErrRefused = errors.New("GPU request refused")

const longestReason = 400

func refuse(format string, args ...any) error {
	reason := strings.Join(strings.Fields(strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")), " ")
	if len(reason) > longestReason {
		reason = strings.ToValidUTF8(reason[:longestReason], "") + "…"
	}
	return fmt.Errorf("%w: %s", ErrRefused, reason)
}

// MaxGPUs is how many GPUs one container can ask for: a claim holds no more devices.
const MaxGPUs = resourcev1.AllocationResultsMaxSize

// ContainerRef says which container of a pod is meant.
type ContainerRef struct {
	Init  bool
	Index int
}

func (p ContainerRef) of(pod *corev1.Pod) *corev1.Container {
	if p.Init {
		return &pod.Spec.InitContainers[p.Index]
	}
	return &pod.Spec.Containers[p.Index]
}

// sidecar reports whether the container starts before the others and runs on beside them.
func (p ContainerRef) sidecar(pod *corev1.Pod) bool {
	policy := p.of(pod).RestartPolicy
	return p.Init && policy != nil && *policy == corev1.ContainerRestartPolicyAlways
}

// containersOf lists the containers of a pod, init containers first.
func containersOf(pod *corev1.Pod) []ContainerRef {
	all := make([]ContainerRef, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		all = append(all, ContainerRef{Init: true, Index: i})
	}
	for i := range pod.Spec.Containers {
		all = append(all, ContainerRef{Index: i})
	}
	return all
}

// Request is what one container asks: whole GPUs, or one share on each of so many different GPUs.
type Request struct {
	Container ContainerRef
	// Count is how many different GPUs, 1 to [MaxGPUs].
	Count int
	// Whole asks for GPUs that nobody else uses. Memory, Cores and Config are then ignored.
	Whole bool
	// Memory is per GPU.
	Memory v1alpha1.Memory
	// Cores is the percentage of each GPU's time, 0 to 100; 0 guarantees none.
	Cores int
	// Profile is the MIG profile of which the container gets an instance, with backend mig. Left out, Memory and Cores are
	// the least that the instance has.
	Profile string
	// Config holds what the container or its dialect says about the share's behaviour. The node's defaults fill in the
	// rest, and then the defaults of the type.
	Config v1alpha1.ShareConfig
	// Selectors are CEL expressions that every GPU must satisfy.
	Selectors []string
	// SameNUMA wants all GPUs on one NUMA node.
	SameNUMA bool
	// Pairs asks for an RDMA card with each GPU, at most as far from it as this says; "" asks for none.
	Pairs v1alpha1.PairReach
	// Unit says what to set if the memory is more than any GPU has, because the dialect counts it in another unit than
	// the pod; "" where nothing can be set.
	Unit string
}

// checkUnit refuses memory that no GPU has where the dialect's unit is the likely cause. Other requests of this size
// wait for a larger GPU.
func (r *Request) checkUnit(pod *corev1.Pod, inventory Inventory) error {
	if largest := inventory.largest(); r.Unit != "" && r.Memory.InBytes() > largest {
		return refuse("container %q asks for %d MiB of one GPU's memory, and no GPU has more than %d MiB: %s", r.Container.of(pod).Name,
			r.Memory.InBytes()/mebibyte, largest/mebibyte, r.Unit)
	}
	return nil
}

// unitHint is the Unit of a request whose memory is counted in units of so many MiB. One MiB is the smallest unit, so
// that nothing that can be set would make less of the amount.
func unitHint(name string, factor uint64) string {
	if factor == 1 {
		return ""
	}
	return fmt.Sprintf("a unit of %s is %d MiB here, so if the pod means MiB, set memoryFactor: 1", name, factor)
}

// exclusive makes 100 cores a whole GPU, as systems do that let nobody else on such a GPU. It has at least the memory
// that is asked; more is no loss to anybody.
func (r *Request) exclusive() {
	if r.Cores < v1alpha1.MaxCores {
		return
	}
	r.Whole = true
	if bytes := r.Memory.InBytes(); bytes > 0 {
		r.Selectors = append(r.Selectors, memoryIs(">=", bytes))
	}
}

// settle fills in what was left out and refuses what is out of bounds.
func (r *Request) settle(pod *corev1.Pod) error {
	name := r.Container.of(pod).Name
	if r.Count < 1 || r.Count > MaxGPUs {
		return refuse("container %q asks for %d GPUs: a container can have 1 to %d", name, r.Count, MaxGPUs)
	}
	if Privileged(r.Container.of(pod)) {
		return RefusePrivileged(name)
	}
	if r.Whole {
		r.Memory, r.Cores, r.Config, r.Unit = v1alpha1.Memory{}, 0, v1alpha1.ShareConfig{}, ""
		return nil
	}
	if r.Cores < 0 || r.Cores > v1alpha1.MaxCores {
		return refuse("container %q asks for %d percent of a GPU's time: 1 to %d can be had", name, r.Cores, v1alpha1.MaxCores)
	}
	if r.Memory.InBytes()%mebibyte != 0 {
		return refuse("container %q asks for %d bytes of GPU memory: it is given in whole MiB, such as %dMi", name,
			r.Memory.InBytes(), max(r.Memory.InBytes()/mebibyte, 1))
	}
	full := r.full()
	if err := full.Validate(r.Cores); err != nil {
		return refuse("container %q: %v", name, err)
	}
	switch {
	case r.instance():
		return r.settleInstance(name)
	case r.Config.Swap:
		return r.settleSwap(name)
	}
	return nil
}

// full returns the configuration on a node without defaults of its own.
func (r *Request) full() v1alpha1.ShareConfig {
	config := r.Config
	config.Default(r.Cores)
	return config
}

// larger returns a request that serves both, or false if the two want different behaviour.
func (r Request) larger(other Request) (Request, bool) {
	if r.Whole != other.Whole || r.Profile != other.Profile || r.Config != other.Config || r.full() != other.full() || r.SameNUMA != other.SameNUMA || r.Pairs != other.Pairs || !slices.Equal(r.Selectors, other.Selectors) {
		return r, false
	}
	enough, comparable := r.Memory.AtLeast(other.Memory)
	if !comparable {
		return r, false
	}
	if !enough {
		r.Memory = other.Memory
	}
	r.Count = max(r.Count, other.Count)
	r.Cores = max(r.Cores, other.Cores)
	return r, true
}

// sameSize reports whether both ask for as much.
func (r Request) sameSize(other Request) bool {
	return r.Count == other.Count && r.Memory == other.Memory && r.Cores == other.Cores
}
