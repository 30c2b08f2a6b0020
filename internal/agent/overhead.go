package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/excess"
	"github.com/divvy-gpu/divvy/internal/page"
)

// measurer is a backend whose tenants' processes take account of what the agent measures.
type measurer interface {
	OpenMeter(t backend.Tenant) (*page.Meter, error)
}

// gauge measures the overhead of one tenant's shares: what its processes have by the
// driver's list, in whatever pid namespace they are, beyond what its pages tell.
// Agent.sweeping guards it.
type gauge struct {
	meter  *page.Meter
	shares []gaugeShare // one for each GPU of the tenant
}

type gaugeShare struct {
	overhead excess.Overhead
	read     time.Time
	// before and after are what the ledger said around the driver's answer, at began by
	// CLOCK_MONOTONIC. As much has been pending since `since`. steady is whether the driver's
	// answer and the ledger belong together.
	before, after page.Balance
	began         uint64
	since         time.Time
	steady        bool
}

// observe asks the driver who uses the GPUs, and the ledgers of measured tenants before and
// after: a figure of the driver's belongs to a ledger that stood still meanwhile, and in
// which no driver call was under way. Calls that have been under way for long count as done,
// because a stopped process would otherwise hide what its share's others take. sweeping is
// held.
func (a *Agent) observe(ctx context.Context, uuids ...string) []snapshot {
	a.answerEased(uuids)
	began := monotonic()
	for id, g := range a.gauges {
		for i := range g.shares {
			s := &g.shares[i]
			var err error
			if s.before, err = g.meter.Balance(i); err != nil {
				a.dropGauge(id)
				break
			}
			s.began = began
		}
	}
	snapshots := a.snapshots(ctx, uuids...)
	for _, g := range a.gauges {
		for i := range g.shares {
			s := &g.shares[i]
			after, err := g.meter.Balance(i)
			if after.Pending != s.after.Pending {
				s.since = time.Now()
			}
			s.after = after
			s.steady = err == nil && after == s.before && (after.Pending == 0 || time.Since(s.since) > excess.Lag)
		}
	}
	return snapshots
}

// measure measures the overhead of the tenants on a GPU, and tells their processes and
// people of it. sweeping is held.
func (a *Agent) measure(ctx context.Context, v *snapshot, tenants []taken) {
	for i := range tenants {
		k := &tenants[i]
		if k.number < 0 {
			continue
		}
		g := a.gauges[k.tenant.ID]
		if g == nil {
			if k.watched.overhead > 0 { // its pages could not be read any more
				a.tellOverhead(ctx, v, k, 0)
			}
			if len(k.processes) > 0 {
				a.addGauge(ctx, k.tenant)
			}
			continue
		}
		s := &g.shares[k.number]
		a.measureShare(ctx, k, g, s)
		a.tellOverhead(ctx, v, k, s.overhead.Bytes())
		if len(k.processes) == 0 && g.rests() {
			a.dropGauge(k.tenant.ID)
		}
	}
}

// measureShare takes one reading of a share.
func (a *Agent) measureShare(ctx context.Context, k *taken, g *gauge, s *gaugeShare) {
	now := time.Now()
	told, known := a.toldBy(k, s)
	switch {
	case !known || k.observed == nil:
		s.overhead.Unknown()
		return
	case !s.steady || now.Sub(s.read) < judgedAgain:
		return
	}
	s.read = now
	settled := s.overhead.Read(now, *k.observed, told, s.after.Operation)
	if !settled && s.overhead.Bytes() == 0 {
		return
	}
	if err := g.meter.SetOverhead(k.number, s.overhead.Bytes(), s.began); err != nil {
		a.config.Log.WarnContext(ctx, "cannot tell a tenant's overhead", "tenant", k.tenant.Name, "error", err)
		a.dropGauge(k.tenant.ID)
	}
}

// toldBy is what the pages told of memory that the share's processes have; known is false
// where some of it is nobody's, or some process may be the tenant's and is not known yet.
func (a *Agent) toldBy(k *taken, s *gaugeShare) (bytes uint64, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, kept := k.tenant, uint64(0)
	if k.number < len(t.seen.Usage) {
		kept = t.seen.Usage[k.number].ByDescriptor
	}
	known = !k.watched.pending && !t.unreaped && t.fault == "" && (kept == 0 || k.freshly)
	told := s.after.Used + s.after.Pending
	return told - min(told, kept), known
}

