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
		if isTimed(s, a.l.Time) {
			lately = fmt.Sprintf("; it had the GPU for %s of its life", partOf(t.Used, age)) + lately
		}
		a.say("Time: it may use all of the GPU's time, and nothing holds it back%s.", lately)
		return
	}
	a.say("Time: it had the GPU for %s of its life%s.", partOf(t.Used, age), lately)
	if t.Inherited > 0 {
		a.say("  It pays for GPU time that earlier shares of %s took beyond their part: %s are left. Until then its launches wait.", a.t.User, nanoseconds(t.Inherited))
	}
	if t.HeldBackTotal == 0 {
		a.say("  It was never held back: if it is slow, it does not give the GPU enough to do.")
		a.idle(t)
		return
	}
	a.say("  It was held back for %s of its life, and %s of the last second.", partOf(t.HeldBackTotal, age), tenth(min(t.HeldBackPercent, 100)))
	if isIdle(t) {
		a.say("  Now nothing holds it back: it leaves the GPU idle itself, while it copies, waits or works elsewhere.")
		a.idle(t)
		return
	}
	a.heldBack(s)
}

// isIdle reports whether a share had little of its GPU in the last second, and was not held back.
func isIdle(t *control.Time) bool {
	const little, hardly = 50, 1 // percent
	return t.Percent != nil && *t.Percent < little && t.HeldBackPercent < hardly
}

// idle says how long the GPU had nothing of the share to do lately, and what its program did meanwhile.
func (a *account) idle(t *control.Time) {
	if t.Lately == nil {
		return
	}
	if text, ok := idleText(t.Lately); ok {
		a.say("  %s", text)
	}
}

// idleText says what a share did in a time in which it left its GPU idle, in sentences; ok is false if it hardly did.
func idleText(l *control.Lately) (text string, ok bool) {
	const hardly = 10 // percent
	ofSpan := func(ns uint64) float64 { return min(100*float64(ns)/float64(l.Span), 100) }
	idle := 100 - ofSpan(l.Used) - ofSpan(l.HeldBack)
	if l.Span <= 0 || idle < hardly {
		return "", false
	}
	held := "It was not held back"
	if l.HeldBack > 0 {
		held = fmt.Sprintf("It was held back for another %s", tenth(ofSpan(l.HeldBack)))
	}
	copied, waited := ofSpan(l.Copied), ofSpan(l.Awaited)
	host := 100 - copied - waited - ofSpan(l.HeldBack)
	text = fmt.Sprintf("The GPU had nothing of it to do for %s of the last %s. %s.", tenth(idle), span(l.Span), held)
	if copied+waited == 0 {
		return text + " As far as the library sees, its program waited neither for the GPU nor for copies: it worked on the host, or waited for something there.", true
	}
	// The GPU may have worked while it was waited for.
	text += fmt.Sprintf(" In the whole time its program waited %s for copies between host and GPU and %s for the GPU", tenth(copied), tenth(waited))
	if host >= 1 {
		text += ", and worked on the host for the rest"
	}
	return text + ".", true
}

// heldBack says by whom, and what would help.
func (a *account) heldBack(s *control.Share) {
	t := s.Time
	gaveWay := t.Yielded > 0 && s.Class == v1alpha1.ClassOffline // of others it is the page's word against what they are
	if gaveWay {
		a.say("  For %s of that it gave way to online shares: %s.", nanoseconds(t.Yielded), named(a.neighbours(s, v1alpha1.ClassOnline)))
	}
	if gaveWay && t.Yielded >= t.HeldBackTotal {
		a.help("`divvy set %s --class online`", a.name())
		return
	}
	g := a.gpu(s)
	if others := a.outside(s); len(others) > 0 {
		a.say("  Processes in no share work on the GPU too, so the share may have had less than is counted: %s.", named(others))
	}
	switch s.Policy {
	case v1alpha1.PolicyFixed:
		a.say("  Its own limit of %d%% held it back, however idle the GPU was.", s.Cores)
		a.help("`divvy set %s --policy burst --max-cores 100` lets it use the time that others leave%s", a.name(), moreCores(a.name(), s, g))
	case v1alpha1.PolicyBurst:
		a.say("  Its limit of %d%% or its neighbours held it back: %s.", s.MaxCores, named(a.neighbours(s, "")))
		a.help("a larger --max-cores or more guaranteed cores%s", moreCores(a.name(), s, g))
	default:
		a.say("  Its neighbours worked too, each by its weight or cores: %s.", named(a.neighbours(s, "")))
		a.help("`divvy set %s --weight %d`%s", a.name(), 2*max(s.Weight, 1), moreCores(a.name(), s, g))
	}
}

// moreCores proposes guaranteed cores that the GPU has.
func moreCores(name string, s *control.Share, g *control.GPU) string {
	free := 100 - g.Cores
	if free <= 0 {
		return ""
	}
	return fmt.Sprintf("; or `divvy set %s --cores %d`, the most that can be guaranteed", name, min(s.Cores+free, 100))
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
