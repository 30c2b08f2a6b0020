package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// formInterval is the time between two questions whether a GPU that is to get another form is still allocated. Nobody
// asks while none is.
const formInterval = 5 * time.Second

// claimPage is how many claims are read at once.
const claimPage = 500

// givers is what the agent knows of the forms of its GPUs.
type givers interface {
	GPUs() []backend.GPU
	// Given returns the forms that GPUs are given, by UUID, and a channel that is closed when that may be otherwise.
	Given() (map[string]agentconfig.Form, <-chan struct{})
	Tenancies() []agent.Tenancy
	dividers
}

// forms says in which form each GPU is published. A GPU that is given another one is tainted first, so that nobody new
// gets it. When no claim has it, its device is withdrawn. When the API has no such device and still no claim has it, it is
// published anew: a scheduler that had not seen the taint may have allocated it meanwhile.
type forms struct {
	node   string
	client kubernetes.Interface
	agent  givers
	// functionOf is the UUID of the GPU on which a device for virtual machines is, "" where the driver has no such GPU.
	functionOf func(pool.FunctionID) string
	log        *slog.Logger
	again      time.Duration

	mu      sync.Mutex
	gpus    map[string]published // by UUID; nil until it is known what is published
	changed chan struct{}
}

// published is how a GPU is published.
type published struct {
	form pool.Form
	// next is the form that it is to get, "" where it has the one that it is given.
	next      pool.Form
	withdrawn bool
	// replicas is the most shares that the administrator allows, 0 for no bound.
	replicas int
	// dynamic has all places of a GPU of form MIG published. Otherwise devices lists what is, and departing those that are
	// withdrawn and that a claim or the API may still have.
	dynamic            bool
	devices, departing string
}

// waits reports whether the API server has to be asked about a GPU again.
func (p published) waits() bool { return p.next != "" || p.departing != "" }

func newForms(node string, client kubernetes.Interface, a givers, log *slog.Logger) *forms {
	return &forms{node: node, client: client, agent: a, functionOf: func(pool.FunctionID) string { return "" }, log: log, again: formInterval, changed: make(chan struct{})}
}

// get returns how each GPU is published, nil while that is not known, and a channel that is closed when it is otherwise.
func (f *forms) get() (map[string]published, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus, f.changed
}

