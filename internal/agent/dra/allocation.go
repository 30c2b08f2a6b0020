package dra

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// ErrClaim marks a claim that cannot be prepared as it stands: trying again
// does not help.
var ErrClaim = errors.New("claim cannot be served")

// allocation is one device that the scheduler gave to a claim.
type allocation struct {
	// request is the result's name of the request; base leaves out the alternative.
	request, base string
	device        string
	// pool is empty for a device of this node.
	pool    string
	shareID *types.UID
	uuid    string
	// whole is true for the device of a whole GPU that earlier versions published.
	whole bool
	// exclusive is true for a share with all of a GPU's memory that was asked for by the
	// class of whole GPUs.
	exclusive bool
	// form is that of the device, by its name; instance is the MIG instance, nil for a device of another form.
	form     pool.Form
	instance *agent.TenancyInstance
	// sharing is what the claim says to NVIDIA's driver of how its processes share a whole GPU; processMemory is the bound
	// of each one's memory that follows from it, 0 for none.
	sharing       dialect.GPUConfig
	processMemory uint64
	memory        uint64 // bytes
	swap          uint64 // bytes; the limit of a swap share, of which memory is what it keeps on the GPU
	cores         int    // percent
	config        v1alpha1.ShareConfig
	// asked is true if the claim names cores, even 0.
	asked bool
}

// defaultsOf finds the defaults for a share that names no policy, of a claim
// with these requests.
type defaultsOf func(requests []string, g *allocation) (v1alpha1.NodeDefaults, error)

func fault(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrClaim, fmt.Errorf(format, args...))
}

// allocationsOf reads which of this driver's devices a claim was given, and fills in
// defaults.
func allocationsOf(claim *resourcev1.ResourceClaim, node string, defaults defaultsOf) ([]allocation, error) {
	if claim.Status.Allocation == nil {
		return nil, fault("nothing is allocated to it")
	}
	devices := &claim.Status.Allocation.Devices
	var allocations []allocation
	for i := range devices.Results {
		r := &devices.Results[i]
		if !isShare(r) || isRemote(r) {
			continue
		}
		g, err := allocationOf(r, node)
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		if g.config, err = configOf(devices.Config, r.Request); err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		class, amounts := askedOf(claim, r.Request)
		_, g.asked = amounts[v1alpha1.CapacityCores]
		if g.exclusive = v1alpha1.IsWholeClass(class) && !g.whole && g.instance == nil; g.exclusive && len(amounts) > 0 {
			return nil, fmt.Errorf("request %s: %w", r.Request, faultAmounts(class, amounts))
		}
		allocations = append(allocations, g)
	}
	if err := shareBy(allocations, devices.Config); err != nil {
		return nil, err
	}
	slices.SortStableFunc(allocations, func(a, b allocation) int { return placeOf(claim, a.base) - placeOf(claim, b.base) })
	requests := requestsOf(allocations)
	for i := range allocations {
		if err := allocations[i].complete(requests, defaults); err != nil {
			return nil, fmt.Errorf("request %s: %w", allocations[i].request, err)
		}
	}
	return allocations, nil
}

// complete fills in what neither claim nor class names.
func (g *allocation) complete(requests []string, defaults defaultsOf) error {
	switch {
	case g.instance != nil:
		return g.completeInstance()
	case g.whole || g.exclusive:
		return g.completeWhole()
	}
	if err := g.completeBackend(); err != nil {
		return err
	}
	var d v1alpha1.NodeDefaults
	if g.config.Policy == "" && g.config.Backend == v1alpha1.BackendSlice {
		var err error
		if d, err = defaults(requests, g); err != nil {
			return err
		}
	}
	g.cores = d.Complete(&g.config, g.cores, g.asked)
	if err := g.config.Validate(g.cores); err != nil {
		return fault("%w", err)
	}
	return g.completeSwap()
}

// completeSwap makes the limit of a swap share the memory of the host that it takes, and keeps the memory of the GPU that it
// takes there.
func (g *allocation) completeSwap() error {
	if err := dialect.CheckSwap(g.config, g.memory, g.swap); err != nil {
		return fault("%w", err)
	}
	if g.config.Swap {
		g.config.Kept, g.memory = v1alpha1.Bytes(g.memory), g.swap
	}
	return nil
}

