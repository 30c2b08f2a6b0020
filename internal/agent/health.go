package agent

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

// GPUFault says why a GPU takes no new tenants.
type GPUFault struct {
	// Reason is a few lower case letters, digits and dashes, such as xid-79.
	Reason string
	// Text is for people.
	Text string
	// Lost says that what runs on the GPU cannot go on.
	Lost bool
}

// HealthDriver is the part of NVML by which the health of GPUs is known.
type HealthDriver interface {
	// Condition is nvml.Library's.
	Condition(gpu int) (nvml.Condition, error)
	// Answering lists the UUIDs of all GPUs that answer, and counts those that do not.
	Answering() (uuids []string, silent int)
	// Reopen is how GPUs come back that were reset or replugged.
	Reopen() error
}

// HealthConfig is what a [Health] works with.
type HealthConfig struct {
	Driver HealthDriver
	GPUs   []backend.GPU
	// Interval is the time between looks; 0 is a second.
	Interval time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// Health watches the GPUs. Its lock is held for no call of the driver.
type Health struct {
	config   HealthConfig
	looking  sync.Mutex // orders looks, and guards patients and what follows
	patients []*patient
	// away counts the looks since a GPU went away, pause how many there are between two openings of the library.
	away, pause int
	// counted counts the looks since all GPUs were counted, absent those that are there and were not known at the
	// beginning, nor answer yet.
	counted, absent int

	mu      sync.Mutex
	faults  map[string]GPUFault
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

// NewHealth takes all GPUs for healthy until the first look.
func NewHealth(c HealthConfig) *Health {
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	h := &Health{config: c, pause: firstReopen, changed: make(chan struct{}), found: make(chan struct{}), faults: map[string]GPUFault{}}
	for _, gpu := range c.GPUs {
		h.patients = append(h.patients, &patient{gpu: gpu})
	}
	return h
}

// Run looks at the GPUs until ctx is done.
func (h *Health) Run(ctx context.Context) {
	ticker := time.NewTicker(h.config.Interval)
	defer ticker.Stop()
	for {
		h.Look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Faults returns the GPUs that are not healthy, by UUID, and a channel that is closed when that changes.
func (h *Health) Faults() (faults map[string]GPUFault, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.faults), h.changed
}

// Found returns a channel that is closed when a GPU answers that was not there, or lost, when the agent began: only an
// agent that starts anew can serve it.
func (h *Health) Found() <-chan struct{} { return h.found }

// Look asks the driver about every GPU once.
func (h *Health) Look(ctx context.Context) {
	h.looking.Lock()
	defer h.looking.Unlock()
	h.reopen(ctx)
	h.count(ctx)
	faults := map[string]GPUFault{}
	away := h.absent > 0
	for _, p := range h.patients {
		condition, err := h.config.Driver.Condition(p.gpu.Index)
		away = away || err != nil
		before := p.fault
		p.look(h.config.Now(), condition, err)
		h.tell(ctx, p, before)
		if p.fault != nil {
			faults[p.gpu.UUID] = *p.fault
		}
	}
	if away {
		h.away++
	} else {
		h.away, h.pause = 0, firstReopen
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !maps.Equal(faults, h.faults) {
		h.faults = faults
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// reopen gives GPUs that went away a way back, the more seldom the longer it does not help.
func (h *Health) reopen(ctx context.Context) {
	if h.away < h.pause {
		return
	}
	h.away, h.pause = 0, min(2*h.pause, lastReopen)
	if err := h.config.Driver.Reopen(); err != nil {
		h.config.Log.WarnContext(ctx, "cannot open the driver's library again for GPUs that went away", "error", err)
	}
}

// count looks for GPUs that nobody watches.
func (h *Health) count(ctx context.Context) {
	if h.counted++; h.counted < countEvery {
		return
	}
	h.counted = 0
	answering, silent := h.config.Driver.Answering()
	ill := 0
	for _, p := range h.patients {
		if p.fault != nil && !slices.Contains(answering, p.gpu.UUID) {
			ill++
		}
	}
	h.absent = max(0, silent-ill)
	for _, uuid := range answering {
		if h.isFound || slices.ContainsFunc(h.patients, func(p *patient) bool { return p.gpu.UUID == uuid }) {
			continue
		}
		h.config.Log.InfoContext(ctx, "a GPU answers that did not when the agent started", "gpu", uuid)
		h.isFound = true
		close(h.found)
	}
}

func (h *Health) tell(ctx context.Context, p *patient, before *GPUFault) {
	switch {
	case p.fault == before, p.fault != nil && before != nil && *p.fault == *before:
	case p.fault == nil:
		h.config.Log.InfoContext(ctx, "GPU is healthy again", "gpu", p.gpu.UUID, "index", p.gpu.Index, "was", before.Reason)
	default:
		h.config.Log.WarnContext(ctx, "GPU is not healthy", "gpu", p.gpu.UUID, "index", p.gpu.Index, "reason", p.fault.Reason, "text", p.fault.Text)
	}
}
