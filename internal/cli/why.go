package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// account explains one share to people: what it has, why it is slow or ran out of memory,
// and what would help. It is pure.
type account struct {
	l      *control.Listing
	t      *control.Tenant
	reader int // who reads: others than the owner and root cannot change it
	lines  []string
}

// why is the account of a tenant in lines for a reader, a user id.
func why(l *control.Listing, t *control.Tenant, reader int) []string {
	a := &account{l: l, t: t, reader: reader}
	a.whose()
	for i := range t.Shares {
		s := &t.Shares[i]
		a.say("")
		a.granted(s)
		a.memory(s)
		a.turns(s)
		a.time(s)
	}
	a.happened()
	return a.lines
}

func (a *account) say(format string, args ...any) {
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
}

// help says what would help, to those who can do it.
func (a *account) help(format string, args ...any) {
	who := "This would help: "
	if a.reader != 0 && a.reader != a.t.UID {
		who = fmt.Sprintf("This would help, by %s or root: ", a.t.User)
	}
	a.say("  %s%s.", who, fmt.Sprintf(format, args...))
}

// name is the share's for the reader: other users may have one of the same name.
func (a *account) name() string {
	if a.reader != a.t.UID && a.t.User != "" {
		return shareName(a.t.User, a.t.Name)
	}
	return a.t.Name
}

func (a *account) whose() {
	t := a.t
	line := fmt.Sprintf("%s is a share of %s, %s old", t.Name, t.User, span(a.l.Time.Sub(t.Created)))
	if command := printable(strings.Join(t.Command, " ")); command != "" {
		line += fmt.Sprintf(", for `%s`", command)
	}
	a.say("%s.", line)
	if t.Remote != nil {
		a.say("It is used by client %s, which connected from %s.", t.Remote.Text(), printable(t.Remote.Address))
	}
	if len(t.Pods) > 0 {
		a.say("It belongs to pod %s.", printable(t.Namespace+"/"+strings.Join(t.Pods, ", ")))
	}
	for _, note := range faultsOf(*t, a.l.Time) {
		a.say("%s.", text.Plain(strings.TrimSuffix(note, "."), longestNote))
	}
}

// Bounds of foreign text in a line, in characters.
const (
	longestName = 100
	longestNote = 600
)

// printable is a foreign name in one line.
func printable(name string) string { return text.Plain(name, longestName) }

func (a *account) gpu(s *control.Share) *control.GPU {
	for i := range a.l.GPUs {
		if a.l.GPUs[i].UUID == s.UUID {
			return &a.l.GPUs[i]
		}
	}
	return &control.GPU{Index: s.Index, UUID: s.UUID}
}

func (a *account) granted(s *control.Share) {
	g := a.gpu(s)
	model := ""
	if name := strings.TrimPrefix(g.Name, "NVIDIA "); name != "" {
		model = " (" + printable(name) + ")"
	}
	what := size(s.Limit) + " of its memory"
	switch {
	case s.Mechanism != "":
		what += ", and time by " + printable(s.Mechanism)
	case s.Policy == v1alpha1.PolicyBurst:
		what += fmt.Sprintf(", %d%% of its time for sure and up to %d%% while others leave it", s.Cores, s.MaxCores)
	case s.Policy == v1alpha1.PolicyFixed && s.Cores > 0:
		what += fmt.Sprintf(" and %d%% of its time, no more", s.Cores)
	case s.Cores > 0:
		what += fmt.Sprintf(", %d%% of its time for sure, and of the rest what its weight of %d gives", s.Cores, s.Weight)
	default:
		what += fmt.Sprintf(", and of its time what its weight of %d gives", s.Weight)
	}
	if s.Class == v1alpha1.ClassOffline {
		what += "; it is offline, and gives way to online shares"
	}
	a.say("GPU %d%s: it was granted %s.", g.Index, model, what)
}

// holds is what the share has in use: the driver's figure, or its own word.
func holds(s *control.Share) uint64 {
	if s.Observed != nil {
		return *s.Observed + min(s.ByDescriptor, math.MaxUint64-*s.Observed)
	}
	return s.Used
}

