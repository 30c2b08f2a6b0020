package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// sight is what was found out about the agent of one machine.
type sight struct {
	// machine is the simulated machine's name, empty for this machine.
	machine string
	// dir is the directory of the user's own agent, and system that of the system agent.
	dir, system string
	endpoint    control.Endpoint
	// list is what the agent says; it is nil where none answers, and err says why.
	list *control.Listing
	err  error
	// forms are what the agent says of the forms of GPUs; nil where it does not.
	forms *control.Forms
	// by is why a system agent is configured; it is valid if configured is true.
	by         rundir.Configured
	configured bool
	// bySystem is true for a simulated machine that the system agent serves, or did when it
	// was last there.
	bySystem bool
	// held are the GPUs of this machine that agents hold.
	held []gpulock.Holder
	// indexes are those of the machine's GPUs by UUID, as far as they are known.
	indexes map[string]int
}

// agentTime is how long an agent is waited for. One that works answers in milliseconds, and in seconds on a busy machine. What
// is told of one that is stopped or stuck is known a little earlier.
const agentTime = control.GreetTime + 2*time.Second

// errMute marks an agent that took the connection and did not answer.
var errMute = fmt.Errorf("the agent does not answer, and was given %v", agentTime)

func (a *app) lookAtAgent(ctx context.Context, machine string, endpoint control.Endpoint) sight {
	ctx, cancel := context.WithTimeoutCause(ctx, agentTime, errMute)
	defer cancel()
	s := sight{machine: machine, endpoint: endpoint, dir: endpoint.Dir(), system: endpoint.System().Dir()}
	s.err = ask(ctx, endpoint, func(client *control.Client) (err error) {
		if s.list, err = client.List(ctx); err != nil {
			return err
		}
		s.forms, _ = client.Forms(ctx) // an agent of an earlier version has none
		return nil
	})
	if s.err != nil && errors.Is(context.Cause(ctx), errMute) {
		s.err = errMute
	}
	s.by, s.configured = endpoint.Configured()
	return s
}

// lookAtAgents looks at the agents of machines, whose names it has them sorted by.
func (a *app) lookAtAgents(ctx context.Context, endpoints map[string]control.Endpoint) []sight {
	return atOnce(sortedKeys(endpoints), func(machine string) sight { return a.lookAtAgent(ctx, machine, endpoints[machine]) })
}

// simgpu is the directory of the simulated machine that stands in for this one, as far
// as that is known.
func (s sight) simgpu() string {
	switch {
	case s.list != nil:
		return s.list.Info.Simgpu
	case s.configured && s.by.Mark != nil:
		return s.by.Mark.Simgpu
	}
	return ""
}

// machinesOnly is whether the system agent gives devices to virtual machines and serves no shares, or the last one did that is away.
func (s sight) machinesOnly() bool {
	switch {
	case s.list != nil && !s.list.Info.Ephemeral:
		return s.list.Info.MachinesOnly
	case s.configured && s.by.Mark != nil:
		return s.by.Mark.MachinesOnly
	}
	return false
}

// checks say which agent serves the machine and what is wrong there.
func (s sight) checks() []doctor.Check {
	c := s.agentCheck()
	if s.machine != "" {
		c.Name = "agent of simulated machine " + s.machine
	}
	if s.list == nil {
		return slices.Concat([]doctor.Check{c}, doctor.LeftDaemons(s.dir), leftModes(s.dir, s.nameOf))
	}
	return slices.Concat([]doctor.Check{c}, s.versionChecks(), troubleChecks(s.list), gpuChecks(s.list), formChecks(s.forms), mpsChecks(s.forms, s.serving()),
		migChecks(s.forms), capabilityChecks(s.forms, s.simgpu()), shareChecks(s.list))
}

// nameOf names a GPU by its index, or by its UUID where that is not known.
func (s sight) nameOf(uuid string) string {
	if index, known := s.indexes[uuid]; known {
		return fmt.Sprintf("GPU %d", index)
	}
	return uuid
}

