package rdma

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Choice says which cards containers may have.
type Choice struct {
	// Off leaves all of them to others.
	Off bool
	// Names are adapters, network devices or PCI addresses, in the order of their rails. Without names every card is chosen that the
	// host does not need itself.
	Names []string
}

// Card is an adapter of which containers can have a part, or all.
type Card struct {
	Adapter
	// Rail is its number among the cards of the host.
	Rail int
	// Fault is why nothing more may be placed on it, a few letters and dashes, "" for nothing.
	Fault string
}

// Left is an adapter, or a name, of which nothing is given to containers.
type Left struct {
	Name, Why string
}

// longestKey leaves room for what stands around a key in the name of a device, which has 63 letters.
const longestKey = 48

// Choose says of which adapters containers can have a part, in the order of rails, and why not of others. The GPUs' PCI devices
// tell which cards belong to them.
func (h *Host) Choose(choice Choice, gpus []pci.Device) (cards []Card, left []Left) {
	if choice.Off {
		return nil, nil
	}
	rails := h.rails(choice, gpus, &left)
	for i := range h.Adapters {
		a := &h.Adapters[i]
		rail, chosen := rails[i]
		if !chosen {
			continue
		}
		if why := a.Unfit(); why != "" {
			left = append(left, Left{a.Name, why})
			continue
		}
		cards = append(cards, Card{*a, rail, h.fault(a)})
	}
	cards = distinct(cards, &left)
	slices.SortStableFunc(cards, func(a, b Card) int { return a.Rail - b.Rail })
	return cards, left
}

// distinct leaves out adapters that would have the same key.
func distinct(cards []Card, left *[]Left) []Card {
	first := map[string]string{}
	return slices.DeleteFunc(cards, func(c Card) bool {
		other, taken := first[c.Key()]
		if taken {
			*left = append(*left, Left{c.Name, "it has the place of the adapter " + other})
			return true
		}
		first[c.Key()] = c.Name
		return false
	})
}

// Key tells the adapter from the others of its host, and stays when the adapter is renamed: the PCI address with dashes, for a soft
// one its name.
func (a *Adapter) Key() string {
	if a.OnPCI && !a.Soft {
		return strings.NewReplacer(":", "-", ".", "-").Replace(a.PCI.Address.String())
	}
	dash := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	return "soft-" + strings.Trim(strings.Map(dash, strings.ToLower(a.Name)), "-")
}

// Unfit is why an adapter cannot be given to anybody, "" where it can.
func (a *Adapter) Unfit() string {
	switch {
	case !Plain(a.Name) || len(a.Key()) > longestKey:
		return "its name cannot be written in the kernel's limits: rename it, such as by rdma dev set NAME name mlx5_0"
	case len(a.Ports) == 0:
		return "it has no port"
	case a.Verbs == nil:
		return "it has no device node uverbs: load the module ib_uverbs"
	}
	return ""
}

// fault is why nothing new may have a part of an adapter now.
func (h *Host) fault(a *Adapter) string {
	switch {
	case a.Down():
		return "port-down"
	case !a.Virtual() && a.Link() == Ethernet && a.Netdev() == "":
		return "netdev-away"
	case !a.Virtual() && h.Limits == facts.Unknown:
		return "limits-unknown"
	}
	return ""
}

// rails are the numbers of the chosen adapters, by their place in the list.
func (h *Host) rails(choice Choice, gpus []pci.Device, left *[]Left) map[int]int {
	if len(choice.Names) > 0 {
		return h.named(choice.Names, left)
	}
	return h.unnamed(gpus, left)
}

// named finds what each name stands for: an adapter, with the virtual functions of its card, which have its rail. The first name
// that fits counts.
func (h *Host) named(names []string, left *[]Left) map[int]int {
	rails := map[int]int{}
	for rail, name := range names {
		found := false
		for i := range h.Adapters {
			if !h.Adapters[i].bears(name) {
				continue
			}
			found = true
			if _, taken := rails[i]; !taken {
				rails[i] = rail
			}
		}
		if !found {
			*left = append(*left, Left{name, "this host has no RDMA adapter, and no network device or PCI address of one, of that name"})
		}
	}
	for i := range h.Adapters {
		a := &h.Adapters[i]
		if _, taken := rails[i]; taken || !a.Virtual() {
			continue
		}
		if parent := h.physical(a); parent >= 0 {
			if rail, chosen := rails[parent]; chosen {
				rails[i] = rail
			}
		}
	}
	return rails
}

func (a *Adapter) bears(name string) bool {
	return a.Name == name || a.Soft && a.Parent == name || slices.Contains(a.Netdevs, name) || a.OnPCI && a.PCI.Address.String() == strings.ToLower(name)
}

// physical is the place of the adapter of a virtual function's card, -1 where there is none.
func (h *Host) physical(a *Adapter) int {
	return slices.IndexFunc(h.Adapters, func(b Adapter) bool { return b.OnPCI && !b.PCI.Virtual && b.PCI.Address == a.Physical })
}

// unnamed chooses every card that the host does not need. Where a card shares a switch with a GPU, those that share one with none are
// taken for the host's own: its storage's, or its management's. Virtual functions go with their card.
func (h *Host) unnamed(gpus []pci.Device, left *[]Left) map[int]int {
	beside := slices.ContainsFunc(h.Adapters, func(a Adapter) bool { return a.OnPCI && near(a.PCI, gpus) })
	rails, cards := map[int]int{}, map[pci.Address]int{}
	for i := range h.Adapters {
		a := &h.Adapters[i]
		if why := h.needed(a, gpus, beside); why != "" {
			*left = append(*left, Left{a.Name, why})
			continue
		}
		card := a.PCI.Address
		if a.Virtual() {
			card = a.Physical
		}
		rail, known := cards[card]
		if !known {
			rail = len(cards)
			cards[card] = rail
		}
		rails[i] = rail
	}
	return rails
}

// needed is why the host keeps a card for itself.
func (h *Host) needed(a *Adapter, gpus []pci.Device, beside bool) string {
	switch {
	case len(a.Uses) > 0 && a.Uses[0].Kind == "route":
		return fmt.Sprintf("the default route goes through %s: name the adapter to give it to containers all the same", a.Uses[0].Name)
	case len(a.Uses) > 0:
		return fmt.Sprintf("the disk %s is in use on it: name the adapter to give it to containers all the same", a.Uses[0].Name)
	case !a.OnPCI:
		return "it is on no PCI device: name the adapter to give it to containers"
	case beside && !near(a.PCI, gpus):
		return "no GPU is behind its switch, as behind that of other cards: name the adapter to give it to containers too"
	}
	return ""
}

// near reports whether a device is behind a switch that a GPU is behind too.
func near(d pci.Device, gpus []pci.Device) bool {
	own := d.OuterSwitch()
	return own != "" && slices.ContainsFunc(gpus, func(gpu pci.Device) bool { return gpu.OuterSwitch() == own })
}
