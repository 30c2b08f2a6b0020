package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/lending"
)

// factsInterval is the time between two looks at the machine: who holds a device, and which vGPUs others made, nobody tells.
const factsInterval = 30 * time.Second

// lender is the agent's ledger of devices for virtual machines.
type lender interface {
	TakeDevice(ctx context.Context, want claims.Want) (claims.Claim, error)
	ReleaseDevice(ctx context.Context, name string) error
	Devices() (all []claims.Claim, changed <-chan struct{})
	// Reserved are functions that containers have. Changes of them are told as those of devices.
	Reserved() []claims.Reserved
	// Limited are functions that do not leave their driver, because containers had limits there.
	Limited() []pci.Address
}

// machines offers devices to virtual machines, and gives them to claims by the agent's ledger. It is a [dra.Machines].
type machines struct {
	agent    lender
	lendings []agentconfig.Lending
	// read reads the machine's facts; locate says where a function is, and refused why it cannot be given away now.
	read    func() (*facts.Host, error)
	locate  func(pci.Device) pool.Location
	refused func(*facts.Host, pool.Function) string
	log     *slog.Logger
	again   time.Duration
	// slots is true where devices are given by slots, and not to claims. What is given in the other way is somebody else's.
	slots bool

	mu        sync.Mutex
	host      *facts.Host
	functions []pool.Function
	changed   chan struct{}
}

func newMachines(agent lender, lendings []agentconfig.Lending, read func() (*facts.Host, error), log *slog.Logger) *machines {
	return &machines{
		agent: agent, lendings: lendings, read: read, refused: refusal, log: log, again: factsInterval, host: &facts.Host{}, changed: make(chan struct{}),
		locate: func(d pci.Device) pool.Location { return pool.LocationOf(d, nil) },
	}
}

// get returns what is offered, and a channel that is closed when that is something else.
func (m *machines) get() ([]pool.Function, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.functions), m.changed
}

