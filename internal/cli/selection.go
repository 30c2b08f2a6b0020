package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// selection says what of a list is shown, and in which order.
type selection struct {
	user, gpu, sort string
}

// orders are those of --sort. Amounts begin with the largest, and ages with the oldest.
var orders = map[string]func(a, b control.Tenant) int{
	"name":  func(a, b control.Tenant) int { return cmp.Compare(a.Name, b.Name) },
	"user":  func(a, b control.Tenant) int { return cmp.Compare(a.User, b.User) },
	"age":   func(a, b control.Tenant) int { return a.Created.Compare(b.Created) },
	"gpu":   func(a, b control.Tenant) int { return cmp.Compare(firstGPU(a), firstGPU(b)) },
	"used":  byAmount(func(s control.Share) float64 { return float64(usedBy(s)) }),
	"limit": byAmount(func(s control.Share) float64 { return float64(s.Limit) }),
	"time": byAmount(func(s control.Share) float64 {
		if s.Time == nil || s.Time.Percent == nil {
			return 0
		}
		return *s.Time.Percent
	}),
}

// byAmount compares what tenants have on all of their GPUs, the larger first.
func byAmount(amount func(control.Share) float64) func(a, b control.Tenant) int {
	sum := func(t control.Tenant) (all float64) {
		for _, s := range t.Shares {
			all += amount(s)
		}
		return all
	}
	return func(a, b control.Tenant) int { return cmp.Compare(sum(b), sum(a)) }
}

func firstGPU(t control.Tenant) int {
	if len(t.Shares) == 0 {
		return -1
	}
	return t.Shares[0].Index
}

// usedBy is what a share has in use, by the driver's figures where there are any.
func usedBy(s control.Share) uint64 {
	if s.Observed == nil {
		return s.Used
	}
	return *s.Observed + s.ByDescriptor
}

// add defines the flags. Without --sort shares are in an order that usual names.
func (s *selection) add(command *cobra.Command, usual string) {
	flags := command.Flags()
	flags.StringVar(&s.user, "user", "", "only the shares and processes of `USER`")
	flags.StringVar(&s.gpu, "gpu", "", "only the `GPU` with this index, UUID or beginning of a UUID")
	known := sortedKeys(orders)
	flags.Var(choice{&s.sort, "ORDER", known}, "sort", "order of shares: "+alternatives(known)+" (default: "+usual+")")
	complete(command, "sort", known...)
}

// choice is a flag that takes one of some words.
type choice struct {
	text  *string
	kind  string
	known []string
}

// Set implements pflag.Value.
func (c choice) Set(text string) error {
	if !slices.Contains(c.known, text) {
		return fmt.Errorf("use %s", alternatives(c.known))
	}
	*c.text = text
	return nil
}

// Type implements pflag.Value.
func (c choice) Type() string { return c.kind }

func (c choice) String() string {
	if c.text == nil {
		return ""
	}
	return *c.text
}

// choose leaves in a survey what is selected, in its order. It fails where no machine has the GPU.
func (s selection) choose(all *survey) error {
	machines := len(all.agents) + len(all.unserved)
	all.agents = slices.Clone(all.agents)
	for i := range all.agents {
		all.agents[i].Listing = s.of(all.agents[i].Listing)
	}
	all.unserved = slices.Clone(all.unserved)
	for i := range all.unserved {
		u := &all.unserved[i]
		u.GPUs = s.gpus(u.GPUs)
		u.Processes = s.outside(u.Processes, u.GPUs)
	}
	all.remote = s.ofAway(all.remote)
	if s.gpu == "" {
		return nil
	}
	all.agents = slices.DeleteFunc(all.agents, func(l listing) bool { return len(l.GPUs) == 0 })
	all.unserved = slices.DeleteFunc(all.unserved, func(u unserved) bool { return len(u.GPUs) == 0 })
	if len(all.agents)+len(all.unserved) == 0 && (machines > 0 || len(all.away) == 0) {
		return fmt.Errorf("there is no GPU %q: `divvy ls` lists indexes, and with -o wide whole UUIDs", s.gpu)
	}
	return nil
}

// of is what is selected of an agent's listing.
func (s selection) of(l control.Listing) control.Listing {
	l.GPUs = s.gpus(l.GPUs)
	l.Outside = s.outside(l.Outside, l.GPUs)
	if s.user != "" {
		l.Waiting = slices.DeleteFunc(slices.Clone(l.Waiting), func(w control.Waiting) bool { return w.User != s.user })
		l.Events = slices.DeleteFunc(slices.Clone(l.Events), func(e control.Event) bool { return e.User != s.user })
	}
	tenants := []control.Tenant{}
	for _, t := range l.Tenants {
		if s.gpu != "" {
			t.Shares = slices.DeleteFunc(slices.Clone(t.Shares), func(one control.Share) bool { return indexOf(l.GPUs, one.UUID) < 0 })
		}
		if s.user != "" && t.User != s.user || len(t.Shares) == 0 && s.gpu != "" {
			continue
		}
		tenants = append(tenants, t)
	}
	if order := orders[s.sort]; order != nil {
		slices.SortStableFunc(tenants, order)
	}
	l.Tenants = tenants
	return l
}

func (s selection) gpus(all []control.GPU) []control.GPU {
	if s.gpu == "" {
		return all
	}
	chosen := []control.GPU{}
	for _, g := range all {
		if strconv.Itoa(g.Index) == s.gpu || strings.HasPrefix(strings.ToLower(g.UUID), strings.ToLower(s.gpu)) && strings.Contains(s.gpu, "-") {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

func (s selection) outside(all []control.Outside, gpus []control.GPU) []control.Outside {
	return slices.DeleteFunc(slices.Clone(all), func(o control.Outside) bool {
		return s.user != "" && o.User != s.user || s.gpu != "" && indexOf(gpus, o.UUID) < 0
	})
}
