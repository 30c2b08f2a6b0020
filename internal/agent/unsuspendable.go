package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// savesIPC is the driver's release from which memory that other processes have open can be saved.
const savesIPC = 610

// refuseSuspension is why a tenant cannot be suspended, nil if it can. What the driver would refuse is found here: a
// checkpoint that it refuses may leave the process in a bad state. The error is [checkpointer.ErrHeld] while the driver is not
// asked.
func (a *Agent) refuseSuspension(ctx context.Context, t *tenant) error {
	refuse := func(format string, args ...any) error {
		return control.Errorf(control.CodeRefused, "%s cannot be suspended: %s", t.Name, fmt.Sprintf(format, args...))
	}
	if why := a.neverSuspended(t); why != "" {
		return refuse("%s", why)
	}
	switch _, err := a.config.Checkpointer.Version(ctx); {
	case errors.Is(err, checkpointer.ErrHeld):
		return err
	case errors.Is(err, checkpointer.ErrUnsupported):
		return control.Errorf(control.CodeInvalid, "%s cannot be suspended: %v", t.Name, err)
	case err != nil:
		return refuse("%v", err)
	}
	ids, unseen, why := a.unsavable(ctx, t)
	switch {
	case why != "":
		return refuse("%s", why)
	case unseen > 0:
		return refuse("the agent does not see %d of its processes, which are in another pid namespace", unseen)
	}
	for _, id := range ids {
		why, err := a.immovable(ctx, t, id)
		switch {
		case err != nil:
			return err
		case why != "":
			return refuse("%s", why)
		}
	}
	return nil
}

// neverSuspended is why a tenant can never be suspended by what it is, empty if it can.
func (a *Agent) neverSuspended(t *tenant) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := t.Shares[0]
	switch {
	case a.config.Checkpointer == nil || a.config.SwapMemory == 0:
		return "this agent gives shares no host memory: have it started with --swap-memory, or with swapMemory in agent.yaml"
	case a.unsuspendable() != "":
		return a.unsuspendable()
	case s.Swap:
		return "it is a swap share, and the driver saves no managed memory"
	case s.Instance != nil || s.Backend == v1alpha1.BackendMIG:
		return "it is on a MIG instance, and the driver saves no process there"
	case s.Backend != v1alpha1.BackendSlice:
		return fmt.Sprintf("it has backend %s, and only shares of backend slice can be", s.Backend)
	case t.Remote != nil:
		return "its program is on another host"
	case slices.ContainsFunc(t.Shares, func(s share) bool { return s.Whole }):
		return "it has a whole GPU, which nobody else gets meanwhile"
	case t.Cooperative:
		return "its user's own agent made it, and its gate is not this agent's: start its command again"
	}
	return ""
}

// unsavable looks at the processes of a tenant, of which the agent does not see some, and says what a checkpoint would lose or
// leave on the GPUs, empty for nothing.
func (a *Agent) unsavable(ctx context.Context, t *tenant) (ids []process.ID, unseen int, why string) {
	a.lookAt(ctx, t)
	ids, unseen = a.processesOn(t)
	if why = a.unsaved(t); why != "" {
		return ids, unseen, why
	}
	if id, ok := a.besideLibrary(ctx, t, ids); ok {
		why = fmt.Sprintf("process %d (%s) uses the GPU without Divvy's library", id.PID, process.Command(id.PID))
	}
	return ids, unseen, why
}

// unsaved is what of a tenant the driver cannot save, as its pages tell.
func (a *Agent) unsaved(t *tenant) string {
	a.mu.Lock()
	of, byDescriptor := a.tenantOf(&t.record), byDescriptor(t.seen)
	a.mu.Unlock()
	told, err := a.gates.read(a, of)
	old := a.driverRelease() < savesIPC
	switch {
	case err != nil:
		return err.Error()
	case told.unsaved&page.UnsavedManaged != 0:
		return "a process of it has managed memory, which the driver cannot save"
	case old && (byDescriptor || told.unsaved&page.UnsavedIPC != 0):
		return fmt.Sprintf("a process of it has memory that others may have, or theirs, which the driver saves from release %d on", savesIPC)
	}
	return ""
}

// driverRelease is the first number of the driver's version, 0 where it is not known.
func (a *Agent) driverRelease() int {
	first, _, _ := strings.Cut(a.config.Driver.Version().Driver, ".")
	release, _ := strconv.Atoi(first) // 0 says it
	return release
}

// besideLibrary finds a process of the tenant that is on its GPUs by the driver's list and not in its pages.
func (a *Agent) besideLibrary(ctx context.Context, t *tenant, known []process.ID) (process.ID, bool) {
	for _, p := range on(a.snapshots(ctx, uuidsOf(t)...)) {
		if slices.Contains(known, p.id) || !p.id.Alive() {
			continue
		}
		if owner, _ := a.member(p.id); owner == t.ID {
			return p.id, true
		}
	}
	return process.ID{}, false
}

// immovable is why the driver would not take a process off its GPUs, empty if it would. The error is [checkpointer.ErrHeld].
func (a *Agent) immovable(ctx context.Context, t *tenant, id process.ID) (why string, err error) {
	name := fmt.Sprintf("process %d (%s)", id.PID, process.Command(id.PID))
	if owner := process.Owner(id.PID); os.Geteuid() != 0 && owner != os.Geteuid() {
		return fmt.Sprintf("%s is %s's, and this agent may only touch those of %s", name, process.UserName(owner), process.UserName(os.Geteuid())), nil
	}
	if process.Stopped(id.PID) {
		return name + " is stopped, and answers nobody", nil
	}
	state, err := a.config.Checkpointer.State(ctx, id.PID)
	a.mu.Lock()
	ours := t.removed(id) >= 0 || t.Suspended != nil
	a.mu.Unlock()
	switch {
	case !id.Alive():
		return "", nil
	case errors.Is(err, checkpointer.ErrHeld):
		return "", err
	case err != nil:
		return err.Error(), nil //nolint:nilerr // it is why
	case state == suspension.Failed:
		return fmt.Sprintf("the driver lost %s, whose calls wait for ever: %s", name, endLost(id.PID)), nil
	case (state == suspension.Locked || state == suspension.Saved) && !ours:
		return fmt.Sprintf("somebody else has taken %s off its GPUs", name), nil
	}
	return "", nil
}
