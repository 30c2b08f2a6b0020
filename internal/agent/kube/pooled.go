package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Pool says which GPUs of a node other nodes reach through the network. Such a GPU has no other form.
type Pool struct {
	// GPUs are indexes and UUIDs, or [AllGPUs] alone; none where it is empty.
	GPUs []string
	// Hosts selects the nodes of which that is so, by their labels; empty is every node whose agent is told so.
	Hosts string
	// Selector selects the nodes that reach the GPUs, by their labels; empty is all nodes.
	Selector string
	// Address is where they reach this node, an IP address with or without a port; empty is the node's InternalIP.
	Address string
}

// AllGPUs names every GPU of a node.
const AllGPUs = "all"

// poolGPU is an index without leading zeros, or a whole UUID.
var poolGPU = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|(?i:gpu)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// validate returns what is wrong with what the agent is told.
func (p *Pool) validate() error {
	var faults []error
	if len(p.GPUs) == 0 {
		if p.Hosts != "" || p.Selector != "" || p.Address != "" {
			return errors.New("--pool-hosts, --pool-selector and --pool-address need --pool")
		}
		return nil
	}
	seen := map[string]bool{}
	for _, name := range p.GPUs {
		switch {
		case name == AllGPUs && len(p.GPUs) > 1:
			faults = append(faults, fmt.Errorf("--pool %s: give either %s or names", strings.Join(p.GPUs, ","), AllGPUs))
		case name != AllGPUs && !poolGPU.MatchString(name):
			faults = append(faults, fmt.Errorf("--pool: %q is neither an index nor a whole UUID nor %s: `divvy ls` lists them", name, AllGPUs))
		case seen[strings.ToLower(name)]:
			faults = append(faults, fmt.Errorf("--pool: %s is named twice", name))
		}
		seen[strings.ToLower(name)] = true
	}
	for flag, text := range map[string]string{"--pool-hosts": p.Hosts, "--pool-selector": p.Selector} {
		if _, err := labels.ParseToRequirements(text); err != nil {
			faults = append(faults, fmt.Errorf("%s %q: %w", flag, text, err))
		}
	}
	if _, _, err := p.address(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// address is the one that the agent was told, invalid for none, and the port.
func (p *Pool) address() (netip.Addr, uint16, error) {
	if p.Address == "" {
		return netip.Addr{}, wire.Port, nil
	}
	ip, err := netip.ParseAddr(p.Address)
	at := netip.AddrPortFrom(ip, wire.Port)
	if err != nil {
		at, err = netip.ParseAddrPort(p.Address)
	}
	if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().Zone() != "" {
		return netip.Addr{}, 0, fmt.Errorf("--pool-address %q: give the IP address by which nodes reach this one, with or without a port", p.Address)
	}
	return at.Addr(), at.Port(), nil
}

// names reports whether other nodes are to reach a GPU.
func (p *Pool) names(gpu backend.GPU) bool {
	return slices.ContainsFunc(p.GPUs, func(name string) bool {
		return name == AllGPUs || name == strconv.Itoa(gpu.Index) || strings.EqualFold(name, gpu.UUID)
	})
}

// pooled gives GPUs the form in which other nodes reach them, and describes these.
type pooled struct {
	givers
	told   Pool
	node   string
	writer *remotePool
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // it ends what waits for two channels

	mu      sync.Mutex
	labels  labels.Set
	at      netip.AddrPort
	fault   error // why there is no address
	changed chan struct{}
	seen    chan struct{} // closed when the node was read
	known   bool
	refused map[string]v1alpha1.Backend // GPUs that have another form, which was said
}

func newPooled(ctx context.Context, from givers, told Pool, node string, writer *remotePool, log *slog.Logger) *pooled {
	return &pooled{
		givers: from, told: told, node: node, writer: writer, log: log, ctx: ctx, fault: errNoAddress,
		changed: make(chan struct{}), seen: make(chan struct{}), refused: map[string]v1alpha1.Backend{},
	}
}

// saw takes in the node as it was read.
func (p *pooled) saw(node *corev1.Node) {
	ip, port, err := p.told.address()
	at := netip.AddrPortFrom(ip, port)
	if err == nil && !ip.IsValid() {
		at, err = addressOf(node, port)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known && at == p.at && text(err) == text(p.fault) && maps.Equal(p.labels, labels.Set(node.Labels)) {
		return
	}
	if !p.known {
		close(p.seen)
	}
	p.known, p.labels, p.at, p.fault = true, labels.Set(node.Labels), at, err
	close(p.changed)
	p.changed = make(chan struct{})
}

// wanted reports whether this node's GPUs are to be reached by others, and a channel that is closed when that may be otherwise.
func (p *pooled) wanted() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hosts, _ := labels.Parse(p.told.Hosts) // it was validated
	return len(p.told.GPUs) > 0 && p.known && hosts.Matches(p.labels), p.changed
}

// Given implements [givers]. A GPU that is given another form than that of shares by backend slice keeps it.
func (p *pooled) Given() (map[string]agentconfig.Form, <-chan struct{}) {
	given, changed := p.givers.Given()
	wanted, other := p.wanted()
	changed = either(p.ctx, changed, other)
	if !wanted {
		return given, changed
	}
	given = maps.Clone(given)
	if given == nil {
		given = map[string]agentconfig.Form{}
	}
	for _, gpu := range p.GPUs() {
		if !p.told.names(gpu) {
			continue
		}
		form := given[gpu.UUID]
		has := cmp.Or(form.Backend, v1alpha1.BackendSlice)
		if d, _, _ := p.Division(gpu.UUID); d.On {
			has = v1alpha1.BackendMIG
		}
		if p.refuse(gpu.UUID, has) {
			continue
		}
		form.Backend = v1alpha1.BackendRemote
		given[gpu.UUID] = form
	}
	return given, changed
}

// refuse reports whether a GPU's own form keeps it from others, and says so once.
func (p *pooled) refuse(uuid string, has v1alpha1.Backend) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has == v1alpha1.BackendSlice {
		delete(p.refused, uuid)
		return false
	}
	if p.refused[uuid] != has {
		p.refused[uuid] = has
		p.log.Warn("other nodes do not reach a GPU, because it is given another form", "gpu", uuid, "backend", has)
	}
	return true
}

// publish says which GPUs other nodes reach, of those that are published. It returns the others.
func (p *pooled) publish(gpus []pool.GPU) (own []pool.GPU, changed <-chan struct{}, err error) {
	var remote []pool.GPU
	for _, g := range gpus {
		if isRemote(g) {
			remote = append(remote, g)
		} else {
			own = append(own, g)
		}
	}
	p.mu.Lock()
	at, fault, changed := p.at, p.fault, p.changed
	p.mu.Unlock()
	var spec *resourcev1.ResourceSliceSpec
	if len(remote) > 0 {
		if fault != nil {
			p.log.Warn("other nodes cannot reach this one's GPUs", "error", fault)
			return own, changed, nil
		}
		nodes, err := labels.ParseToRequirements(p.told.Selector)
		if err != nil {
			return own, changed, fmt.Errorf("--pool-selector %q: %w", p.told.Selector, err)
		}
		if spec, err = pool.RemoteSpec(pool.Host{Node: p.node, Address: at, Nodes: nodes}, remote); err != nil {
			return own, changed, err
		}
	}
	p.writer.set(spec)
	return own, changed, nil
}

// await returns when the node was read, or ctx is done.
func (p *pooled) await(ctx context.Context) {
	select {
	case <-p.seen:
	case <-ctx.Done():
	}
}
