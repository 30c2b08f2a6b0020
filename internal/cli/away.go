package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// absence is a system agent that should run and does not, and what can be seen without
// it: shares keep their limits and go on.
type absence struct {
	// Machine is the simulated machine's name, empty for the real one.
	Machine string `json:"machine,omitempty"`
	// Reason says that the agent is away, since when, and what to do.
	Reason string `json:"reason"`
	// Since is when it was last seen; nil where that is not known.
	Since *time.Time `json:"since,omitempty"`
	// Yours counts the user's own shares whose processes use a GPU, Others what is there
	// of others' shares; nil where they cannot be seen.
	Yours  *int `json:"yours,omitempty"`
	Others *int `json:"others,omitempty"`
}

// absent describes a system agent that is away.
func absent(machine string, away *control.AwayError) absence {
	a := absence{Machine: machine, Reason: away.Error()}
	mark := away.System.Mark
	if mark == nil { // it has granted nothing since the machine started
		a.Yours, a.Others = new(int), new(int)
		return a
	}
	a.Since = &mark.Seen
	owners, err := tenantdir.Running(mark.Tenants)
	if err != nil {
		return a
	}
	a.Yours, a.Others = new(int), new(int)
	for _, uid := range owners {
		if uid == os.Getuid() {
			*a.Yours++
		} else {
			*a.Others++
		}
	}
	return a
}

// noteOwn notes that a user's own agent answers where a system agent should.
func (s *survey) noteOwn(machine string, l listing) {
	if !l.Info.Ephemeral {
		return
	}
	if c, configured := l.endpoint.Configured(); configured {
		s.away = append(s.away, absent(machine, &control.AwayError{System: c}))
	}
}

// unreached is a system agent that holds the GPUs of this machine and answers at none
// of its sockets.
func unreached(held []gpulock.Holder) (absence, bool) {
	at := slices.IndexFunc(held, func(h gpulock.Holder) bool { return h.System })
	if at < 0 {
		return absence{}, false
	}
	found, next := unanswering(held[at])
	return absence{Reason: found + ": " + next}, true
}

// unanswering says what is known of a system agent that holds GPUs of this machine and answers at none of its sockets, and
// what to do.
func unanswering(h gpulock.Holder) (found, next string) {
	if dir := rundirOf(h.PID); dir != "" && dir != rundir.System {
		return fmt.Sprintf("%s, serves in another run directory, %s", h, dir), fmt.Sprintf("set %s=%s to use it, or end it", rundir.Variable, dir)
	}
	return fmt.Sprintf("%s, does not answer in %s", h, rundir.System), h.Remedy(os.Getuid())
}

// rundirOf is the run directory that a process was told by its environment, "" where it was told none or nobody may know.
func rundirOf(pid int) string {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(environment), "\x00") {
		if dir, ok := strings.CutPrefix(entry, rundir.Variable+"="); ok {
			return dir
		}
	}
	return ""
}

// errHidden marks what is said of a system agent that runs and cannot be found.
var errHidden = errors.New("no agent of your own is started beside it")

// hidden returns an error if a system agent holds GPUs of this machine.
func hidden(ctx context.Context) error {
	held, err := gpulock.Real.All(ctx)
	if a, found := unreached(held); found && err == nil {
		return fmt.Errorf("%s (%w)", a.Reason, errHidden)
	}
	return nil
}

// heldByOthers lists the GPUs of this machine that own agents of other users hold. A
// system agent, where one answers, holds all of them itself.
func heldByOthers(ctx context.Context, agents []listing) ([]gpulock.Holder, error) {
	if slices.ContainsFunc(agents, func(l listing) bool { return l.Machine == "" && !l.Info.Ephemeral && l.Info.UID == 0 }) {
		return nil, nil
	}
	all, err := gpulock.Real.All(ctx)
	return slices.DeleteFunc(all, func(h gpulock.Holder) bool { return h.UID == os.Getuid() && !h.System }), err
}

// text is the absence for people, in lines.
func (a absence) text() string {
	where := ""
	if a.Machine != "" {
		where = "Simulated machine " + a.Machine + ": "
	}
	text := fmt.Sprintf("! %s%s\n", where, a.Reason)
	switch {
	case a.Yours == nil:
		return text + "  Shares that run keep their limits; which these are only the agent can tell.\n"
	case *a.Yours+*a.Others == 0:
		return text + "  No share is seen to use a GPU.\n"
	}
	use := "use"
	if *a.Yours == 1 {
		use = "uses"
	}
	return text + fmt.Sprintf("  Shares go on and keep their limits: %d of yours %s a GPU, others have %d.\n", *a.Yours, use, *a.Others)
}

// printSurvey writes what is missing, then one block for each agent.
func printSurvey(w *strings.Builder, s survey, as look) {
	for _, a := range s.away {
		w.WriteString(a.text())
	}
	for _, h := range s.held {
		fmt.Fprintf(w, "! GPU %s is held by %s.\n", h.UUID, h)
	}
	if len(s.away) > 0 { // an own agent that is about to end has nothing to say
		s.agents = slices.DeleteFunc(slices.Clone(s.agents), func(l listing) bool { return l.Info.Ephemeral && len(l.Tenants)+len(l.Waiting) == 0 })
	}
	if len(s.agents)+len(s.unserved) > 0 && len(s.away)+len(s.held) > 0 {
		w.WriteByte('\n')
	}
	printListings(w, s.agents, as)
	for i, u := range s.unserved {
		if i+len(s.agents) > 0 {
			w.WriteByte('\n')
		}
		printUnserved(w, u, as)
	}
	if len(s.remote) > 0 && len(s.agents)+len(s.unserved)+len(s.away)+len(s.held) > 0 {
		w.WriteByte('\n')
	}
	printAway(w, s.remote, time.Now(), as)
	switch { // while an agent is away nobody knows what shares there are
	case !s.isEmpty():
	case s.apart != "":
		fmt.Fprintf(w, "No agent is seen from here: share %s keeps its command away from the driver, and from the agent of its simulated machine.\n", text.Plain(s.apart, longestName))
		w.WriteString("`divvy ls` outside of the share lists it.\n")
	default:
		w.WriteString("No shares. `divvy run --memory 8Gi -- COMMAND` makes one; without a GPU add --simgpu a100-80g.\n")
	}
}

// isEmpty reports whether nothing is known of any share.
func (s survey) isEmpty() bool {
	return len(s.agents)+len(s.unserved)+len(s.away)+len(s.remote) == 0
}
