package demand

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// ourDriver finds that an expression lets no device of another driver. It need not find every such expression: claims of
// which it is not known are placed elsewhere.
var ourDriver = regexp.MustCompile(`device\.driver\s*==\s*["']` + regexp.QuoteMeta(v1alpha1.Driver) + `["']`)

// expand makes requests for the allocator of one way: several where instances of several MIG profiles would do.
func (r *reader) expand(w *way) ([]alloc.Request, error) {
	class := r.published.DeviceClass(w.class)
	if class == nil {
		if (dialect.Classes{}).Ours(w.class) {
			return nil, fmt.Errorf("there is no device class %s: Divvy's chart makes it", w.class)
		}
		return nil, fmt.Errorf("%w: there is no device class %s", ErrElsewhere, w.class)
	}
	expressions, ours := expressionsOf(class.Spec.Selectors, w.selectors)
	switch {
	case !ours:
		return nil, fmt.Errorf("%w: class %s is not of Divvy's devices alone", ErrElsewhere, w.class)
	case v1alpha1.IsNICClass(w.class):
		return nil, fmt.Errorf("%w: it asks for RDMA cards otherwise than in pairs", ErrElsewhere)
	case len(w.tolerations) > 0:
		return nil, fmt.Errorf("%w: it tolerates taints of devices", ErrElsewhere)
	}
	config, err := configOf(r.claim.Spec, class, w.name)
	if err == nil && cmp.Or(v1alpha1.SharesOf(w.class), config.Backend) == v1alpha1.BackendRemote {
		return nil, r.remote(w, config)
	}
	if err == nil {
		err = nvidiaConfig(r.claim.Spec, w)
	}
	if err != nil {
		return nil, err
	}
	return r.local(w, expressions, config)
}

// local makes requests for GPUs of the pod's own node.
func (r *reader) local(w *way, expressions []string, config v1alpha1.ShareConfig) ([]alloc.Request, error) {
	if w.count > alloc.MaxGPUs {
		return nil, fmt.Errorf("%d GPUs: a node has at most %d", w.count, alloc.MaxGPUs)
	}
	base := alloc.Request{Count: int(max(w.count, 1))}
	if err := r.wishes.apply(&base, &config); err != nil {
		return nil, err
	}
	switch {
	case v1alpha1.IsInstanceClass(w.class):
		if config.Backend != "" && config.Backend != v1alpha1.BackendMIG {
			return nil, fmt.Errorf("its configuration asks for backend %s, and class %s gives MIG instances, which a claim has alone: leave out the backend", config.Backend, w.class)
		}
		return r.instances(base, w, expressions)
	case v1alpha1.IsWholeClass(w.class):
		return r.wholes(base, w, expressions)
	case v1alpha1.SharesOf(w.class) != "":
		return r.shares(base, w, expressions, config)
	}
	return r.either(base, w, expressions, config)
}

// expressionsOf lists what selectors say; ours is true if they let Divvy's devices alone.
func expressionsOf(lists ...[]resourcev1.DeviceSelector) (all []string, ours bool) {
	for _, list := range lists {
		for _, s := range list {
			if s.CEL == nil {
				return nil, false
			}
			all = append(all, s.CEL.Expression)
			ours = ours || ourDriver.MatchString(s.CEL.Expression)
		}
	}
	return all, ours
}

// wholes is a request for whole GPUs.
func (r *reader) wholes(base alloc.Request, w *way, expressions []string) ([]alloc.Request, error) {
	if w.capacity != nil && len(w.capacity.Requests) > 0 {
		return nil, fmt.Errorf("class %s gives whole GPUs: leave out the amounts, or ask for a share by class %s", w.class, v1alpha1.ClassShare)
	}
	base.Whole = true
	base.Classes, base.Among = r.published.Serving(expressions)
	return []alloc.Request{base}, nil
}

