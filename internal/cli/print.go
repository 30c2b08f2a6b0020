package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Short names of how amounts and times are written.
var (
	size = text.Size
	age  = text.Age
)

// moment writes a time as somebody reads it at another: without its date on the same day.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if y, m, d := now.Date(); now.IsZero() || t.Before(time.Date(y, m, d, 0, 0, 0, 0, time.Local)) || !t.Before(time.Date(y, m, d+1, 0, 0, 0, 0, time.Local)) {
		return t.Format("15:04 on 2 January 2006")
	}
	return t.Format("15:04:05")
}

// told is an amount that the driver tells, or that it does not.
func told(n *uint64) string {
	if n == nil {
		return "?"
	}
	return size(*n)
}

// used is what a share's processes have, as the driver tells. Where it does not, and of
// memory that only descriptors keep, the share itself tells, which is marked.
func used(s control.Share) string {
	switch {
	case s.Observed == nil:
		return size(s.Used) + byItself
	case s.ByDescriptor > 0:
		return size(*s.Observed+s.ByDescriptor) + byItself
	}
	return size(*s.Observed)
}

// byItself marks what only a share tells.
const byItself = "*"

func percent(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n) + "%"
}

// brief is the beginning of a UUID, if it tells the GPU from the others: CUDA and --gpu
// take it for the whole.
func brief(uuid string, among []control.GPU) string {
	const enough = len("GPU-01234567")
	if len(uuid) <= enough {
		return uuid
	}
	alike := 0
	for _, g := range among {
		if strings.HasPrefix(g.UUID, uuid[:enough]) {
			alike++
		}
	}
	if alike > 1 {
		return uuid
	}
	return uuid[:enough]
}

// awaited says why a GPU is not listed.
func awaited(gpu int, refused map[int]string) string {
	return control.LeftOutText(gpu, refused) + "; it is served when the driver tells of it"
}

func titleOf(l listing) string {
	machine := "This machine"
	if l.Machine != "" {
		machine = "Simulated machine " + l.Machine
	}
	if l.Info.Simgpu != "" && l.Machine == "" {
		machine = "Simulated machine " + filepath.Base(l.Info.Simgpu)
	}
	if l.Info.UID == 0 && l.Machine == "" && !l.Info.Ephemeral {
		return fmt.Sprintf("%s, system agent (pid %d)", machine, l.Info.PID)
	}
	return fmt.Sprintf("%s, agent of %s (pid %d): shares guard against accident, not intent", machine, l.Info.User, l.Info.PID)
}

// spent returns the part of the GPU's time that a share had in the last second.
func spent(t *control.Time) string {
	if t == nil || t.Percent == nil {
		return "-"
	}
	return percentOf(t.Percent)
}

// coresOf returns a share's cores, with policy burst as a range up to its limit.
func coresOf(s control.Share) string {
	if s.Policy == v1alpha1.PolicyBurst {
		return fmt.Sprintf("%d-%d%%", s.Cores, s.MaxCores)
	}
	switch {
	case s.Backend == v1alpha1.BackendMPS && s.Cores > 0:
		return "<=" + percent(s.Cores)
	case s.Backend == v1alpha1.BackendMIG:
		return "-" // the instance's SMs, all the time
	}
	return percent(s.Cores)
}

// policyOf returns a share's policy if its backend has policies.
func policyOf(s control.Share) string {
	switch s.Backend {
	case v1alpha1.BackendTimeslice, v1alpha1.BackendMPS, v1alpha1.BackendMIG:
		return "-"
	default:
		return string(s.Policy)
	}
}

// weightOf returns a share's weight if its policy uses weights.
func weightOf(s control.Share) string {
	if policyOf(s) != string(v1alpha1.PolicyWeighted) {
		return "-"
	}
	return strconv.Itoa(s.Weight)
}

// pidsShown bounds the process ids in one cell.
const pidsShown = 2

func pids(processes []control.Process) string {
	if len(processes) == 0 {
		return "-"
	}
	var texts []string
	for i, p := range processes {
		if i == pidsShown {
			texts = append(texts, fmt.Sprintf("+%d", len(processes)-i))
			break
		}
		texts = append(texts, pid(cmp.Or(p.Client, p.PID)))
	}
	return strings.Join(texts, ",")
}