// serving is the directory of the agent that answers.
func (s sight) serving() string {
	if s.list.Info.Ephemeral {
		return s.dir
	}
	return s.system
}

// agentCheck says which agent serves the machine.
func (s sight) agentCheck() doctor.Check {
	c := doctor.Check{ID: "agent", Name: "agent", Status: doctor.OK}
	away, h, stuck := &control.AwayError{System: s.by}, s.hidden(), (*control.StuckError)(nil)
	own := s.list != nil && s.list.Info.Ephemeral
	switch {
	case own && s.configured:
		c.Found = fmt.Sprintf("an own agent (%s) serves its shares and grants no more; ", served(s.list.Info))
		fallthrough
	case errors.As(s.err, &away):
		said := strings.TrimSpace(strings.TrimPrefix(absent("", away).text(), "! "))
		c.Status, c.Next = doctor.Fail, away.Remedy()
		c.Found += strings.Replace(said, ": "+c.Next, "", 1)
	case h != nil && (own || errors.Is(s.err, control.ErrNoAgent)):
		c.Status = doctor.Fail
		c.Found, c.Next = unanswering(*h)
	case errors.Is(s.err, control.ErrNoAgent):
		c.Found = s.none()
	case errors.As(s.err, &stuck):
		c.Status, c.Found, c.Next = doctor.Fail, "the agent runs, and "+stuck.Found, stuck.Next
	case errors.Is(s.err, errMute):
		c.Status, c.Found = doctor.Fail, s.err.Error()
		c.Next = "as root, start it again (`systemctl restart divvy-agent`): shares go on meanwhile. Your own: `divvy run` starts one when it has ended"
	case s.err != nil:
		c.Status, c.Found = doctor.Fail, s.err.Error()
	default:
		c.Found = served(s.list.Info) + waiting(s.list)
	}
	return c
}

// none says what it means that no agent of this user's own runs.
func (s sight) none() string {
	switch {
	case s.machine == "":
		return "none runs; `divvy run` starts one where there is a driver"
	case s.bySystem:
		return "none of your own runs: the system agent serves the machine of that name"
	}
	return fmt.Sprintf("none runs; `divvy run --simgpu %s` starts one", s.machine)
}

// waiting tells of requests that wait, "" if none does.
func waiting(l *control.Listing) string {
	if len(l.Waiting) == 0 {
		return ""
	}
	first := l.Waiting[0]
	wait := "requests wait"
	if len(l.Waiting) == 1 {
		wait = "request waits"
	}
	return fmt.Sprintf("; %d %s, the first since %s: %s", len(l.Waiting), wait, moment(first.Since, l.Time), first.Reason)
}

// hidden is a system agent that holds the machine's GPUs and could not be asked.
func (s sight) hidden() *gpulock.Holder {
	if at := slices.IndexFunc(s.held, func(h gpulock.Holder) bool { return h.System }); at >= 0 {
		return &s.held[at]
	}
	return nil
}

func served(info control.Info) string {
	if info.MachinesOnly {
		return fmt.Sprintf("pid %d of %s serves virtual machines alone (%s)", info.PID, info.User, rundir.MachinesFlag)
	}
	return fmt.Sprintf("pid %d of %s serves, driver %s", info.PID, info.User, info.Driver)
}