// run follows what GPUs are given until ctx is done.
func (f *forms) run(ctx context.Context) error {
	for {
		given, changed := f.agent.Given()
		var divided <-chan struct{} // the agent's own, whatever gives the forms
		for _, gpu := range f.agent.GPUs() {
			_, _, divided = f.agent.Division(gpu.UUID)
		}
		pending, err := f.look(ctx, given)
		if err != nil && ctx.Err() == nil {
			f.log.WarnContext(ctx, "cannot see whether a GPU can get its form, and will try again", "error", err)
		}
		if !pending && err == nil {
			select {
			case <-changed:
			case <-divided:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		// Whoever waits here has asked the API server already.
		select {
		case <-time.After(f.again):
		case <-ctx.Done():
			return nil
		}
	}
}

// look brings each GPU a step nearer to its form. Pending is true while one has another.
func (f *forms) look(ctx context.Context, given map[string]agentconfig.Form) (pending bool, err error) {
	now, _ := f.get()
	if now == nil {
		if now, err = f.begin(ctx, given); err != nil {
			return true, err
		}
		f.set(now)
	}
	for {
		next, err := f.step(ctx, now, given)
		if err != nil {
			return true, err
		}
		if same(now, next) {
			break
		}
		f.set(next)
		now = next
	}
	for _, p := range now {
		pending = pending || p.waits()
	}
	return pending, nil
}

func same(a, b map[string]published) bool {
	for uuid, p := range a {
		if b[uuid] != p {
			return false
		}
	}
	return len(a) == len(b)
}

func (f *forms) set(next map[string]published) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uuid, p := range next {
		if before := f.gpus[uuid]; f.gpus != nil && before != p {
			f.log.Info("a GPU's form", "gpu", uuid, "published", p.form, "next", p.next, "withdrawn", p.withdrawn)
		}
	}
	f.gpus = next
	close(f.changed)
	f.changed = make(chan struct{})
}

// want is the form that a GPU is to have.
func (f *forms) want(given map[string]agentconfig.Form, uuid string) pool.Form {
	d, _, _ := f.agent.Division(uuid)
	return wantedForm(given[uuid], &d)
}

// begin finds out how GPUs were published by an earlier agent. Where nothing says so, a GPU whose form is not the usual one
// is published after it was seen that no claim has it in another.
func (f *forms) begin(ctx context.Context, given map[string]agentconfig.Form) (map[string]published, error) {
	found, names, err := f.devices(ctx)
	if err != nil {
		return nil, err
	}
	for uuid, form := range formsOf(f.agent.Tenancies()) {
		if found[uuid] == "" {
			found[uuid] = form
		}
	}
	now := map[string]published{}
	for _, gpu := range f.agent.GPUs() {
		form, wanted := found[gpu.UUID], f.want(given, gpu.UUID)
		switch {
		case form == pool.MIG:
			now[gpu.UUID] = published{form: form, devices: listOf(names[gpu.UUID])}
		case form != "":
			now[gpu.UUID] = published{form: form}
		case wanted == pool.Shared:
			now[gpu.UUID] = published{form: wanted}
		default:
			now[gpu.UUID] = published{form: pool.Shared, next: wanted, withdrawn: true}
		}
	}
	return now, nil
}

// formsOf are the forms of the devices of which tenancies have shares, by UUID. A whole GPU may be had in any form.
func formsOf(tenancies []agent.Tenancy) map[string]pool.Form {
	forms := map[string]pool.Form{}
	for _, t := range tenancies {
		for _, s := range t.Shares {
			if s.Instance != nil {
				forms[s.UUID] = pool.MIG
			} else if form := v1alpha1.FormOf(s.Config.Backend); form != "" && !s.Whole && !s.Exclusive {
				forms[s.UUID] = pool.Form(form)
			}
		}
	}
	return forms
}

// step is the next state of each GPU. It asks the API server only where a GPU waits for the end of allocations.
func (f *forms) step(ctx context.Context, now map[string]published, given map[string]agentconfig.Form) (map[string]published, error) {
	held := map[string]bool{}
	for _, t := range f.agent.Tenancies() {
		for _, s := range t.Shares {
			held[s.UUID] = true
		}
	}
	var asked *allocated
	ask := func() (_ *allocated, err error) {
		if asked == nil {
			asked, err = f.ask(ctx)
		}
		return asked, err
	}
	next := map[string]published{}
	for uuid, p := range now {
		wanted := f.want(given, uuid)
		var err error
		switch {
		case wanted == pool.MIG && p.form == pool.MIG:
			d, _, _ := f.agent.Division(uuid)
			p, err = p.divide(&d, isDynamic(given[uuid]), offered(&d, uuid, usesOf(f.agent.InstanceUses(), uuid)), ask)
		case wanted == p.form || wanted == "":
			p = published{form: p.form, replicas: given[uuid].Replicas}
		case p.next != wanted:
			p.next = wanted
		case !held[uuid]:
			p, err = p.change(uuid, published{form: wanted, replicas: given[uuid].Replicas}, ask)
		}
		if err != nil {
			return nil, err
		}
		next[uuid] = p
	}
	return next, nil
}

// change brings a GPU that nobody on the node has a step nearer to what it is to be.
func (p published) change(uuid string, to published, ask func() (*allocated, error)) (published, error) {
	asked, err := ask()
	switch {
	case err != nil || asked.claimed[uuid]:
	case !p.withdrawn:
		p.withdrawn = true
	case asked.published[uuid] == "":
		return to, nil
	}
	return p, err
}

// allocated is what the API server has of a node's GPUs, by UUID.
type allocated struct {
	published map[string]pool.Form
	claimed   map[string]bool
	// devices are the names of MIG instances that are published or that claims have.
	devices map[string]bool
}

// ask reads what is published, and after that what claims have: a scheduler that saw a device may allocate it until then.
func (f *forms) ask(ctx context.Context) (*allocated, error) {
	devices, names, err := f.devices(ctx)
	if err != nil {
		return nil, err
	}
	found := &allocated{devices, map[string]bool{}, map[string]bool{}}
	for _, list := range names {
		for _, name := range list {
			found.devices[name] = true
		}
	}
	for options := (metav1.ListOptions{Limit: claimPage}); ; {
		list, err := f.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("read which claims have GPUs of this node: %w", err)
		}
		for i := range list.Items {
			for _, name := range f.allocatedTo(&list.Items[i]) {
				uuid, _, _ := f.parse(name)
				found.claimed[uuid], found.devices[name] = true, true
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// parse finds the GPU and the form of a device, also of one for virtual machines.
func (f *forms) parse(device string) (uuid string, form pool.Form, ok bool) {
	if id, is := pool.ParseFunction(device); is {
		uuid = f.functionOf(id)
		return uuid, id.Form, uuid != ""
	}
	return pool.Parse(device)
}

// allocatedTo are the node's devices that a claim has, but for admin access, which takes nothing of them.
func (f *forms) allocatedTo(claim *resourcev1.ResourceClaim) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var all []string
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		_, _, ok := f.parse(r.Device)
		ours := r.Pool == f.node || r.Pool == v1alpha1.RemotePool(f.node)
		if ok && ours && r.Driver == v1alpha1.Driver && !ptr.Deref(r.AdminAccess, false) {
			all = append(all, r.Device)
		}
	}
	return all
}

// devices reads the forms of the node's devices, by UUID of the GPU, and the names of those that are MIG instances. That
// of a whole GPU of earlier versions is none.
func (f *forms) devices(ctx context.Context) (found map[string]pool.Form, names map[string][]string, err error) {
	list, err := f.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, f.node).String()})
	if err != nil {
		return nil, nil, fmt.Errorf("read how this node's GPUs are published: %w", err)
	}
	remote, err := f.client.ResourceV1().ResourceSlices().Get(ctx, v1alpha1.RemoteSlice(f.node), metav1.GetOptions{})
	if err == nil {
		list.Items = append(list.Items, *remote)
	} else if !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("read which GPUs of this node others reach: %w", err)
	}
	found, names = map[string]pool.Form{}, map[string][]string{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Driver != v1alpha1.Driver || spec.Pool.Name != v1alpha1.RemotePool(f.node) && (spec.NodeName == nil || *spec.NodeName != f.node) {
			continue
		}
		for k := range spec.Devices {
			uuid, form, ok := f.parse(spec.Devices[k].Name)
			if ok && form != pool.Whole {
				found[uuid] = form
			}
			if form == pool.MIG {
				names[uuid] = append(names[uuid], spec.Devices[k].Name)
			}
		}
	}
	return found, names, nil
}

// shape gives GPUs the forms in which they are published, and leaves out those that are withdrawn and those whose devices are
// for virtual machines.
func shape(gpus []pool.GPU, now map[string]published) []pool.GPU {
	for i := range gpus {
		p := now[gpus[i].UUID]
		gpus[i].Form, gpus[i].Changing, gpus[i].Replicas = p.form, p.next, p.replicas
	}
	return slices.DeleteFunc(gpus, func(g pool.GPU) bool { return now[g.UUID].withdrawn || pool.IsMachines(g.Form) })
}
