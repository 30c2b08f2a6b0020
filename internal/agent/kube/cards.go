package kube

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/topology"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// cardsInterval is the time between two looks at the node's cards: network devices come, go and are renamed.
const cardsInterval = 15 * time.Second

// cards are the RDMA cards of the node. It is a [dra.Cards].
type cards struct {
	// root is the machine's, and nodes are its NUMA nodes.
	root  fs.FS
	nodes []topology.Node
	nics  agentconfig.NICs
	// cover installs the program that limits containers.
	cover func() (string, error)
	log   *slog.Logger

	mu      sync.Mutex
	host    *rdma.Host
	now     []rdma.Card
	left    []rdma.Left
	changed chan struct{}
}

// newCards looks at the node's cards, nil where they are left to others.
func newCards(ctx context.Context, root fs.FS, nodes []topology.Node, nics agentconfig.NICs, cover func() (string, error), log *slog.Logger) *cards {
	if nics.Off {
		return nil
	}
	c := &cards{root: root, nodes: nodes, nics: nics, cover: cover, log: log, host: &rdma.Host{}, changed: make(chan struct{})}
	c.look(ctx)
	return c
}

// run looks again from time to time until ctx is done.
func (c *cards) run(ctx context.Context) error {
	ticker := time.NewTicker(cardsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads which cards there are. What is not otherwise than before wakes nobody and is not logged again.
func (c *cards) look(ctx context.Context) {
	devices, err := facts.ReadUsed(c.root)
	if err != nil {
		c.log.WarnContext(ctx, "cannot look for RDMA cards", "error", err)
		return
	}
	var gpus []pci.Device
	for i := range devices.Devices {
		if devices.Devices[i].IsGPU() {
			gpus = append(gpus, devices.Devices[i].Device)
		}
	}
	host := rdma.Read(c.root, devices)
	now, left := host.Choose(rdma.Choice{Names: c.nics.Names}, gpus)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(left, c.left) {
		for _, l := range left {
			c.log.InfoContext(ctx, "no container gets a part of a card", "card", l.Name, "because", l.Why)
		}
		c.left = left
	}
	if reflect.DeepEqual(now, c.now) && reflect.DeepEqual(host.Manager, c.host.Manager) && host.Limits == c.host.Limits {
		c.host = host
		return
	}
	c.host, c.now = host, now
	c.log.InfoContext(ctx, "RDMA cards", "published", len(now), "left", len(left))
	close(c.changed)
	c.changed = make(chan struct{})
}

// Changed implements [dra.Cards].
func (c *cards) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Access implements [dra.Cards].
func (c *cards) Access(parts []dra.CardPart) (rdma.Access, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, err := c.taken(parts)
	if err != nil {
		return rdma.Access{}, err
	}
	hook := ""
	if slices.ContainsFunc(parts, func(p dra.CardPart) bool { return p.Slots > 0 }) {
		if hook, err = c.cover(); err != nil {
			return rdma.Access{}, fmt.Errorf("limit what a container takes of a card: %w", err)
		}
	}
	return c.host.Access(taken, rdma.Limits{Handles: c.nics.Handles, Objects: c.nics.Objects}, rdma.Hook(hook))
}

// Functions implements [dra.Cards]. A virtual function goes when its card leaves its driver.
func (c *cards) Functions(parts []dra.CardPart) (all []pci.Address, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, err := c.taken(parts)
	for i := range taken {
		card := &taken[i].Card
		if card.OnPCI {
			all = append(all, card.PCI.Address)
		}
		if card.Virtual() {
			all = append(all, card.Physical)
		}
	}
	slices.SortFunc(all, pci.Address.Compare)
	return slices.Compact(all), err
}

// taken finds the cards of parts. c.mu is held.
func (c *cards) taken(parts []dra.CardPart) (taken []rdma.Part, err error) {
	for _, p := range parts {
		i := slices.IndexFunc(c.now, func(card rdma.Card) bool {
			n := c.nic(&card)
			return n.Device() == p.Device
		})
		if i < 0 {
			return nil, fmt.Errorf("device %s: %w: its adapter is gone, as a soft one when its network device moves, or is not published any more", p.Device, rdma.ErrGone)
		}
		taken = append(taken, rdma.Part{Card: c.now[i], Slots: p.Slots})
	}
	return taken, nil
}

// add puts the cards into the node's pool, and returns a channel that is closed when they are otherwise.
func (c *cards) add(resources resourceslice.DriverResources, node string) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []pool.NIC
	for i := range c.now {
		all = append(all, c.nic(&c.now[i]))
	}
	return c.changed, pool.WithNICs(resources, node, all)
}

// nic is what the cluster is told of a card.
func (c *cards) nic(card *rdma.Card) pool.NIC {
	n := pool.NIC{
		Key: card.Key(), Adapter: card.Name, Netdev: card.Netdev(), LinkType: card.Link(), Rail: card.Rail,
		Function: card.Virtual(), Slots: c.nics.Slots, Fault: card.Fault,
	}
	if card.OnPCI {
		location := pool.LocationOf(card.PCI, c.nodes)
		n.Location = &location
	}
	if !rdma.Plain(n.Netdev) {
		n.Netdev = ""
	}
	return n
}