// gpuChecks tell what is wrong with the GPUs that an agent serves.
func gpuChecks(l *control.Listing) (checks []doctor.Check) {
	warn := func(id doctor.ID, gpu int, next, format string, args ...any) {
		checks = append(checks, doctor.Check{ID: id, Name: fmt.Sprintf("GPU %d", gpu), Status: doctor.Warn, Found: fmt.Sprintf(format, args...), Next: next})
	}
	for _, gpu := range l.LeftOut {
		warn("gpu.left-out", gpu, "if it stays so, look at the kernel's log (`dmesg`) and reset the GPU", "%s", awaited(gpu, l.Refused))
	}
	for _, g := range l.GPUs {
		if g.Fault != "" {
			warn("gpu.silent", g.Index, "use another GPU; shares there go on; look at the kernel's log (`dmesg`)", "it takes no new shares: %s", g.Fault)
		}
		if g.Granted > g.Capacity || g.Cores > 100 {
			warn("gpu.overgranted", g.Index, "end or lower a share there, unless root or who may overcommit meant it",
				"its shares add up to more than it has: %s of %s, %d of 100 cores", size(g.Granted), size(g.Capacity), g.Cores)
		}
		if g.Excess != "" {
			warn("gpu.excess", g.Index, "`divvy ls` shows who uses it", "%s", g.Excess)
		}
		if g.Unwatched != "" && g.Fault == "" {
			warn("gpu.unwatched", g.Index, "", "%s", g.Unwatched)
		}
	}
	return checks
}

// shareChecks tell what is wrong with shares.
func shareChecks(l *control.Listing) (checks []doctor.Check) {
	warn := func(id doctor.ID, t control.Tenant, next, found string) {
		checks = append(checks, doctor.Check{ID: id, Name: "share " + t.User + "/" + t.Name, Status: doctor.Warn, Found: found, Next: next})
	}
	for _, t := range l.Tenants {
		if t.Cooperative {
			warn("share.cooperative", t, "start its command again to have the limit guarded",
				"it was taken over from its user's own agent and is co-operative: its limit holds as long as its processes keep to it")
		}
		if t.Fault != "" {
			warn("share.unreadable", t, "end it: `divvy stop "+t.User+"/"+t.Name+"`", t.Fault)
		}
		for _, s := range t.Shares {
			if s.Excess != "" {
				warn("share.excess", t, "", fmt.Sprintf("on GPU %d: %s", s.Index, s.Excess))
			}
			if s.Past != "" {
				warn("share.past", t, "raise its limit: `divvy set "+t.User+"/"+t.Name+" --memory`", fmt.Sprintf("on GPU %d: %s", s.Index, s.Past))
			}
		}
	}
	return checks
}

// holderChecks tell of agents that hold GPUs beside the one that serves this user, by GPU.
func (s sight) holderChecks(held []gpulock.Holder) (checks []doctor.Check) {
	held = slices.SortedFunc(slices.Values(held), func(x, y gpulock.Holder) int {
		return cmp.Or(cmp.Compare(s.indexes[x.UUID], s.indexes[y.UUID]), cmp.Compare(x.UUID, y.UUID))
	})
	for _, h := range held {
		if s.known(h) {
			continue
		}
		c := doctor.Check{ID: "gpu.held", Name: "GPU held", Status: doctor.Warn, Found: fmt.Sprintf("%s by %s", s.nameOf(h.UUID), h), Next: h.Remedy(os.Getuid())}
		switch {
		case s.configured && s.list != nil && !s.list.Info.Ephemeral:
			c.Next = "end that process, or find out what it is: it is not the agent that serves this machine"
		case s.configured:
			c.Next = "the system agent takes it over when it starts"
		}
		checks = append(checks, c)
	}
	return checks
}

// known reports whether a holder is the agent of which the first check tells: the one that
// answers, or a system agent that hangs or cannot be found.
func (s sight) known(h gpulock.Holder) bool {
	if s.list != nil && h.PID == s.list.Info.PID && h.PID != 0 {
		return true
	}
	if s.list != nil && h.PID == 0 && h.UID == s.list.Info.UID {
		return true // they are in another pid namespace, where the process that answers may be the one that holds
	}
	if s.list != nil && !s.list.Info.Ephemeral {
		return false
	}
	m := s.by.Mark
	return h.System || m != nil && h.UID == 0 && h.PID != 0 && h.PID == m.Agent.PID && m.Agent.Alive()
}
