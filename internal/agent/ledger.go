package agent

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/pacing"
)

// ledger is what the pacer knows of the agent.
type ledger struct{ agent *Agent }

// Owner implements [pacing.Ledger].
func (l ledger) Owner(pid int) string { return l.agent.ownerOf(pid) }

// Name implements [pacing.Ledger].
func (l ledger) Name(tenant string) (name, user string, ok bool) {
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	t := l.agent.tenants[tenant]
	if t == nil {
		return "", "", false
	}
	return t.Name, t.User, true // which a tenancy that is prepared again may change
}

// Answer implements [pacing.Ledger].
func (l ledger) Answer(ctx context.Context, tenant, uuid string) {
	if parent, _, ok := l.agent.parentOf(uuid); ok {
		uuid = parent.UUID
	}
	l.agent.answerShare(ctx, tenant, uuid)
}

// Tell implements [pacing.Ledger].
func (l ledger) Tell(e control.Event) { l.agent.events.add(e) }

// publish tells who has shares now. Tenants of a backend whose GPU time cannot be divided are none of the pacer's business.
// Agent.mu is held.
func (a *Agent) publish() {
	members := make([]pacing.Member, 0, len(a.tenants))
	for _, t := range a.sorted() {
		if !t.ready || t.ended {
			continue
		}
		wanted := a.tenantOf(&t.record)
		if source, ok := a.makerOf(wanted).(pacing.Source); ok {
			members = append(members, pacing.Member{Tenant: wanted, Source: source})
		}
	}
	a.pacer.Publish(members)
	a.publishTurns()
}

// stir tells that a tenant that did nothing for a while does something.
func (a *Agent) stir(tenant string) {
	a.pacer.Stir(tenant)
	a.turns.Stir()
}
