package alloc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Names is a set of names, written with | between them.
type Names string

// Has reports whether the set holds a name.
func (n Names) Has(name string) bool {
	rest := string(n)
	for rest != "" {
		var one string
		one, rest, _ = strings.Cut(rest, "|")
		if one == name {
			return true
		}
	}
	return false
}

// means reports whether a name of the set means a GPU of a model.
func (n Names) means(model string) bool {
	for name := range strings.SplitSeq(string(n), "|") {
		if name != "" && v1alpha1.ModelMatches(name, model) {
			return true
		}
	}
	return false
}

// Classes is a set of numbers of [GPU.Class]: those of the GPUs that the caller's selectors let. The allocator knows no
// selectors. The zero value is no set and lets all; a set without any class lets none.
type Classes string

// ClassesOf makes a set.
func ClassesOf(classes ...uint16) Classes {
	bits := []byte{0}
	for _, c := range classes {
		for int(c/8) >= len(bits) {
			bits = append(bits, 0)
		}
		bits[c/8] |= 1 << (c % 8)
	}
	return Classes(bits)
}

// Has reports whether the set holds a class, or is no set.
func (c Classes) Has(class uint16) bool {
	return c == "" || int(class/8) < len(c) && c[class/8]&(1<<(class%8)) != 0
}

// Request asks for Count shares of GPUs of one node, and for a part of its
// host. The zero value of a field asks for nothing in particular. Requests that
// are equal under == have one shape.
type Request struct {
	// Count is the number of shares; 0 asks for the host alone.
	Count int
	// Among names the GPUs that may serve by UUID or index; empty lets all.
	Among Names
	// AvoidGPUs are UUIDs, Models and AvoidModels names of models, see [v1alpha1.ModelMatches].
	AvoidGPUs, Models, AvoidModels Names
	// Memory is the limit of each share.
	Memory v1alpha1.Memory
	// SwapMemory asks for swap shares of a cluster, and is the limit of each in bytes. Memory is then what never leaves the GPU.
	SwapMemory uint64
	// Swap asks for swap shares, which keep Kept of the limit, as [v1alpha1.ShareConfig.KeptOf] has it.
	Swap bool
	Kept v1alpha1.Memory
	// Cores to guarantee on each, 0 to 100.
	Cores int
	// ZeroCores asks for no cores also where shares get some by default. Cores is 0.
	ZeroCores bool
	// Whole asks for GPUs without other tenants.
	Whole bool
	// Profile asks for MIG instances of that profile.
	Profile string
	// Classes are those of the GPUs that may serve; empty lets all.
	Classes Classes
	// Prefer is the order in which GPUs are wanted, before what the policy says. A request without GPUs has nodes
	// without GPUs first, and then those with the GPUs that it wants.
	Prefer v1alpha1.GPUPreference
	// Form is how the shares are made real. A GPU that tenants share in another way does
	// not serve.
	Form string
	// User is whose shares they are, where GPUs may be one user's; empty fits beside anybody's.
	User string
	// Same puts all shares on one GPU; otherwise each is on another.
	Same bool
	// Near is the least relation that every two of the GPUs must have.
	Near Relation
	// Together puts all GPUs into one place of each of these kinds, which is known also where it is one GPU.
	Together Places
	// Pair asks for an adapter with each GPU, and is the least relation that the two have; [RelationNone] asks for none. As
	// many adapters as possible are under one switch with their GPU, and of the others as many as possible under one bridge.
	Pair Relation
	// CPU is in thousandths of a processor, HostMemory in bytes.
	CPU        int64
	HostMemory uint64
	// Overcommit lets the sum of limits exceed a GPU's memory. A single limit never may. What swap shares keep never
	// does; one of them may be larger than the GPU, and have a turn that does not hold all of it.
	Overcommit bool
	// OvercommitCores lets the sum of guaranteed cores exceed 100.
	OvercommitCores bool
}

// ErrRequest marks requests that contradict themselves.
var ErrRequest = errors.New("invalid request")

// Validate returns every fault of a request.
func (r *Request) Validate() error {
	var faults []error
	fault := func(wrong bool, text string) {
		if wrong {
			faults = append(faults, fmt.Errorf("%w: %s", ErrRequest, text))
		}
	}
	fault(r.Count < 0 || r.Count > MaxGPUs, fmt.Sprintf("%d GPUs: ask for 0 to %d", r.Count, MaxGPUs))
	fault(r.Cores < 0 || r.Cores > 100, fmt.Sprintf("%d cores: ask for 0 to 100 percent", r.Cores))
	fault(r.CPU < 0, "CPU is negative")
	fault(r.Whole && r.Same && r.Count > 1, "several whole GPUs cannot be the same GPU")
	fault(r.Profile != "" && (r.Whole || r.Cores != 0 || !r.Memory.IsZero()), "a MIG profile sets memory and cores: leave them out")
	fault(r.misdividesSwap(), "a swap share keeps less than its limit on the GPU, in bytes, and is no whole GPU and no MIG instance")
	fault(r.Same && r.Profile != "" && r.Count > 1, "ask for several MIG instances of one GPU one by one")
	fault(r.Same && r.Pair != RelationNone && r.Count > 1, "one GPU cannot have several adapters")
	_, err := v1alpha1.ParseGPUPreference(string(r.Prefer))
	fault(err != nil, fmt.Sprint(err))
	fault(r.ZeroCores && r.Cores != 0, "it asks for cores and for none")
	fault(r.Together > allPlaces, fmt.Sprintf("unknown places %b", r.Together))
	fault(r.Pair > RelationSwitches, fmt.Sprintf("no adapter has relation %d to a GPU", r.Pair))
	fault(r.Pair != RelationNone && r.Profile != "", "a MIG instance has no adapter of its own")
	fault(r.contradictsSwap(), "a swap share is a part of a GPU, and no whole one nor a MIG instance")
	fault(r.Near > RelationNVLink, fmt.Sprintf("unknown relation %d", r.Near))
	return errors.Join(faults...)
}

// names reports whether the request leaves a GPU to choose.
func (r *Request) names(g *GPU) bool {
	return r.Among == "" || r.Among.Has(g.UUID) || r.Among.Has(strconv.Itoa(g.Index))
}

// plain reports whether any two GPUs of a model with the same amounts free serve
// the request equally well, so that nodes can be compared by their states.
func (r *Request) plain() bool {
	return r.Among == "" && r.AvoidGPUs == "" && r.Form == "" && r.User == "" && r.Profile == "" && !r.Swap && !r.Same && r.Near == RelationNone && r.Together == 0 && r.Pair == RelationNone && r.SwapMemory == 0
}

// group sorts requests as the clustering baseline does.
type group uint8

const (
	groupHost group = iota
	groupShare
	groupOne
	groupTwo
	groupFour
	groupEight
	groups
)

func (r *Request) group(whole bool) group {
	switch {
	case r.Count == 0:
		return groupHost
	case r.Count == 1 && !whole:
		return groupShare
	case r.Count == 1:
		return groupOne
	case r.Count == 2:
		return groupTwo
	case r.Count <= 4:
		return groupFour
	}
	return groupEight
}
