package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// hunt finds and ends the processes of a tenant. What the tenant's pages say of them is
// the tenant's word and may be false or nothing, so the driver and the kernel are asked
// too. One goroutine uses it.
type hunt struct {
	agent  *Agent
	tenant *tenant
	// known are all that were found: a process whose parent has ended may not be found
	// again.
	known map[process.ID]bool
	// foreign descend from those and belong to other users, who alone may end them.
	foreign map[process.ID]bool
	// enclosed belong to other users and are in a share of root's all the same.
	enclosed map[process.ID]bool
	// stopped cannot fork, and are killed when everybody is stopped.
	stopped   map[process.ID]bool
	due       time.Time // of the next search among all processes
	stopUntil time.Time // until then those that appear are stopped before they are killed
}

// signalUntilEnded signals every process of the tenant once, including those that
// appear meanwhile, and waits until the tenant and all of them have ended.
func (h *hunt) signalUntilEnded(ctx context.Context, signal syscall.Signal, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	h.stopUntil = time.Now().Add(limit / 2)
	signalled := map[process.ID]bool{}
	for {
		h.search(ctx, len(h.stopped) > 0)
		left := h.signal(signalled, signal)
		if !left {
			h.agent.vacate(h.tenant)
		}
		h.agent.lookAt(ctx, h.tenant)
		if !left && h.ended() {
			// Who forked meanwhile is found now, or there is nobody.
			if h.search(ctx, true); !h.signal(signalled, signal) {
				return nil
			}
		}
		goOn := control.Pause(ctx)
		select {
		case <-time.After(stopPause):
			goOn()
		case <-ctx.Done():
			goOn() // stopTenant goes on where only this limit is over
			return ctx.Err()
		}
	}
}

// signal signals those that were not signalled before, and reports whether any is left. Who
// is killed makes room for others to fork, so those that appear after some were killed are
// stopped first, until nobody appears any more or half of the time is over: on a busy machine somebody may appear in each look, and
// nobody stays stopped for ever.
func (h *hunt) signal(signalled map[process.ID]bool, signal syscall.Signal) (left bool) {
	if signal == unix.SIGKILL && len(signalled) > 0 && h.stop(signalled) && time.Now().Before(h.stopUntil) {
		return true
	}
	clear(h.stopped)
	for id := range h.known {
		if !signalled[id] {
			signalled[id] = true
			_ = id.SignalIf(signal, h.owns) // it may have ended by itself
		}
		left = left || id.Alive() && !h.foreign[id]
	}
	return left
}

// stop stops those that were neither signalled nor stopped before, and reports whether there
// were any.
func (h *hunt) stop(signalled map[process.ID]bool) (some bool) {
	if h.stopped == nil {
		h.stopped = map[process.ID]bool{}
	}
	for id := range h.known {
		if !signalled[id] && !h.stopped[id] && id.Alive() {
			h.stopped[id], some = true, true
			_ = id.SignalIf(unix.SIGSTOP, h.owns) // it may have ended by itself
		}
	}
	return some
}

func (h *hunt) ended() bool {
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	return h.tenant.ended
}

// search adds the processes that belong to the tenant now: the one that asked for it,
// those that its pages name and the kernel confirms, those that were found to be its own
// before, all their descendants and, if that is due or asked for, those that the driver
// lists and the processes of its user that the backend says are its own. The agent and
// its ancestors are never among them, nor are processes of other users, whatever they
// descend from: `divvy stop` ends nothing that the tenant's user could not end, and of a
// share of root's nothing but root's and what it [hunt.encloses].
func (h *hunt) search(ctx context.Context, all bool) {
	a, t := h.agent, h.tenant
	a.mu.Lock()
	var roots []process.ID
	if t.process && t.Holder.Alive() {
		roots = append(roots, t.Holder)
	}
	seen, wanted := t.seen.Processes, a.tenantOf(&t.record)
	a.mu.Unlock()
	for _, p := range seen {
		if id, err := process.Find(p.PID); err == nil && p.Live && a.makerOf(wanted).Has(wanted, p.PID) {
			roots = append(roots, id)
		}
	}
	if begun := time.Now(); all || !begun.Before(h.due) {
		roots = append(roots, a.searchAll(ctx, t, wanted)...)
		// Where there are very many processes most of the time is left to others.
		h.due = begun.Add(max(huntPause, 4*time.Since(begun)))
	}
	roots = append(roots, a.members.of(t.ID)...)
	for id := range h.known {
		roots = append(roots, id)
	}
	found := slices.Concat(roots, process.Descendants(pids(roots)...))
	agent := append([]int{os.Getpid(), 1}, process.Ancestors(os.Getpid())...)
	for _, id := range found {
		if id.PID > 0 && !slices.Contains(agent, id.PID) {
			if h.owns(id) {
				h.known[id] = true
				delete(h.foreign, id)
			} else {
				h.foreign[id] = true
			}
		}
	}
}