// completeWhole leaves all of a GPU's time to a tenant that is alone there. Cores that
// the scheduler counted by default are no cap, whatever the node's default policy is.
func (g *allocation) completeWhole() error {
	if g.config.Swap {
		return fault("a whole GPU has nobody to take turns with: leave out swap, or ask for a share by class %s", v1alpha1.ClassShare)
	}
	if g.config.Backend = cmp.Or(g.config.Backend, g.sharing.Backend); g.config.Backend == v1alpha1.BackendMPS || g.config.Backend == v1alpha1.BackendTimeslice {
		g.cores = g.sharing.Threads
		g.config.Default(g.cores)
		if err := g.config.Validate(g.cores); err != nil {
			return fault("%w", err)
		}
		return nil
	}
	g.config.Policy = cmp.Or(g.config.Policy, v1alpha1.PolicyWeighted)
	g.cores = v1alpha1.NodeDefaults{}.Complete(&g.config, g.cores, g.asked)
	if err := g.config.Validate(0); err != nil {
		return fault("%w", err)
	}
	return nil
}

// completeInstance refuses everything that would divide a MIG instance: its claim has it alone.
func (g *allocation) completeInstance() error {
	if g.config.Backend != "" && g.config.Backend != v1alpha1.BackendMIG {
		return fault("it asks for backend %s and was given MIG instance %s, which a claim has alone: leave out the backend", g.config.Backend, g.device)
	}
	g.config.Backend = v1alpha1.BackendMIG
	g.config.Default(0)
	if err := g.config.Validate(0); err != nil {
		return fault("%w", err)
	}
	return nil
}

// completeBackend makes the backend that of the device's form, which the scheduler saw, and refuses another one.
func (g *allocation) completeBackend() error {
	form := v1alpha1.BackendOf(string(g.form))
	if g.config.Backend == "" {
		g.config.Backend = form
	}
	if g.config.Backend != form {
		return fault("it asks for backend %s and was given %s, whose shares have backend %s: ask for it by class %s, or add a selector for form %q",
			g.config.Backend, g.device, form, v1alpha1.ClassOf(g.config.Backend), v1alpha1.FormOf(g.config.Backend))
	}
	return nil
}

// askedOf returns the class and the amounts that a request, or its alternative that was
// taken, names.
func askedOf(claim *resourcev1.ResourceClaim, request string) (class string, amounts map[resourcev1.QualifiedName]resource.Quantity) {
	var capacity *resourcev1.CapacityRequirements
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if r.Exactly != nil && r.Name == request {
			class, capacity = r.Exactly.DeviceClassName, r.Exactly.Capacity
		}
		for k := range r.FirstAvailable {
			if r.Name+"/"+r.FirstAvailable[k].Name == request {
				class, capacity = r.FirstAvailable[k].DeviceClassName, r.FirstAvailable[k].Capacity
			}
		}
	}
	if capacity != nil {
		amounts = capacity.Requests
	}
	return class, amounts
}

// faultAmounts says that a request for a whole GPU names amounts.
func faultAmounts(class string, amounts map[resourcev1.QualifiedName]resource.Quantity) error {
	var named []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		quantity := amounts[name]
		named = append(named, fmt.Sprintf("%s %s", name, quantity.String()))
	}
	return fault("it names %s, and class %s gives whole GPUs: leave out the amounts, or ask for a share by class %s",
		strings.Join(named, " and "), class, v1alpha1.ClassShare)
}

