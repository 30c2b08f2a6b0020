package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
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
	return a.countSignals(tenant, uuid, a.answer(ctx, tenant, a.present(ctx, uuid)))
}

func (a *Agent) answerOutside(ctx context.Context, uuid string) []process.ID {
	return a.answer(ctx, "", slices.DeleteFunc(a.present(ctx, uuid), a.onAnothers))
}

// answerExcess is answerShare for a tenant whose processes have more than a number of
// bytes, if they still do.
func (a *Agent) answerExcess(ctx context.Context, tenant, uuid string, bytes uint64) []process.ID {
	present := slices.DeleteFunc(a.present(ctx, uuid), func(p onGPU) bool {
		owner, known := a.member(p.id)
		return !p.id.Alive() || !known || owner != tenant
	})
	if sum := sumOf(present); tenant == "" || sum == nil || *sum <= bytes {
		return nil
	}
	return a.countSignals(tenant, uuid, a.answer(ctx, tenant, present))
}

// countSignals adds signalled processes to the count of a tenant's share.
func (a *Agent) countSignals(tenant, uuid string, signalled []process.ID) []process.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[tenant]; t != nil {
		t.watched(uuid).signalled += uint64(len(signalled))
	}
	return signalled
}

// present reads the driver's list of a GPU again; it is empty if nobody is to be
// signalled.
func (a *Agent) present(ctx context.Context, uuid string) []onGPU {
	if signals[a.config.Misuse] == 0 {
		return nil
	}
	a.mu.Lock()
	w := a.wholes[uuid]
	foreign := w != nil && w.unseen == foreignText
	a.mu.Unlock()
	if foreign {
		return nil
	}
	return on(a.snapshots(ctx, uuid))
}

// answer signals those of the processes present that are a tenant's or, where tenant
// is empty, a listed user's without a share.
func (a *Agent) answer(ctx context.Context, tenant string, present []onGPU) (signalled []process.ID) {
	agent := append([]int{os.Getpid()}, process.Ancestors(os.Getpid())...)
	for _, p := range present {
		err := p.id.SignalIf(signals[a.config.Misuse], func(id process.ID) bool {
			return a.candidate(id, agent).MayBeSignalled(tenant)
		})
		if err == nil {
			signalled = append(signalled, p.id)
		} else if !errors.Is(err, process.ErrForeign) && p.id.Alive() {
			a.config.Log.WarnContext(ctx, "cannot signal a process", "pid", p.id.PID, "tenant", tenant, "error", err)
		}
	}
	return signalled
}

// signals are those of the answers that do more than report.
var signals = map[agentconfig.Outside]syscall.Signal{agentconfig.OutsideStop: unix.SIGSTOP, agentconfig.OutsideKill: unix.SIGKILL}

// candidate is a process as the decision about signals wants it; agent are the pids of
// the agent and its ancestors.
func (a *Agent) candidate(id process.ID, agent []int) excess.Candidate {
	owner, known := a.member(id)
	c := excess.Candidate{PID: id.PID, UID: process.Owner(id.PID), Agent: slices.Contains(agent, id.PID), Tenant: owner}
	if !known {
		c.UID = -1 // nobody is signalled before it is known whose it is
	}
	c.Listed = a.config.Listed != nil && a.config.Listed(c.UID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[c.Tenant]; t != nil {
		c.Own, c.Contained = t.owns(id) || t.UID == 0 && id == t.Holder, t.contained()
	}
	return c
}
