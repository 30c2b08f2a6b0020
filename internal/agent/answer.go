package agent

import (
	"context"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/pacing"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/excess"
	"github.com/divvy-gpu/divvy/internal/process"
)

// answerShare answers what a tenant did on a GPU, and answerOutside that processes of
// listed users are on it without a share: with the signal of the configuration, to
// those of their processes that are on the GPU. The driver's list is read again for
// it, and the kernel is asked whose each process is. A driver that does not answer
// gets nobody signalled. They return the processes that got the signal.
func (a *Agent) answerShare(ctx context.Context, tenant, uuid string) []process.ID {
	if tenant == "" {
		return nil
	}
	return a.answer(ctx, tenant, uuid)
}

func (a *Agent) answerOutside(ctx context.Context, uuid string) []process.ID {
	return a.answer(ctx, "", uuid)
}

// answer is answerShare, and answerOutside where tenant is empty.
func (a *Agent) answer(ctx context.Context, tenant, uuid string) (signalled []process.ID) {
	signal, ok := signals[a.config.Misuse]
	i := slices.IndexFunc(a.gpus, func(g backend.GPU) bool { return g.UUID == uuid })
	if !ok || i < 0 {
		return nil
	}
	listed, err := a.config.Driver.Processes(a.gpus[i].Index)
	if err != nil {
		return nil // the next round asks again
	}
	agent := append([]int{os.Getpid()}, process.Ancestors(os.Getpid())...)
	for _, p := range listed {
		id, err := process.Find(p.PID)
		if err != nil || !a.candidate(id, agent).MayBeSignalled(tenant) {
			continue
		}
		if err := id.Signal(signal); err == nil {
			signalled = append(signalled, id)
		} else if id.Alive() {
			a.config.Log.WarnContext(ctx, "cannot signal a process", "pid", id.PID, "tenant", tenant, "error", err)
		}
	}
	return signalled
}

// signals are those of the answers that do more than report.
var signals = map[pacing.Misuse]syscall.Signal{pacing.MisuseStop: unix.SIGSTOP, pacing.MisuseKill: unix.SIGKILL}

// candidate is a process as the decision about signals wants it; agent are the pids of
// the agent and its ancestors.
func (a *Agent) candidate(id process.ID, agent []int) excess.Candidate {
	c := excess.Candidate{PID: id.PID, UID: process.Owner(id.PID), Agent: slices.Contains(agent, id.PID), Tenant: a.memberOf(id)}
	c.Listed = a.config.Listed != nil && a.config.Listed(c.UID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[c.Tenant]; t != nil {
		c.TenantUID, c.Contained = t.UID, t.isTenancy()
	}
	return c
}
