package kube

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
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

// cardConfig is what the node's cards are looked for with.
type cardConfig struct {
	// root is the machine's, and nodes are its NUMA nodes.
	root  fs.FS
	nodes []topology.Node
	nics  agentconfig.NICs
	// cover installs the program that limits containers; ask says who else gives cards, and note tells that to everybody.
	cover func() (string, error)
	ask   func(context.Context) (others, error)
	note  func(text string)
	clock func() time.Time
	log   *slog.Logger
}

// cards are the RDMA cards of the node. It is a [dra.Cards].
type cards struct {
	cardConfig

	mu   sync.Mutex
	host *rdma.Host
	// now are the cards of which a claim can have parts, and published those of them that are offered; given are cards that others
	// give too, and left are all others of the node.
	now, published []rdma.Card
	given, left    []rdma.Left
	changed        chan struct{}
	// others are who else gives cards, nil until that is known.
	others *others

	reading sync.Mutex // held before mu, so that what was read first is not noted last
	asked   time.Time  // when others answered last; run alone uses it
}

// newCards looks at the node's cards, nil where they are left to others.
func newCards(ctx context.Context, config cardConfig) *cards {
	if config.nics.Off {
		return nil
	}
	c := &cards{cardConfig: config, host: &rdma.Host{}, changed: make(chan struct{})}
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

// look asks again who else gives cards, and reads which there are.
func (c *cards) look(ctx context.Context) {
	c.askAgain(ctx)
	c.Refresh(ctx)
}

// Refresh implements [dra.Cards]. What is not otherwise than before wakes nobody and is not logged again.
func (c *cards) Refresh(ctx context.Context) {
	c.reading.Lock()
	defer c.reading.Unlock()
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
	published, given := c.leave(now)
	if len(given) > 0 && !reflect.DeepEqual(given, c.given) {
		c.note("RDMA cards are left to others: " + textOf(given))
	}
	c.given = given
	if left = append(left, given...); !reflect.DeepEqual(left, c.left) {
		for _, l := range left {
			c.log.InfoContext(ctx, "no container gets a part of a card", "card", l.Name, "because", l.Why)
		}
		c.left = left
	}
	if reflect.DeepEqual(now, c.now) && reflect.DeepEqual(published, c.published) && reflect.DeepEqual(host.Manager, c.host.Manager) && host.Limits == c.host.Limits {
		c.host = host
		return
	}
	c.host, c.now, c.published = host, now, published
	c.log.InfoContext(ctx, "RDMA cards", "published", len(published), "left", len(left))
	close(c.changed)
	c.changed = make(chan struct{})
}

// askAgain asks who else gives cards that nobody named. What was known stays known while there is no answer.
func (c *cards) askAgain(ctx context.Context) {
	if len(c.nics.Names) > 0 || !c.asked.IsZero() && c.clock().Sub(c.asked) < othersInterval {
		return
	}
	found, err := c.ask(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot see who else gives RDMA cards to pods, and will ask again", "error", err)
		return
	}
	c.asked = c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = &found
}

// leave divides cards into those that are published and those that others give too. Claims keep what they have of these. c.mu is held.
func (c *cards) leave(now []rdma.Card) (published []rdma.Card, given []rdma.Left) {
	switch {
	case len(c.nics.Names) > 0:
		return now, nil
	case c.others == nil: // until it was known once
		return nil, nil
	}
	return c.others.leave(now)
}

func textOf(left []rdma.Left) string {
	var texts []string
	for _, l := range left {
		texts = append(texts, l.Name+": "+l.Why)
	}
	return strings.Join(texts, "; ")
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

// Functions implements [dra.Cards].
func (c *cards) Functions(parts []dra.CardPart) ([]pci.Address, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.functions(parts)
}

// Limited implements [dra.Cards].
func (c *cards) Limited(parts []dra.CardPart) ([]pci.Address, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.host.Limits != facts.Yes {
		return nil, nil
	}
	return c.functions(slices.DeleteFunc(slices.Clone(parts), func(p dra.CardPart) bool { return p.Slots == 0 }))
}

// Openers implements [dra.Cards]. A process outside of containers is the host's own, such as a daemon that has every adapter open, and
// a card that is gone has nobody. Where none is seen and one in a container was not looked through in time, nobody can tell yet.
func (c *cards) Openers(parts []dra.CardPart) ([]facts.Holder, error) {
	var functions []pci.Address
	c.mu.Lock()
	for _, p := range parts {
		if taken, err := c.taken([]dra.CardPart{p}); err == nil && taken[0].OnPCI && taken[0].Virtual() {
			functions = append(functions, taken[0].PCI.Address)
		}
	}
	c.mu.Unlock()
	if len(functions) == 0 {
		return nil, nil
	}
	held, err := facts.Holders(c.root, functions)
	if err != nil {
		return nil, err
	}
	isHost := func(h facts.Holder) bool { return h.Container == "" }
	open, cut := slices.DeleteFunc(held.Holders, isHost), slices.DeleteFunc(held.Cut, isHost)
	if len(open) == 0 && len(cut) > 0 {
		return nil, fmt.Errorf("see whether a container has an adapter open: %d of their processes could not be looked through in time, such as process %d (%s) in container %s",
			len(cut), cut[0].PID, cut[0].Name, cut[0].Container)
	}
	return open, nil
}

// functions are those of parts. A virtual function goes when its card leaves its driver. c.mu is held.
func (c *cards) functions(parts []dra.CardPart) (all []pci.Address, err error) {
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
	for i := range c.published {
		all = append(all, c.nic(&c.published[i]))
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