func allocationOf(r *resourcev1.DeviceRequestAllocationResult, node string) (allocation, error) {
	g, err := deviceOf(r, node)
	if err != nil || g.whole || g.instance != nil {
		return g, err
	}
	memory, err := consumed(r, v1alpha1.CapacityMemory)
	if err != nil {
		return g, err
	}
	cores, err := consumed(r, v1alpha1.CapacityCores)
	if err != nil {
		return g, err
	}
	if _, swaps := r.ConsumedCapacity[v1alpha1.CapacitySwapMemory]; swaps {
		swap, err := consumed(r, v1alpha1.CapacitySwapMemory)
		if err != nil {
			return g, err
		}
		g.swap = uint64(swap)
	}
	slots, counted := r.ConsumedCapacity[v1alpha1.CapacitySlots]
	switch {
	case memory == 0:
		return g, fault("memory must be greater than zero")
	case counted && slots.IsZero():
		return g, fault("slots 0: a share takes 1")
	case cores > v1alpha1.MaxCores:
		return g, fault("cores %d: give 0 to %d percent of the GPU's time", cores, v1alpha1.MaxCores)
	}
	g.memory, g.cores = uint64(memory), int(cores)
	return g, nil
}

// deviceOf finds the GPU of a result, and the MIG instance there.
func deviceOf(r *resourcev1.DeviceRequestAllocationResult, node string) (allocation, error) {
	g := allocation{request: r.Request, base: resourceclaim.BaseRequestRef(r.Request), device: r.Device, shareID: r.ShareID}
	if r.Pool != node {
		return g, fault("its device is on node %s, but this is node %s", r.Pool, node)
	}
	uuid, form, ok := pool.Parse(r.Device)
	if !ok {
		return g, fault("device %s does not belong to this driver", r.Device)
	}
	g.uuid, g.whole, g.form = uuid, form == pool.Whole, form
	if profile, start, ok := pool.ParseInstance(r.Device); ok {
		g.instance = &agent.TenancyInstance{Profile: profile, Start: start}
	}
	return g, nil
}

// consumed is how much of a device's capacity the result takes.
func consumed(r *resourcev1.DeviceRequestAllocationResult, name resourcev1.QualifiedName) (int64, error) {
	q, ok := r.ConsumedCapacity[name]
	if !ok {
		// A scheduler without the feature knows no amounts and allocates the device to everybody.
		return 0, fault("the scheduler did not say how much %s it takes: DRAConsumableCapacity must be on in the cluster", name)
	}
	n, whole := dialect.WholeNumber(q)
	if !whole || n < 0 {
		return 0, fault("%s %s: the amount must be a whole number, 0 or more", name, q.String())
	}
	return n, nil
}

// configOf returns the configuration of a request. The claim's configuration wins
// over the class's, and the two are not merged. Several configurations from one
// source must be equal.
func configOf(all []resourcev1.DeviceAllocationConfiguration, request string) (v1alpha1.ShareConfig, error) {
	for _, source := range []resourcev1.AllocationConfigSource{resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass} {
		var found *v1alpha1.ShareConfig
		for i := range all {
			c := &all[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != v1alpha1.Driver || !isFor(c.Requests, request) {
				continue
			}
			config, err := v1alpha1.DecodeShareConfig(c.Opaque.Parameters.Raw)
			if err != nil {
				return config, fault("%w", err)
			}
			if found != nil && *found != config {
				return config, fault("two configurations contradict each other (%s and %s): give one", describe(found), describe(&config))
			}
			found = &config
		}
		if found != nil {
			return *found, nil
		}
	}
	return v1alpha1.ShareConfig{}, nil
}

// isFor reports whether a configuration for these requests, all if there are
// none, is for one: named itself, or by the request of which it is an
// alternative.
func isFor(requests []string, request string) bool {
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, resourceclaim.BaseRequestRef(request))
}

func describe(c *v1alpha1.ShareConfig) string {
	var words []string
	for _, w := range []struct{ name, value string }{
		{"policy", string(c.Policy)}, {"class", string(c.Class)}, {"backend", string(c.Backend)},
	} {
		if w.value != "" {
			words = append(words, w.name+" "+w.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"weight", c.Weight}, {"maxCores", c.MaxCores}} {
		if n.value != 0 {
			words = append(words, fmt.Sprintf("%s %d", n.name, n.value))
		}
	}
	if c.Swap {
		words = append(words, "swap")
	}
	if c.SuspendAfter != 0 {
		words = append(words, "suspendAfter "+time.Duration(c.SuspendAfter).String())
	}
	if len(words) == 0 {
		return "nothing set"
	}
	return strings.Join(words, ", ")
}
