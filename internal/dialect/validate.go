package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	resourcev1 "k8s.io/api/resource/v1"
)

// ErrClaim marks every error of [ValidateClaim].
var ErrClaim = errors.New("invalid GPU claim")

// ValidateClaim returns every fault in what a claim, or a template's claim, says to Divvy: sizes that no share can
// have, configuration that does not decode strictly or contradicts itself, and two configurations for one request. What
// it says to other drivers is not looked at. The error joins the faults and wraps [ErrClaim].
func (c Classes) ValidateClaim(spec *resourcev1.ResourceClaimSpec) error {
	v := validation{classes: c, configs: make(map[string]int)}
	asks := requestsOf(spec)
	for i := range spec.Devices.Config {
		v.config(&spec.Devices.Config[i], i, asks)
	}
	for _, a := range asks {
		v.request(a)
	}
	if err := CheckReached(spec); err != nil {
		v.fault("%w", err)
	}
	return errors.Join(v.faults...)
}

// ask is a request or one way of a request.
type ask struct {
	parent, name string // name has the form of references: request, or request/way
	class        string
	capacity     *resourcev1.CapacityRequirements
	admin        bool // it asks for admin access, which is no share
	count        int64
}

// is reports whether a configuration that names these requests is for it; naming none means all.
func (a ask) is(names []string) bool {
	return len(names) == 0 || slices.Contains(names, a.name) || slices.Contains(names, a.parent)
}

func requestsOf(spec *resourcev1.ResourceClaimSpec) []ask {
	var all []ask
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil {
			all = append(all, ask{r.Name, r.Name, r.Exactly.DeviceClassName, r.Exactly.Capacity, isAdmins(r.Exactly), r.Exactly.Count})
		}
		for _, way := range r.FirstAvailable {
			all = append(all, ask{r.Name, r.Name + "/" + way.Name, way.DeviceClassName, way.Capacity, false, way.Count})
		}
	}
	return all
}

type validation struct {
	classes Classes
	faults  []error
	configs map[string]int // configurations of each request
}

func (v *validation) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Errorf("%w: %w", ErrClaim, fmt.Errorf(format, args...)))
}

// config checks one configuration, if it is ours, against the requests it is for.
func (v *validation) config(c *resourcev1.DeviceClaimConfiguration, index int, asks []ask) {
	switch {
	case c.Opaque == nil:
		return
	case c.Opaque.Driver == v1alpha1.NVIDIADriver && v.classes.NVIDIA:
		v.nvidiaConfig(c, index, asks)
		return
	case c.Opaque.Driver != v1alpha1.Driver:
		return
	}
	decoded, err := v1alpha1.DecodeShareConfig(c.Opaque.Parameters.Raw)
	if err != nil {
		v.fault("configuration %d: %w", index, err)
		return
	}
	for _, a := range asks {
		if !a.is(c.Requests) {
			continue
		}
		if a.admin {
			if len(c.Requests) > 0 {
				v.fault("configuration %d is for shares, but request %s is for admin access", index, a.name)
			}
			continue
		}
		switch {
		case v1alpha1.SharesOf(a.class) != "":
		case v.classes.Ours(a.class):
			v.fault("configuration %d is for shares, but request %s is of class %s", index, a.name, a.class)
			continue
		case len(c.Requests) == 0:
			continue // it is for all requests, and this one is another driver's
		}
		v.share(decoded, index, a)
	}
}

