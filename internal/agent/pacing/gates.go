package pacing

import (
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

const (
	// sampleMost is the longest time that one of the driver's samples covers.
	sampleMost = time.Second
	// trespassLeast is the part of a sample that somebody has to be busy whose programs may not use the GPU. None of them is
	// busy at all; the driver rounds.
	trespassLeast = 0.05
)

// closed is since when nothing of a tenant may run on its GPUs, 0 while something may.
func (p *Pacer) closed(tenant string) uint64 {
	if p.config.Closed == nil || tenant == "" {
		return 0
	}
	return p.config.Closed(tenant)
}

// guards reports whether some share of a GPU may not use it now, so that the driver is asked at each round.
func (p *Pacer) guards(uuid string) bool {
	if p.config.Closed == nil {
		return false
	}
	return slices.ContainsFunc(p.sharers(uuid), func(tenant string) bool { return p.closed(tenant) != 0 })
}

// sharers are the tenants that have a share of a GPU.
func (l *loop) sharers(uuid string) (tenants []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gpus[uuid]; g != nil {
		for _, s := range g.shares {
			tenants = append(tenants, s.tenant.id)
		}
	}
	return tenants
}

// trespass notes which tenants used a GPU in samples of which none covers a time before the moment from, although nothing of
// theirs may run there: their work goes past the library. Who may run again, or is idle, is absolved.
func (p *Pacer) trespass(uuid string, from uint64, busy map[string]float64) {
	if p.config.Closed == nil {
		return
	}
	found := map[string]bool{}
	for tenant, part := range busy { // not under the lock: whoever knows of gates has one of their own
		since := p.closed(tenant)
		found[tenant] = part > trespassLeast && since != 0 && since <= from
	}
	p.judge(uuid, found)
}

// judge notes which tenants use a GPU without a turn.
func (l *loop) judge(uuid string, found map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gpus[uuid]; g != nil {
		for _, s := range g.shares {
			s.misuse.trespass = found[s.tenant.id]
		}
	}
}

// begin is when the first of the samples after since began, at the earliest.
func begin(samples []nvml.Utilisation, since time.Time) (at time.Time) {
	for _, s := range samples {
		if s.At.After(since) && (at.IsZero() || s.At.Before(at)) {
			at = s.At
		}
	}
	if at = at.Add(-sampleMost); at.Before(since) {
		return since
	}
	return at
}