// tellOverhead shows what was measured of a share, and tells once when it is past its limit
// by overhead alone.
func (a *Agent) tellOverhead(ctx context.Context, v *snapshot, k *taken, bytes uint64) {
	a.mu.Lock()
	u := backend.Usage{}
	if k.number < len(k.tenant.seen.Usage) {
		u = k.tenant.seen.Usage[k.number]
	}
	overhead, used, text := u.Overhead+bytes, u.Used+bytes, ""
	if used > k.granted && used-min(used, overhead) <= k.granted {
		text = fmt.Sprintf("it is %s past its limit by overhead alone: what it allocated fits, but contexts, code and local memory take %s; until that is less it gets no more memory",
			v1alpha1.FormatBytes(used-k.granted), v1alpha1.FormatBytes(overhead))
	}
	news := text != "" && k.watched.past == ""
	k.watched.overhead, k.watched.past = bytes, text
	name := k.tenant.Name
	a.mu.Unlock()
	if news {
		a.config.Log.WarnContext(ctx, "a share is past its limit by overhead alone", "tenant", name, "gpu", v.gpu.UUID, "reason", text)
		a.events.add(control.Event{Kind: control.EventOverhead, Tenant: name, User: k.tenant.User, UUID: v.gpu.UUID, Text: text})
	}
}

// addGauge begins to measure a tenant. What an earlier agent measured goes on to count.
func (a *Agent) addGauge(ctx context.Context, t *tenant) {
	wanted := a.wanted(t)
	source, ok := a.makerOf(wanted).(measurer)
	if !ok {
		return
	}
	meter, err := source.OpenMeter(wanted)
	if err != nil {
		a.config.Log.DebugContext(ctx, "cannot measure a tenant's overhead", "tenant", t.Name, "error", err)
		return
	}
	g := &gauge{meter: meter, shares: make([]gaugeShare, meter.Devices())}
	for i := range g.shares {
		if bytes, err := meter.Overhead(i); err == nil {
			g.shares[i].overhead = excess.NewOverhead(bytes)
		}
	}
	a.gauges[t.ID] = g
}

// rests reports whether there is nothing to tell.
func (g *gauge) rests() bool {
	for i := range g.shares {
		if g.shares[i].overhead.Bytes() > 0 {
			return false
		}
	}
	return true
}

func (a *Agent) dropGauge(id string) {
	if g := a.gauges[id]; g != nil {
		_ = g.meter.Close() // nothing was written that closing could lose
		delete(a.gauges, id)
	}
}

// closeGauges stops measuring. What was told stays told.
func (a *Agent) closeGauges() {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	for id := range a.gauges {
		a.dropGauge(id)
	}
}

// dropGauges stops measuring tenants that have ended. sweeping is held.
func (a *Agent) dropGauges() {
	for id := range a.gauges {
		a.mu.Lock()
		t := a.tenants[id]
		gone := t == nil || t.ended
		a.mu.Unlock()
		if gone {
			a.dropGauge(id)
		}
	}
}

// ease has the GPUs of a tenant of which processes died looked at again soon, if overhead
// was measured there: what the dead had of it is free. Agent.mu is held.
func (a *Agent) ease(t *tenant) {
	for uuid, on := range t.on {
		if on.overhead == 0 || a.eased[uuid] {
			continue
		}
		a.eased[uuid] = true
		select {
		case a.easing <- struct{}{}:
		default:
		}
	}
}

// answerEased notes that the driver is about to be asked about GPUs, or about all.
func (a *Agent) answerEased(uuids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.eased, func(uuid string, _ bool) bool { return len(uuids) == 0 || slices.Contains(uuids, uuid) })
}

// suspectEased has the GPUs looked at again of which something ended.
func (a *Agent) suspectEased() {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uuid := range a.eased {
		a.suspect(uuid)
	}
}

// monotonic is CLOCK_MONOTONIC in ns, by which processes know which of two things was
// first.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // which every kernel has
	return uint64(t.Nano())
}