// owns reports whether a process is its tenant's user's own or its worker's. What root asked with, or
// started in a share of root's, may have become another user since.
// Of containers, in which processes are any users', it is whether the process is in one of them.
func (h *hunt) owns(id process.ID) bool {
	if h.tenant.contained() {
		wanted := h.agent.wanted(h.tenant)
		return h.agent.makerOf(wanted).Has(wanted, id.PID)
	}
	return h.tenant.owns(id) || h.encloses(id)
}

// searchAll finds processes of a tenant of which its pages need not tell.
func (a *Agent) searchAll(ctx context.Context, t *tenant, wanted backend.Tenant) (found []process.ID) {
	for _, p := range on(a.snapshots(ctx)) {
		if owner, _ := a.member(p.id); owner == t.ID {
			found = append(found, p.id)
		}
	}
	// No reaper of the tenant's runs during the search, which could find it.
	t.look.Lock()
	defer t.look.Unlock()
	candidates := process.Of(t.UID)
	if t.Worker != 0 {
		candidates = append(candidates, process.Of(t.Worker)...)
	}
	if t.UID == 0 || t.contained() { // which also have what is or became another user's
		candidates = process.All()
	}
	signed := signed(t, candidates)
	for _, id := range candidates {
		if id.PID != os.Getpid() && (a.makerOf(wanted).Has(wanted, id.PID) || signed(id)) {
			found = append(found, id)
		}
	}
	return found
}

// signed tells of candidates whether they have the sign of a tenant without a mount
// namespace, whose processes nothing else need show: what `divvy run` leaves in its command
// and what descends from that.
func signed(t *tenant, candidates []process.ID) func(process.ID) bool {
	if t.Layer != backend.LayerEnv {
		return func(process.ID) bool { return false }
	}
	signs := gpulock.Signed(t.ID, candidates)
	return func(id process.ID) bool { return len(signs) > 0 && process.HasOpen(id.PID, signs) }
}

// remains says why the tenant has not ended.
func (h *hunt) remains() string {
	var left, foreign []string
	for id := range h.known {
		if id.Alive() && !h.foreign[id] {
			left = append(left, strconv.Itoa(id.PID)+" ("+process.Command(id.PID)+")")
		}
	}
	for id := range h.foreign {
		if id.Alive() {
			foreign = append(foreign, fmt.Sprintf("%d (%s) of %s", id.PID, process.Command(id.PID), userOf(id.PID)))
		}
	}
	slices.Sort(left)
	slices.Sort(foreign)
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	switch t := h.tenant; {
	case len(left) == 1:
		return "process " + left[0] + " goes on after SIGKILL: it may be inside a driver call; try again later"
	case len(left) > 1:
		return "processes " + strings.Join(left, ", ") + " go on after SIGKILL: they may be inside a driver call; try again later"
	case len(foreign) > 0:
		return "what it started as another user goes on, and divvy signals only its own user's processes: process " + strings.Join(foreign, ", process ")
	case t.connection:
		return "whoever asked for it keeps the connection to the agent open, and no process of it is found"
	case t.seen.Live || t.fault != "":
		return fmt.Sprintf("somebody keeps its pages locked whom the agent cannot find, perhaps in another pid namespace%s", suffix(t.fault))
	}
	return "what was made for it is still being looked at: try again later" + suffix(h.tenant.fault)
}

// suffix puts a fault behind a sentence.
func suffix(fault string) string {
	if fault == "" {
		return ""
	}
	return "; " + fault
}

func pids(all []process.ID) []int {
	var found []int
	for _, id := range all {
		found = append(found, id.PID)
	}
	return found
}
