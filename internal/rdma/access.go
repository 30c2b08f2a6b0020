package rdma

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// ErrGone marks a card that the host has not any more, or not as it was given.
var ErrGone = errors.New("the card is not there")

// errLimits says that it is not known what a part of a card would be. That the kernel has no controller is known, and told.
var errLimits = errors.New("it cannot be read whether this node's kernel limits handles and objects (neither /sys/fs/cgroup/cgroup.controllers nor /proc/cgroups), so no container gets a part of a shared card")

// DeviceFolder is where programs look for the nodes of adapters.
const DeviceFolder = "/dev/infiniband"

// Limits are what one slot may take of an adapter.
type Limits struct {
	// Handles is how often it may be open at once, Objects how many of its objects may exist.
	Handles, Objects int
}

// mostLimit is the largest limit that the kernel takes and that is one: the next number stands for none.
const mostLimit = math.MaxInt32 - 1

// Part is what a container has of a card. Slots is 0 for all of it, which a virtual function's tenant has.
type Part struct {
	Card
	Slots int
}

// Access is what a container needs to use its parts of cards, and nothing else.
type Access struct {
	Edits edits.Edits
	// Told says what the container has, and what does not hold, a line each.
	Told []string
}

// Hook is the program that limits a container, by its path on the host.
type Hook string

// hookName and hookLimits begin the arguments of the hook; the limits follow, one adapter each.
const (
	hookName   = "divvy-cover"
	hookLimits = "--rdma"
)

// Access is pure: it says which nodes a container gets, in the order of its parts, and how it is limited there. It never gives a
// node by which the fabric is administered.
func (h *Host) Access(parts []Part, each Limits, hook Hook) (Access, error) {
	var a Access
	var names, limits []string
	for _, p := range together(parts) {
		if p.Verbs == nil || !Plain(p.Name) {
			return Access{}, fmt.Errorf("give a container adapter %q: %w: it has no node that can be given", p.Name, ErrGone)
		}
		names = append(names, p.Name)
		a.Edits.Devices = append(a.Edits.Devices, p.Verbs.device())
		if p.Slots == 0 {
			a.Told = append(a.Told, fmt.Sprintf("%s: %s, alone", p.Name, p.Verbs.Name))
			continue
		}
		if h.Limits == facts.Unknown {
			return Access{}, fmt.Errorf("give a container a part of %s: %w", p.Name, errLimits)
		}
		handles, objects := min(p.Slots*each.Handles, mostLimit), min(p.Slots*each.Objects, mostLimit)
		limits = append(limits, fmt.Sprintf("%s hca_handle=%d hca_object=%d", p.Name, handles, objects))
		most := fmt.Sprintf("at most %d handles and %d objects in each container, no limit of bandwidth", handles, objects)
		if h.Limits != facts.Yes {
			most = "no limit of handles and objects, because this node's kernel has no cgroup controller rdma"
		}
		a.Told = append(a.Told, fmt.Sprintf("%s: %s, shared, %s", p.Name, p.Verbs.Name, most))
	}
	if len(names) == 0 {
		return a, nil
	}
	if h.Manager != nil {
		a.Edits.Devices = append(a.Edits.Devices, h.Manager.device())
	} else {
		a.Told = append(a.Told, "no rdma_cm, because the module rdma_ucm is not loaded: programs that connect through librdmacm find no device")
	}
	if len(limits) > 0 && h.Limits == facts.Yes {
		a.Edits.Hooks = []edits.Hook{{Path: string(hook), Args: append([]string{hookName, hookLimits}, limits...), Outside: true}}
	}
	// The sign has NCCL take these names whole, and not each that begins so.
	a.Edits.Env = []edits.Env{{Name: "NCCL_IB_HCA", Value: "=" + strings.Join(names, ",")}}
	a.Told = append(a.Told, h.told()...)
	return a, nil
}

// told is what holds for every container with a card.
func (h *Host) told() (all []string) {
	if h.Locked >= 0 && h.Locked != facts.Unlimited {
		all = append(all, fmt.Sprintf("containers may lock %d KiB of memory here, and memory is locked to be registered with a card: raise LimitMEMLOCK of the container runtime", h.Locked>>10))
	}
	if h.Mode == ModeExclusive {
		all = append(all, "adapters are seen in one network namespace alone here, so a container sees one only after that has been moved to it")
	}
	return all
}

// Limitable are the functions on whose adapters containers can have limits, in their order: of cards that can be shared, and what
// soft adapters are on.
func (h *Host) Limitable() (all []pci.Address) {
	for i := range h.Adapters {
		a := &h.Adapters[i]
		if h.Limits == facts.No || !a.OnPCI || a.Virtual() && !a.Soft {
			continue
		}
		all = append(all, a.PCI.Address)
		if a.Virtual() {
			all = append(all, a.Physical)
		}
	}
	slices.SortFunc(all, pci.Address.Compare)
	return slices.Compact(all)
}

// together puts parts of one adapter together, in the order in which they come first. All of it is more than slots of it.
func together(parts []Part) (all []Part) {
	for _, p := range parts {
		i := slices.IndexFunc(all, func(q Part) bool { return q.Name == p.Name })
		switch {
		case i < 0:
			all = append(all, p)
		case p.Slots == 0 || all[i].Slots == 0:
			all[i].Slots = 0
		default:
			all[i].Slots += p.Slots
		}
	}
	return all
}

func (n *Node) device() edits.Device {
	at := path.Join(DeviceFolder, n.Name)
	return edits.Device{Path: at, Source: at, Major: n.Major, Minor: n.Minor}
}
