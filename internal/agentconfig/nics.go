package agentconfig

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// NICs says which RDMA cards a cluster's agent publishes, and what a share of one may take.
type NICs struct {
	// Off leaves all of them to others.
	Off bool
	// Names are adapters, network devices or PCI addresses, in the order of their rails; without names the agent chooses.
	Names []string
	// Slots is how many shares a card has. Handles is how often a share may open the adapter at once, and Objects how many of its
	// objects, such as queues and registered memory, it may have, each for one slot.
	Slots, Handles, Objects int
}

// The words for no cards, and for those that the host does not need.
const (
	NICsOff  = "off"
	NICsAuto = "auto"
)

// What a share of a card has where the file does not say, and the bounds. The kernel counts in 32 bits.
const (
	defaultNICSlots   = 64
	defaultHandles    = 64
	defaultObjects    = 65536
	mostNICSlots      = 1024
	mostHandles       = 1_000_000
	mostObjects       = 1_000_000_000
	longestNIC        = 63
	lettersOfNICNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-"
)

// NICs are the cards that are published.
func (c *Config) NICs() NICs {
	n := NICs{}
	if c != nil {
		n = c.nics
	}
	for _, unset := range []struct {
		field *int
		value int
	}{{&n.Slots, defaultNICSlots}, {&n.Handles, defaultHandles}, {&n.Objects, defaultObjects}} {
		if *unset.field == 0 {
			*unset.field = unset.value
		}
	}
	return n
}

func (r *reader) nics(node *yaml.Node, field string) {
	n := &r.config.nics
	switch {
	case node.Kind == yaml.ScalarNode && node.Value == NICsOff:
		n.Off = true
	case node.Kind == yaml.ScalarNode && node.Value == NICsAuto:
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0:
		for _, one := range node.Content {
			switch {
			case one.Kind != yaml.ScalarNode || !isNIC(one.Value):
				r.Fault(one, field, "%q is not the name of an adapter, a network device or a PCI address, such as mlx5_0", one.Value)
			case slices.Contains(n.Names, one.Value):
				r.Fault(one, field, "names %s twice", one.Value)
			default:
				n.Names = append(n.Names, one.Value)
			}
		}
	default:
		r.Fault(node, field, "must be %s, %s or a list of cards, such as [mlx5_0, mlx5_1]", NICsOff, NICsAuto)
	}
}

func (r *reader) nicShares(node *yaml.Node, field string) {
	n := &r.config.nics
	r.Fields(node, field, known{
		"slots":   func(node *yaml.Node, f string) { n.Slots = r.number(node, f, mostNICSlots) },
		"handles": func(node *yaml.Node, f string) { n.Handles = r.number(node, f, mostHandles) },
		"objects": func(node *yaml.Node, f string) { n.Objects = r.number(node, f, mostObjects) },
	})
}

// isNIC reports whether a text can name a card.
func isNIC(name string) bool {
	return name != "" && len(name) <= longestNIC && !strings.ContainsAny(name[:1], "_.:-") && strings.Trim(name, lettersOfNICNames) == ""
}