// shares is a request for shares.
func (r *reader) shares(base alloc.Request, w *way, expressions []string, config v1alpha1.ShareConfig) ([]alloc.Request, error) {
	asked, err := asks(w.capacity)
	if err != nil {
		return nil, err
	}
	backend := v1alpha1.SharesOf(w.class)
	switch {
	case backend != "" && config.Backend != "" && config.Backend != backend:
		return nil, fmt.Errorf("its configuration asks for backend %s, and class %s gives backend %s: write class %s",
			config.Backend, w.class, backend, v1alpha1.ClassOf(config.Backend))
	case backend == v1alpha1.BackendTimeslice && asked.cores > 0:
		return nil, fmt.Errorf("cores %d: backend timeslice leaves GPU time to the driver: leave out the cores", asked.cores)
	case backend == v1alpha1.BackendMPS && base.Count > 1:
		return nil, fmt.Errorf("%d GPUs with backend mps: ask for one, because a process can be the client of one control daemon only", w.count)
	}
	full := config
	full.Backend = cmp.Or(backend, config.Backend)
	full.Default(asked.cores)
	if err := full.Validate(asked.cores); err != nil {
		return nil, err
	}
	if err := dialect.CheckSwap(config, asked.memory, asked.swap); err != nil {
		return nil, err
	}
	if asked.memory > 0 {
		base.Memory = v1alpha1.Bytes(asked.memory)
	}
	base.SwapMemory = asked.swap
	base.Cores, base.ZeroCores = asked.cores, asked.named && asked.cores == 0
	base.Classes, base.Among = r.published.Serving(expressions)
	return []alloc.Request{base}, nil
}

// namesUUID finds that an expression may read the UUID of an instance, by which it means a single one of a GPU's.
var namesUUID = regexp.MustCompile(`\buuid\b`)

// instances is a request for a MIG instance: one alternative for each profile that would do, the smallest first.
func (r *reader) instances(base alloc.Request, w *way, expressions []string) ([]alloc.Request, error) {
	if base.Count > 1 {
		return nil, fmt.Errorf("%d MIG instances: ask for one in each request and name one request in each container, because a process can use one instance only", w.count)
	}
	if slices.ContainsFunc(expressions, namesUUID.MatchString) {
		return nil, fmt.Errorf("%w: it selects single MIG instances", ErrElsewhere)
	}
	least, err := atLeast(w.capacity)
	if err != nil {
		return nil, err
	}
	var all []alloc.Request
	for _, one := range r.published.Instances(append(slices.Clone(expressions), least...)) {
		request := base
		request.Profile, request.Classes, request.Among = one.Profile, one.Classes, one.Among
		all = append(all, request)
	}
	if len(all) == 0 {
		base.Classes = alloc.ClassesOf() // there is none
		all = []alloc.Request{base}
	}
	return all, nil
}

// atLeast has the amounts of a request for an instance as expressions: they are the least that it has.
func atLeast(capacity *resourcev1.CapacityRequirements) (all []string, err error) {
	if capacity == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(capacity.Requests)) {
		quantity := capacity.Requests[name]
		if name != v1alpha1.CapacityMemory && name != v1alpha1.CapacityCores {
			return nil, fmt.Errorf("a MIG instance has memory and cores, and no %q", name)
		}
		if n, fits := counted(quantity); n < 1 || !fits {
			return nil, fmt.Errorf("%s %s: give an amount that an instance can have", name, quantity.String())
		}
		all = append(all, fmt.Sprintf("device.capacity[%q].%s.compareTo(quantity(%q)) >= 0", v1alpha1.Driver, name, quantity.String()))
	}
	return all, nil
}

// either is a request of a class that administrators made, which may select GPUs and MIG instances.
func (r *reader) either(base alloc.Request, w *way, expressions []string, config v1alpha1.ShareConfig) ([]alloc.Request, error) {
	asked, err := asks(w.capacity)
	if err != nil {
		return nil, err
	}
	if asked.cores > 0 {
		expressions = append(slices.Clone(expressions), fmt.Sprintf("device.capacity[%q].%s.compareTo(quantity(%q)) >= 0",
			v1alpha1.Driver, v1alpha1.CapacityCores, fmt.Sprint(asked.cores)))
	}
	if form := v1alpha1.FormOf(config.Backend); config.Backend != "" && form != "" {
		expressions = append(slices.Clone(expressions), fmt.Sprintf("device.attributes[%q].%s == %q", v1alpha1.Driver, v1alpha1.AttributeForm, form))
	}
	all, err := r.shares(base, w, expressions, config)
	if err != nil || base.Count > 1 {
		return all, err
	}
	if _, slots := requested(w.capacity, v1alpha1.CapacitySlots); slots {
		return all, nil // which no instance has
	}
	instances, err := r.instances(base, w, expressions)
	if err != nil {
		return nil, err
	}
	return append(all, slices.DeleteFunc(instances, func(one alloc.Request) bool { return one.Profile == "" })...), nil
}
