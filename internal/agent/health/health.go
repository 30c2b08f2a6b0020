// Package health watches whether the GPUs of a node can take tenants: it asks the driver about each GPU once a second
// and says which are faulty and why.
package health

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Fault says why a GPU takes no new tenants.
type Fault struct {
	// Reason is a few lower case letters, digits and dashes, such as xid-79.
	Reason string
	// Text is for people.
	Text string
	// Lost says that what runs on the GPU cannot go on.
	Lost bool
}

// Driver is the part of NVML by which the health of GPUs is known.
type Driver interface {
	// Conditions are nvml.Library's, of GPUs in their order.
	Conditions(gpus []int) []nvml.Checkup
	// Answering lists the UUIDs of all GPUs that answer, and counts those that do not.
	Answering() (uuids []string, silent int)
	// Reopen opens the driver's library again: GPUs that were reset or replugged come back by it alone.
	Reopen() error
}

// Config is what a [Monitor] works with.
type Config struct {
	Driver Driver
	GPUs   []backend.GPU
	// Away reports whether a GPU has left the driver for a virtual machine: it is not asked about, and that is no fault. Nil
	// is never.
	Away func(uuid string) bool
	// Interval is the time between looks; 0 is a second.
	Interval time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// Monitor watches the GPUs. It holds mu during no call of the driver.
type Monitor struct {
	config  Config
	looking sync.Mutex // orders looks, and guards watched and what follows
	watched []*watched
	indexes []int // of watched
	// away counts the looks since a GPU went away or the library was opened again, which happens when it reaches pause.
	away, pause int
	// counted is the number of looks since all GPUs were counted; absent is the number of GPUs that did not answer
	// when the agent started and do not answer now.
	counted, absent int

	mu      sync.Mutex
	faults  map[string]Fault
	xids    map[string]XIDs
	changed chan struct{}
	found   chan struct{}
	isFound bool
}

// While a GPU is away, the library is opened again after firstReopen looks, then after twice as many each time, up to
// lastReopen. Opening takes a second or more, and other calls of the driver wait for it.
const (
	firstReopen = 30
	lastReopen  = 600
)

// countEvery is the number of looks between two counts of all GPUs, by which GPUs are found that were lost when the agent
// started.
const countEvery = 60

// New returns a Monitor that considers all GPUs healthy until its first look.
func New(c Config) *Monitor {
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Monitor{config: c, pause: firstReopen, changed: make(chan struct{}), found: make(chan struct{}), faults: map[string]Fault{}}
	for _, gpu := range c.GPUs {
		m.watched, m.indexes = append(m.watched, &watched{gpu: gpu}), append(m.indexes, gpu.Index)
	}
	return m
}

// Run looks at the GPUs until ctx is done.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		m.Look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Faults returns the GPUs that are not healthy, by UUID, and a channel that is closed when that changes.
func (m *Monitor) Faults() (faults map[string]Fault, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.faults), m.changed
}

// Reasons returns by UUID why GPUs are not healthy, for programs.
func (m *Monitor) Reasons() map[string]string {
	faults, _ := m.Faults()
	reasons := make(map[string]string, len(faults))
	for uuid, fault := range faults {
		reasons[uuid] = fault.Reason
	}
	return reasons
}

// XIDs are the errors that the driver reported of a GPU since the agent started, also those that indicate no fault of it.
type XIDs struct {
	// Count is how often each was reported, and Last the latest.
	Count map[uint64]uint64
	Last  uint64
}

// XIDs returns them by UUID. Nobody may change what it returns.
func (m *Monitor) XIDs() map[string]XIDs {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.xids
}

// Found returns a channel that is closed when a GPU answers that was absent or lost when the agent started. The agent
// must be restarted to serve it.
func (m *Monitor) Found() <-chan struct{} { return m.found }

// Look asks the driver about every GPU once.
func (m *Monitor) Look(ctx context.Context) {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.reopen(ctx)
	m.count(ctx)
	faults := map[string]Fault{}
	away := m.absent > 0
	watched, indexes := m.present()
	for i, found := range m.config.Driver.Conditions(indexes) {
		p, condition, err := watched[i], found.Condition, found.Err
		away = away || err != nil && !errors.Is(err, nvml.ErrSilent) // whoever asks it finds the GPU anew by itself
		before := p.fault
		p.look(m.config.Now(), condition, err)
		m.tell(ctx, p, before)
		if p.fault != nil {
			faults[p.gpu.UUID] = *p.fault
		}
	}
	if away {
		m.away++
	} else {
		m.away, m.pause = 0, firstReopen
	}
	xids := map[string]XIDs{}
	for _, p := range m.watched {
		if len(p.xids) > 0 {
			xids[p.gpu.UUID] = XIDs{Count: maps.Clone(p.xids), Last: p.lastXID}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.xids = xids
	if !maps.Equal(faults, m.faults) {
		m.faults = faults
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// present are the GPUs that are not away, with their indexes. Those that are have no fault, and begin anew when they are back.
func (m *Monitor) present() (all []*watched, indexes []int) {
	for i, p := range m.watched {
		if m.isAway(p) {
			m.watched[i] = &watched{gpu: p.gpu, xids: p.xids, lastXID: p.lastXID}
			continue
		}
		all, indexes = append(all, p), append(indexes, m.indexes[i])
	}
	return all, indexes
}

func (m *Monitor) isAway(p *watched) bool { return m.config.Away != nil && m.config.Away(p.gpu.UUID) }

// reopen opens the library again while GPUs are away, less often the longer that does not help.
func (m *Monitor) reopen(ctx context.Context) {
	if m.away < m.pause {
		return
	}
	m.away, m.pause = 0, min(2*m.pause, lastReopen)
	if err := m.config.Driver.Reopen(); err != nil {
		m.config.Log.WarnContext(ctx, "cannot open the driver's library again for GPUs that went away", "error", err)
	}
}

// count finds GPUs that answer and are not watched, and counts those that do not answer.
func (m *Monitor) count(ctx context.Context) {
	if m.counted++; m.counted < countEvery {
		return
	}
	m.counted = 0
	answering, silent := m.config.Driver.Answering()
	ill := 0
	for _, p := range m.watched {
		if (p.fault != nil || m.isAway(p)) && !slices.Contains(answering, p.gpu.UUID) {
			ill++
		}
	}
	m.absent = max(0, silent-ill)
	for _, uuid := range answering {
		if m.isFound || slices.ContainsFunc(m.watched, func(p *watched) bool { return p.gpu.UUID == uuid }) {
			continue
		}
		m.config.Log.InfoContext(ctx, "a GPU that did not answer when the agent started answers now", "gpu", uuid)
		m.isFound = true
		close(m.found)
	}
}

// tell logs that a GPU became faulty, or healthy again.
func (m *Monitor) tell(ctx context.Context, p *watched, before *Fault) {
	switch {
	case p.fault == before, p.fault != nil && before != nil && *p.fault == *before:
	case p.fault != nil && p.fault.Reason == MIGMode:
		m.config.Log.InfoContext(ctx, "GPU is in MIG mode", "gpu", p.gpu.UUID, "index", p.gpu.Index)
	case p.fault == nil:
		m.config.Log.InfoContext(ctx, "GPU is healthy again", "gpu", p.gpu.UUID, "index", p.gpu.Index, "was", before.Reason)
	default:
		m.config.Log.WarnContext(ctx, "GPU is faulty", "gpu", p.gpu.UUID, "index", p.gpu.Index, "reason", p.fault.Reason, "text", p.fault.Text)
	}
}