// run follows the machine until ctx is done.
func (m *machines) run(ctx context.Context) error {
	ticker := time.NewTicker(m.again)
	defer ticker.Stop()
	said, kept := "", map[string]string{}
	for again := true; ; {
		_, changed := m.agent.Devices()
		text := ""
		if err := m.look(); err != nil {
			text = err.Error()
		}
		if text != "" && text != said {
			m.log.WarnContext(ctx, "cannot see what the node could offer to virtual machines, and will try again", "error", text)
		}
		if said = text; m.slots && text == "" {
			m.withdraw(ctx, kept, again)
		}
		again = false
		select {
		case <-changed:
		case <-ticker.C:
			again = true
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads anew what can be offered.
func (m *machines) look() error {
	host, err := m.read()
	if err != nil {
		return err
	}
	all, _ := m.agent.Devices()
	given, faults := map[string]bool{}, map[string]string{}
	for _, c := range all {
		if owner, id, ok := parseOwner(c.Name); ok && (owner == slotOwner) == m.slots {
			given[id.Name()] = true
			if c.Fault != "" {
				faults[id.Name()] = "stuck"
			}
		}
	}
	reserved, limited := m.agent.Reserved(), m.agent.Limited()
	functions := lending.Devices(host, m.lendings, lending.State{
		Given: given, Locate: m.locate,
		Refused: func(f pool.Function) string {
			if !f.Mediated && slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Has(f.Address) }) {
				return "claimed"
			}
			if slices.ContainsFunc(reserved, func(r claims.Reserved) bool { return slices.Contains(r.Functions, f.Address) }) {
				return "used-by-container"
			}
			if slices.Contains(limited, f.Address) {
				return "limits-left"
			}
			return m.refused(host, f)
		},
	})
	for i := range functions {
		if reason := faults[functions[i].Name()]; reason != "" {
			functions[i].Fault = &pool.Fault{Reason: reason}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = host
	if !reflect.DeepEqual(functions, m.functions) {
		m.log.Info("offered to virtual machines", "devices", len(functions))
		m.functions = functions
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return nil
}

// physical is the function of a card on which another one is.
func (m *machines) physical(at pci.Address) pci.Address {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.host.Find(at); ok && d.Virtual {
		return d.Parent
	}
	return at
}

// vfioNode is a node that a virtual machine opens. Nothing else is given to a container.
var vfioNode = regexp.MustCompile(`^/dev/vfio/(0|[1-9][0-9]{0,9})$`)

// Give implements [dra.Machines].
func (m *machines) Give(ctx context.Context, claim types.UID, want dra.Wanted) (dra.Given, error) {
	c, err := m.take(ctx, string(claim), want.Claim, want.FunctionID)
	if err != nil {
		return dra.Given{}, err
	}
	f := pool.Function{FunctionID: want.FunctionID}
	offered, _ := m.get()
	if at := slices.IndexFunc(offered, func(o pool.Function) bool { return o.FunctionID == want.FunctionID }); at >= 0 {
		f = offered[at]
	}
	f.Group = c.Group
	given := dra.Given{Attributes: f.Attributes(), Nodes: []edits.Device{deviceNode("/dev/vfio/vfio")}}
	for _, path := range c.Nodes {
		given.Nodes = append(given.Nodes, deviceNode(path))
	}
	if f.Mediated {
		given.Attributes[v1alpha1.AttributeMdevUUID] = resourcev1.DeviceAttribute{StringValue: ptr.To(c.Mediated)}
	}
	return given, nil
}

// deviceNode is one of the host. Its numbers are read by the runtime, which sees the host's /dev as it is.
func deviceNode(path string) edits.Device { return edits.Device{Path: path, Source: path} }

// take has the agent give a device to an owner, and checks what it says.
func (m *machines) take(ctx context.Context, owner, cluster string, id pool.FunctionID) (claims.Claim, error) {
	c, err := m.agent.TakeDevice(ctx, claims.Want{Name: ownerName(owner, id), Form: v1alpha1.Backend(id.Form), Device: id.Address, Type: id.Type, Cluster: cluster})
	switch {
	case err != nil:
		return c, err
	case len(c.Nodes) == 0 || slices.ContainsFunc(c.Nodes, func(path string) bool { return !vfioNode.MatchString(path) }):
		return c, fmt.Errorf("%s has no node of VFIO that can be given away", id.Name())
	case id.Mediated && c.Mediated == "":
		return c, fmt.Errorf("%s has no UUID", id.Name())
	}
	return c, nil
}

// TakeBack implements [dra.Machines].
func (m *machines) TakeBack(ctx context.Context, claim types.UID) error {
	all, _ := m.agent.Devices()
	var faults []error
	for _, c := range all {
		if owner, _, ok := parseOwner(c.Name); ok && owner == string(claim) {
			faults = append(faults, m.release(ctx, c.Name))
		}
	}
	return errors.Join(faults...)
}

// release takes a device back; that it is back already is no error.
func (m *machines) release(ctx context.Context, name string) error {
	if err := m.agent.ReleaseDevice(ctx, name); err != nil && !errors.Is(err, claims.ErrUnknown) {
		return err
	}
	return nil
}

// ownerName is the name under which the ledger keeps a device: of the claim's UID, or another owner, and the device in short,
// because such a name has 63 characters at most.
func ownerName(owner string, id pool.FunctionID) string {
	a := id.Address
	name := fmt.Sprintf("%s.%s%04x%02x%02x%x", owner, initials[id.Form], a.Domain, a.Bus, a.Device, a.Function)
	if id.Type != "" {
		name += "t" + id.Type
	}
	if id.Mediated {
		name += "n" + strconv.Itoa(id.Number)
	}
	return name
}

var initials = map[pool.Form]string{pool.Passthrough: "p", pool.VF: "f", pool.VGPU: "g"}

var writtenOwner = regexp.MustCompile(`^(.+)\.([pfg])([0-9a-f]{4,8})([0-9a-f]{2})([0-9a-f]{2})([0-7])(?:t([0-9]+))?(?:n([0-9]+))?$`)

// parseOwner returns whose a device of the ledger is, and which; ok is false for a name that is not of this package's making.
func parseOwner(name string) (owner string, id pool.FunctionID, ok bool) {
	parts := writtenOwner.FindStringSubmatch(name)
	if parts == nil {
		return "", id, false
	}
	var device []string
	for form, initial := range initials {
		if initial == parts[2] {
			device = []string{string(form)}
		}
	}
	for _, part := range parts[3:] {
		if part != "" {
			device = append(device, part)
		}
	}
	id, ok = pool.ParseFunction(strings.Join(device, "-"))
	return parts[1], id, ok && ownerName(parts[1], id) == name
}
