package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// time says how much of the GPU's time the share had, and why not more.
func (a *account) time(s *control.Share) {
	t := s.Time
	if t == nil {
		a.say("Time: nobody divides the time of this GPU by this share's part, so nothing held it back.")
		return
	}
	age := a.l.Time.Sub(a.t.Created)
	lately := ""
	if t.Percent != nil {
		lately = fmt.Sprintf("; in the last second it had %s", tenth(*t.Percent))
	}
	if !t.Limited {
		a.say("Time: it may use all of the GPU's time, and nothing holds it back%s.", lately)
		return
	}
	a.say("Time: while the GPU's time was divided, it had the GPU for %s of its life%s.", partOf(t.Used, age), lately)
	if t.HeldBackTotal == 0 {
		a.say("  It was never held back: if it is slow, it does not give the GPU enough to do.")
		return
	}
	a.say("  It was held back for %s of its life, and %s of the last second.", partOf(t.HeldBackTotal, age), tenth(min(t.HeldBackPercent, 100)))
	if isIdle(t) {
		a.say("  Now nothing holds it back: it leaves the GPU idle itself, while it copies, waits or works elsewhere.")
		return
	}
	a.heldBack(s)
}

// isIdle reports whether a share had little of its GPU in the last second, and was not held back.
func isIdle(t *control.Time) bool {
	const little, hardly = 50, 1 // percent
	return t.Percent != nil && *t.Percent < little && t.HeldBackPercent < hardly
}

// heldBack says by whom, and what would help.
func (a *account) heldBack(s *control.Share) {
	t := s.Time
	gaveWay := t.Yielded > 0 && s.Class == v1alpha1.ClassOffline // of others it is the page's word against what they are
	if gaveWay {
		a.say("  For %s of that it gave way to online shares: %s.", nanoseconds(t.Yielded), named(a.neighbours(s, v1alpha1.ClassOnline)))
	}
	if gaveWay && t.Yielded >= t.HeldBackTotal {
		a.help("`divvy set %s --class online`", a.t.Name)
		return
	}
	g := a.gpu(s)
	if others := a.outside(s); len(others) > 0 {
		a.say("  Processes in no share work on the GPU too, so the share may have had less than is counted: %s.", named(others))
	}
	switch s.Policy {
	case v1alpha1.PolicyFixed:
		a.say("  Its own limit of %d%% held it back, however idle the GPU was.", s.Cores)
		a.help("`divvy set %s --policy burst --max-cores 100`, with which it uses time that others leave%s", a.t.Name, moreCores(a.t.Name, s, g))
	case v1alpha1.PolicyBurst:
		a.say("  Its limit of %d%% or its neighbours held it back: %s.", s.MaxCores, named(a.neighbours(s, "")))
		a.help("a larger --max-cores or more guaranteed cores%s", moreCores(a.t.Name, s, g))
	default:
		a.say("  Its neighbours worked too, each by its weight or cores: %s.", named(a.neighbours(s, "")))
		a.help("`divvy set %s --weight %d`%s", a.t.Name, 2*max(s.Weight, 1), moreCores(a.t.Name, s, g))
	}
}

// moreCores proposes guaranteed cores that the GPU has.
func moreCores(name string, s *control.Share, g *control.GPU) string {
	free := 100 - g.Cores
	if free <= 0 {
		return ""
	}
	return fmt.Sprintf(", or up to `divvy set %s --cores %d`", name, min(s.Cores+free, 100))
}

// neighbours are the other shares of a GPU that had time in the last second, the busiest
// first; of one class, or of any.
func (a *account) neighbours(s *control.Share, class v1alpha1.Class) []string {
	type neighbour struct {
		text    string
		percent float64
	}
	var found []neighbour
	for i := range a.l.Tenants {
		other := &a.l.Tenants[i]
		for j := range other.Shares {
			o := &other.Shares[j]
			if o.UUID != s.UUID || other.ID == a.t.ID || class != "" && o.Class != class {
				continue
			}
			busy := 0.0
			if o.Time != nil && o.Time.Percent != nil {
				busy = *o.Time.Percent
			}
			found = append(found, neighbour{fmt.Sprintf("%s of %s (%s)", other.Name, other.User, tenth(busy)), busy})
		}
	}
	slices.SortStableFunc(found, func(x, y neighbour) int { return cmp.Compare(y.percent, x.percent) })
	texts := make([]string, len(found))
	for i := range found {
		texts[i] = found[i].text
	}
	return texts
}

// outside are the processes without a share on a GPU that had time in the last second.
func (a *account) outside(s *control.Share) (texts []string) {
	for _, o := range a.l.Outside {
		if o.UUID == s.UUID && o.Tenant == "" && o.Percent != nil && *o.Percent > 0 {
			texts = append(texts, fmt.Sprintf("%s (%s)", printable(processOf(o)), tenth(*o.Percent)))
		}
	}
	return texts
}

// mostNamed bounds the neighbours in a sentence.
const mostNamed = 5

func named(texts []string) string {
	switch {
	case len(texts) == 0:
		return "none is left"
	case len(texts) > mostNamed:
		return strings.Join(texts[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(texts)-mostNamed)
	}
	return strings.Join(texts, ", ")
}