// share checks a configuration with the share that it is for.
func (v *validation) share(decoded v1alpha1.ShareConfig, index int, a ask) {
	if v.configs[a.name]++; v.configs[a.name] > 1 {
		v.fault("request %s has two configurations: give one", a.name)
		return
	}
	cores, err := coresOf(a.capacity)
	if err != nil {
		return // named with the request
	}
	full := decoded
	if shares := v1alpha1.SharesOf(a.class); shares != "" {
		if full.Backend == "" {
			full.Backend = shares
		}
		if full.Backend != shares {
			v.fault("configuration %d asks for backend %s, but request %s is of class %s, which gives backend %s: write class %s",
				index, full.Backend, a.name, a.class, shares, v1alpha1.ClassOf(full.Backend))
			return
		}
	}
	full.Default(cores)
	if err := full.Validate(cores); err != nil {
		v.fault("configuration %d of request %s: %s", index, a.name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	v.swap(decoded, a)
}

// swap checks what a request takes of the GPU and of the host.
func (v *validation) swap(config v1alpha1.ShareConfig, a ask) {
	var memory, swap uint64
	if a.capacity != nil {
		memory, swap = amount(a.capacity.Requests, v1alpha1.CapacityMemory), amount(a.capacity.Requests, v1alpha1.CapacitySwapMemory)
	}
	if err := CheckSwap(config, memory, swap); err != nil {
		v.fault("request %s: %w", a.name, err)
	}
	if config.Swap && a.count > v1alpha1.MaxSwapGPUs {
		v.fault("request %s: %d GPUs with swap: ask for at most %d", a.name, a.count, v1alpha1.MaxSwapGPUs)
	}
}

// request checks a request for one of our classes.
func (v *validation) request(a ask) {
	if a.admin && a.class == v1alpha1.ClassRemote {
		v.fault("request %s: admin access is to GPUs of the pod's node, and class %s gives those of other hosts", a.name, a.class)
		return
	}
	if a.admin && !v.classes.instance(a.class) && v.classes.Ours(a.class) {
		if a.capacity == nil {
			return
		}
		if err := TakesNothing(a.capacity.Requests); err != nil {
			v.fault("request %s: %w", a.name, err)
		}
		return
	}
	switch {
	case v.classes.instance(a.class):
		v.instance(a)
		return
	case v.classes.whole(a.class):
		if a.capacity != nil && len(a.capacity.Requests) > 0 {
			v.fault("request %s: a request for whole GPUs must not set amounts", a.name)
		}
		return
	case v1alpha1.SharesOf(a.class) == "":
		return
	}
	v.shareRequest(a)
}

// shareRequest checks a request for a share.
func (v *validation) shareRequest(a ask) {
	cores, err := coresOf(a.capacity)
	if err != nil {
		v.fault("request %s: %w", a.name, err)
	}
	if shares := v1alpha1.SharesOf(a.class); shares != v1alpha1.BackendSlice && v.configs[a.name] == 0 {
		v.plainConfig(a, shares, cores)
	}
	if v.configs[a.name] == 0 {
		v.swap(v1alpha1.ShareConfig{}, a)
	}
	if a.class == v1alpha1.ClassMPS && a.count > 1 {
		v.fault("request %s: %d GPUs with backend mps: ask for one, because each has a control daemon of its own and a process can be the client of one only", a.name, a.count)
	}
	if a.capacity != nil {
		v.amounts(a)
	}
}

// plainConfig checks a request for a share of a class's backend that no configuration is for.
func (v *validation) plainConfig(a ask, shares v1alpha1.Backend, cores int) {
	full := v1alpha1.ShareConfig{Backend: shares}
	full.Default(cores)
	if err := full.Validate(cores); err != nil {
		v.fault("request %s: %s", a.name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// nvidiaConfig checks a configuration that is addressed to NVIDIA's driver. Several for one request are in order: the last
// counts.
func (v *validation) nvidiaConfig(c *resourcev1.DeviceClaimConfiguration, index int, asks []ask) {
	instances := IsMIGConfig(c.Opaque.Parameters.Raw)
	decode, of := DecodeGPUConfig, "whole GPUs"
	if instances {
		decode, of = DecodeMIGConfig, "MIG devices"
	}
	decoded, err := decode(c.Opaque.Parameters.Raw)
	if err != nil {
		v.fault("configuration %d: %w", index, err)
		return
	}
	for _, a := range asks {
		switch {
		case !a.is(c.Requests):
		case v.classes.Ours(a.class) && v.classes.instance(a.class) != instances && len(c.Requests) > 0,
			v1alpha1.SharesOf(a.class) != "" && len(c.Requests) > 0:
			v.fault("configuration %d is for %s, but request %s is of class %s", index, of, a.name, a.class)
		case v.classes.whole(a.class) && decoded.Backend == v1alpha1.BackendMPS && a.count > 1:
			v.fault("configuration %d of request %s: %d GPUs with strategy MPS: ask for one, because each has a control daemon of its own and a process can be the client of one only",
				index, a.name, a.count)
		}
	}
}

// amounts checks what a share takes, but for its cores.
func (v *validation) amounts(a ask) {
	for _, name := range sortedKeys(a.capacity.Requests) {
		quantity := a.capacity.Requests[name]
		switch name {
		case v1alpha1.CapacityCores:
		case v1alpha1.CapacityMemory, v1alpha1.CapacitySwapMemory:
			if n, ok := WholeNumber(quantity); !ok || n <= 0 || n%mebibyte != 0 {
				v.fault("request %s: %s %s: give a positive multiple of 1Mi", a.name, name, quantity.String())
			}
		case v1alpha1.CapacitySlots:
			if n, ok := WholeNumber(quantity); !ok || n != 1 {
				v.fault("request %s: slots %s: a share takes exactly 1", a.name, quantity.String())
			}
		default:
			v.fault("request %s: a share has memory, cores, slots and swapMemory, and no %q", a.name, name)
		}
	}
}

// coresOf returns the percentage of GPU time that a request asks, 0 for none.
func coresOf(capacity *resourcev1.CapacityRequirements) (int, error) {
	if capacity == nil {
		return 0, nil
	}
	quantity, ok := capacity.Requests[v1alpha1.CapacityCores]
	if !ok {
		return 0, nil
	}
	n, whole := WholeNumber(quantity)
	if !whole || n < 0 || n > v1alpha1.MaxCores {
		return 0, fmt.Errorf("cores %s: give a whole number, 0 to %d", quantity.String(), v1alpha1.MaxCores)
	}
	return int(n), nil
}
