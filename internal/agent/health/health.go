// Package health watches whether the GPUs of a node can take tenants: it asks the driver about each GPU once a second
// and says which are faulty and why.
package health

import (
	"context"
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
	// Condition is nvml.Library's.
	Condition(gpu int) (nvml.Condition, error)
	// Answering lists the UUIDs of all GPUs that answer, and counts those that do not.
	Answering() (uuids []string, silent int)
	// Reopen is how GPUs come back that were reset or replugged.
	Reopen() error
}

// Config is what a [Monitor] works with.
type Config struct {
	Driver Driver
	GPUs   []backend.GPU
	// Interval is the time between looks; 0 is a second.
	Interval time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// Monitor watches the GPUs. Its lock is held for no call of the driver.
type Monitor struct {
	config   Config
	looking  sync.Mutex // orders looks, and guards patients and what follows
	patients []*patient
	// away counts the looks since a GPU went away, pause how many there are between two openings of the library.
	away, pause int
	// counted counts the looks since all GPUs were counted, absent those that are there and were not known at the
	// beginning, nor answer yet.
	counted, absent int

	mu      sync.Mutex
	faults  map[string]Fault
	changed chan struct{}
	found   chan struct{}
	isFound bool
}

// The library is opened anew for GPUs that went away after this many looks, at first, and at last: it takes a second or
// more, in which nobody else is answered.
const (
	firstReopen = 30
	lastReopen  = 600
)

// countEvery is after how many looks all GPUs are counted, for those that were lost when the agent started.
const countEvery = 60

// New takes all GPUs for healthy until the first look.
func New(c Config) *Monitor {
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Monitor{config: c, pause: firstReopen, changed: make(chan struct{}), found: make(chan struct{}), faults: map[string]Fault{}}
	for _, gpu := range c.GPUs {
		m.patients = append(m.patients, &patient{gpu: gpu})
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

// Found returns a channel that is closed when a GPU answers that was not there, or lost, when the agent began: only an
// agent that starts anew can serve it.
func (m *Monitor) Found() <-chan struct{} { return m.found }

// Look asks the driver about every GPU once.
func (m *Monitor) Look(ctx context.Context) {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.reopen(ctx)
	m.count(ctx)
	faults := map[string]Fault{}
	away := m.absent > 0
	for _, p := range m.patients {
		condition, err := m.config.Driver.Condition(p.gpu.Index)
		away = away || err != nil
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(faults, m.faults) {
		m.faults = faults
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// reopen gives GPUs that went away a way back, the more seldom the longer it does not help.
func (m *Monitor) reopen(ctx context.Context) {
	if m.away < m.pause {
		return
	}
	m.away, m.pause = 0, min(2*m.pause, lastReopen)
	if err := m.config.Driver.Reopen(); err != nil {
		m.config.Log.WarnContext(ctx, "cannot open the driver's library again for GPUs that went away", "error", err)
	}
}

// count looks for GPUs that nobody watches.
func (m *Monitor) count(ctx context.Context) {
	if m.counted++; m.counted < countEvery {
		return
	}
	m.counted = 0
	answering, silent := m.config.Driver.Answering()
	ill := 0
	for _, p := range m.patients {
		if p.fault != nil && !slices.Contains(answering, p.gpu.UUID) {
			ill++
		}
	}
	m.absent = max(0, silent-ill)
	for _, uuid := range answering {
		if m.isFound || slices.ContainsFunc(m.patients, func(p *patient) bool { return p.gpu.UUID == uuid }) {
			continue
		}
		m.config.Log.InfoContext(ctx, "a GPU answers that did not when the agent started", "gpu", uuid)
		m.isFound = true
		close(m.found)
	}
}

func (m *Monitor) tell(ctx context.Context, p *patient, before *Fault) {
	switch {
	case p.fault == before, p.fault != nil && before != nil && *p.fault == *before:
	case p.fault == nil:
		m.config.Log.InfoContext(ctx, "GPU is healthy again", "gpu", p.gpu.UUID, "index", p.gpu.Index, "was", before.Reason)
	default:
		m.config.Log.WarnContext(ctx, "GPU is not healthy", "gpu", p.gpu.UUID, "index", p.gpu.Index, "reason", p.fault.Reason, "text", p.fault.Text)
	}
}