func pid(n int) string {
	if n == 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

// state is a word about a share, or two: one that is over and co-operative is guarded by
// nothing.
func state(t control.Tenant, s control.Share) string {
	switch {
	case t.Fault != "", s.Time != nil && s.Time.Fault != "":
		return "fault"
	case t.Suspended != nil:
		return string(t.Suspended.State)
	case s.Excess != "", s.Used > s.Limit, s.Observed != nil && *s.Observed > s.Limit:
		if t.Cooperative {
			return "over, co-operative"
		}
		return "over"
	}
	return activity(t, s)
}

// activity is the state of a share with which nothing is wrong.
func activity(t control.Tenant, s control.Share) string {
	switch {
	case s.Turns != nil && s.Turns.State != control.TurnIn && len(s.Process) > 0:
		return string(s.Turns.State)
	case s.Time != nil && s.Time.HeldBack:
		return "held back"
	case len(s.Process) > 0 && t.Cooperative, t.Held && t.Cooperative:
		return "co-operative"
	case len(s.Process) > 0:
		return "active"
	case t.Held:
		return "idle"
	case s.ByDescriptor > 0:
		return "kept"
	}
	return "ending"
}

// printNotes writes faults, waiting requests and events below the tables.
func printNotes(w *strings.Builder, l listing, as look) {
	notes := gpuNotes(l)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if slices.ContainsFunc(l.Tenants, isByItself) {
		note("%s as the share itself tells: the driver does not tell what its processes have", byItself)
	}
	notes = append(notes, outsideNotes(l)...)
	for _, t := range l.Tenants {
		notes = append(notes, mechanismsOf(t)...)
		notes = append(notes, faultsOf(t, l.Time)...)
	}
	for _, q := range l.Waiting {
		note("waiting since %s: %s asks for %s: %s%s", moment(q.Since, l.Time), q.User, asked(q), q.Reason, keptFor(q))
	}
	several := severalUsers(l)
	for _, e := range shown(l.Events, process.UserName(os.Getuid())) {
		whose := ""
		switch {
		case e.Tenant != "" && e.User != "" && several:
			whose = " " + e.User + "/" + e.Tenant
		case e.Tenant != "":
			whose = " " + e.Tenant
		}
		times := ""
		if e.Times > 1 {
			times = fmt.Sprintf(" (%d times)", e.Times)
		}
		note("%s %s%s: %s%s", moment(e.Time, l.Time), kindOf(e), whose, e.Text, times)
	}
	if len(notes) > 0 {
		w.WriteByte('\n')
	}
	for _, line := range notes {
		w.WriteString(as.note(line) + "\n")
	}
}

// kindOf is the kind of an event for people: memory comes back after every end, which nobody had to reap.
func kindOf(e control.Event) string {
	if e.Kind == control.EventReaped {
		return "freed"
	}
	return string(e.Kind)
}

// gpuNotes are about the GPUs: first which are left out, take no new shares or are not
// watched, then what is known of the memory of each.
func gpuNotes(l listing) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, gpu := range l.LeftOut {
		note("! %s", awaited(gpu, l.Refused))
	}
	for _, g := range l.GPUs {
		if why := cmp.Or(g.Fault, g.Misgiven); why != "" {
			note("! GPU %d takes no new shares: %s", g.Index, why)
		}
		if g.Unwatched != "" && g.Fault == "" && len(l.Tenants) > 0 {
			note("GPU %d: %s", g.Index, g.Unwatched)
		}
	}
	for _, g := range l.GPUs {
		if more := overGranted(g); more != "" {
			note("! GPU %d is over-granted: its shares have %s", g.Index, more)
		}
		if len(g.Open) > 0 {
			note("GPU %d: open without a share to %s, by admin access", g.Index, strings.Join(g.Open, ", "))
		}
		if g.Hidden != "" && len(l.Tenants) > 0 {
			note("GPU %d: %s", g.Index, g.Hidden)
		}
		if g.Thrashing != "" {
			note("! GPU %d: %s", g.Index, g.Thrashing)
		}
		if g.Excess != "" {
			note("! GPU %d: %s", g.Index, g.Excess)
		}
	}
	return notes
}

// severalUsers reports whether names alone may not tell whose share is meant.
func severalUsers(l listing) bool {
	users := map[string]bool{}
	for _, t := range l.Tenants {
		users[t.User] = true
	}
	for _, e := range l.Events {
		users[e.User] = users[e.User] || e.Tenant != ""
	}
	delete(users, "")
	n := 0
	for _, named := range users {
		if named {
			n++
		}
	}
	return n > 1
}

// asked describes a queued request.
func asked(q control.Waiting) string {
	memory := "all memory"
	if !q.Request.Memory.IsZero() {
		memory = q.Request.Memory.String()
	}
	switch {
	case q.Request.GPUs > 1:
		return fmt.Sprintf("%s on each of %d GPUs", memory, q.Request.GPUs)
	case q.Request.Backend == v1alpha1.BackendMIG && q.Request.Profile != "":
		return "MIG instance " + q.Request.Profile
	case q.Request.Backend == v1alpha1.BackendMIG:
		return "a MIG instance with " + memory
	case q.Request.Profile != "":
		return fmt.Sprintf("%s of a MIG instance %s", memory, q.Request.Profile)
	}
	return memory
}

// keptFor says on which GPUs nobody who came later is served before a queued request.
func keptFor(q control.Waiting) string {
	var gpus []string
	for _, gpu := range q.Keeps {
		gpus = append(gpus, fmt.Sprintf("GPU %d", gpu))
	}
	if len(gpus) == 0 {
		return ""
	}
	return "; kept for it: " + strings.Join(gpus, ", ")
}