func (a *account) memory(s *control.Share) {
	a.say("Memory: it uses %s of %s; the most it used was %s.", amount(holds(s)), size(s.Limit), amount(s.Peak))
	a.say("  %s", refusalsOf(s, a.l.Time))
	r := s.Refusals
	if r == nil {
		return
	}
	if r.Count > r.ByGPU {
		a.moreMemory(s)
	}
	if r.ByGPU > 0 {
		a.fullGPU(s)
	}
}

// moreMemory proposes a limit with which the largest refused allocation would have fitted.
func (a *account) moreMemory(s *control.Share) {
	g, need := a.gpu(s), enough(s)
	free := g.Capacity - min(g.Granted, g.Capacity)
	switch {
	case a.t.Namespace != "":
		a.help("a claim for %s", size(need))
	case s.Backend == v1alpha1.BackendMIG:
		a.help("starting it again with a larger MIG profile")
	case need > g.Capacity:
		a.say("  With what it used beside, the largest would need more than the %s that a share of this GPU can have.", size(g.Capacity))
	case need <= s.Limit:
		a.say("  Its limit is larger now, and would suffice.")
	case need-s.Limit > free:
		a.help("%s more, of which the GPU has %s not granted: end or lower another share, or `divvy set %s --memory %s --overcommit`",
			size(need-s.Limit), size(free), a.name(), exact(need))
	default:
		a.help("`divvy set %s --memory %s`; %s of the GPU is not granted", a.name(), exact(need), size(free))
	}
}

// enough is a limit with room for the largest refused allocation beside the most that the
// share used, in whole halves of a GiB.
func enough(s *control.Share) uint64 {
	const step = 512 << 20
	if s.Refusals.Largest > math.MaxInt64 || s.Peak > math.MaxInt64 {
		return math.MaxUint64
	}
	return (min(s.Peak, s.Limit) + s.Refusals.Largest + step - 1) / step * step
}

// exact writes whole MiB as a flag takes them.
func exact(bytes uint64) string {
	if bytes%(1<<30) == 0 {
		return strconv.FormatUint(bytes>>30, 10) + "Gi"
	}
	return strconv.FormatUint(bytes>>20, 10) + "Mi"
}

// fullGPU says who has the memory of a GPU that was full.
func (a *account) fullGPU(s *control.Share) {
	g := a.gpu(s)
	if g.Granted > g.Capacity {
		a.say("  The shares of GPU %d were granted %s together, and it has %s: not all can use their part at once.", g.Index, size(g.Granted), size(g.Capacity))
	}
	for _, o := range a.l.Outside {
		if o.UUID == s.UUID {
			a.say("  %s uses %s of it and is in no share.", printable(processOf(o)), told(o.Used))
		}
	}
	if g.Used != nil {
		a.say("  %s of %s is in use now, by all together.", size(*g.Used), size(g.Total))
	}
}

// happened tells the events of the share.
func (a *account) happened() {
	said := append(eventsOf(a.l, a.t.Name, a.t.User, true), eventsOf(a.l, a.t.Name, a.t.User, false)...)
	if len(said) > 0 {
		a.say("")
		a.lines = append(a.lines, said...)
	}
}

// eventsOf are the events that an agent keeps about a share, in lines: those of refused requests, or the others.
func eventsOf(l *control.Listing, name, user string, refused bool) (lines []string) {
	for _, e := range l.Events {
		if e.Tenant == name && (user == "" || e.User == user) && refused == (e.Kind == control.EventRefused) {
			lines = append(lines, fmt.Sprintf("%s %s: %s%s", moment(e.Time, l.Time), e.Kind, text.Plain(e.Text, longestNote), timesOf(e)))
		}
	}
	return lines
}

func timesOf(e control.Event) string {
	if e.Times > 1 {
		return fmt.Sprintf(" (%d times)", e.Times)
	}
	return ""
}
