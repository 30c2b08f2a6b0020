// Package mps makes shares real by NVIDIA's MPS: the processes of a GPU's shares run side by side, each on at most its
// share's part of the SMs. A control daemon of its own serves each GPU, and clients find it at its pipe directory.
//
// Memory is limited by our libraries as with backend slice, which makes the tenants' directories: MPS would count each
// process alone. Before driver 615 a limit at the daemon holds for all clients of a server, so the daemon has the
// loosest of the shares', and our library tightens it in each program before the driver starts there.
package mps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
)

// ErrUnserved says that a GPU's control daemon serves nobody now.
var ErrUnserved = errors.New("the GPU's MPS control daemon serves nobody now")

// Modes changes modes of GPUs and puts them back, as [modes.Book] does. It may be used from several goroutines.
type Modes interface {
	Set(ctx context.Context, gpu string, mode modes.Mode, value string) error
	PutBack(ctx context.Context, gpu string) ([]modes.Foreign, error)
}

// Maker is the backend whose shares these are but for their part of the SMs.
type Maker interface {
	backend.Backend
	backend.Changer
	backend.Keeper
}

// Options say how daemons are run.
type Options struct {
	// Maker makes the directories of tenants: backend slice.
	Maker Maker
	// Dir has a directory for each GPU's daemon.
	Dir string
	// Program finds nvidia-cuda-mps-control, and what it needs in its environment.
	Program func() (path string, environment []string, err error)
	// Driver is the driver's version, such as 550.163.01.
	Driver func() string
	// Modes sets the GPUs' compute mode; nil leaves it as it is.
	Modes Modes
	// MultiUser reports whether the administrator lets shares of several users be on a GPU.
	MultiUser func(gpu backend.GPU) bool
	// Capability is a GPU's compute capability, such as 8.0, "" where it is unknown; nil knows none.
	Capability func(gpu backend.GPU) string
	// Default is where programs look that are told no pipe directory; empty is [mps.DefaultPipe].
	Default string
	// Apart takes a daemon out of the agent's container; nil where the agent runs in none.
	Apart func(daemon process.ID) error
	Log   *slog.Logger
}

// Backend implements [backend.Backend] and more. What it shares with backend slice, that one does. It is no source of
// GPU time: side by side there are no time slices from which a share's part could be worked out.
type Backend struct {
	backend.Backend
	options Options

	mu      sync.Mutex
	tell    func(backend.Incident)
	members map[string]member
	gpus    map[string]*service // by UUID
}

// member is a tenant with a share.
type member struct {
	gpu string
	// uid is whose processes they are, -1 where that is not known before they run.
	uid    int
	limits mps.Limits
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Changer  = (*Backend)(nil)
	_ backend.Keeper   = (*Backend)(nil)
	_ backend.Former   = (*Backend)(nil)
	_ backend.Chooser  = (*Backend)(nil)
	_ backend.Reporter = (*Backend)(nil)
)

// New returns the backend of a machine. [Backend.Close] must follow.
func New(o Options) *Backend {
	return &Backend{Backend: o.Maker, options: o, tell: func(backend.Incident) {}, members: map[string]member{}, gpus: map[string]*service{}}
}

// Unsuited implements [backend.Chooser].
func (b *Backend) Unsuited(gpu backend.GPU) string {
	if b.options.Capability == nil {
		return ""
	}
	return unsuited(b.options.Capability(gpu))
}

// Report implements [backend.Reporter].
func (b *Backend) Report(tell func(backend.Incident)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell = tell
}

// Own implements [backend.Reporter].
func (b *Backend) Own(id process.ID) bool {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.gpus))
	b.mu.Unlock()
	return slices.ContainsFunc(all, func(s *service) bool { return s.supervisor.Has(id) })
}

// Close ends the supervision. The daemons go on, as tenants do.
func (b *Backend) Close() error {
	b.mu.Lock()
	all := b.gpus
	b.gpus = map[string]*service{}
	b.mu.Unlock()
	for _, s := range all {
		s.leave()
	}
	return nil
}

// pipeInside is where a container finds the pipe directory.
const pipeInside = edits.ShareDir + "/mps"

// dirs is where the daemon of a GPU is.
func (b *Backend) dirs(uuid string) mps.Dirs { return mps.DirsOf(b.options.Dir, uuid) }

// piped is the tenant with the pipe directory that its processes find.
func (b *Backend) piped(t backend.Tenant) (backend.Tenant, error) {
	if len(t.Shares) != 1 {
		return t, fmt.Errorf("%w: %d GPUs with backend mps: a process is the client of one control daemon", backend.ErrTenant, len(t.Shares))
	}
	t.MPSPipe = b.dirs(t.Shares[0].GPU.UUID).Pipe
	if t.Layer == backend.LayerContainer {
		t.MPSPipe = pipeInside
	}
	return t, nil
}

// Plan implements [backend.Backend].
func (b *Backend) Plan(t backend.Tenant) (*backend.Plan, error) {
	t, err := b.piped(t)
	if err != nil {
		return nil, err
	}
	p, err := b.Backend.Plan(t)
	if err != nil {
		return nil, err
	}
	if t.Layer == backend.LayerContainer {
		p.Steps = append(p.Steps, mountPoint{Path: filepath.Join(p.Dir, filepath.Base(pipeInside))})
		p.Edits.Mounts = append(p.Edits.Mounts, edits.Mount{Source: b.dirs(t.Shares[0].GPU.UUID).Pipe, Target: pipeInside, Options: edits.ReadOnly})
	}
	m := memberOf(t)
	p.Steps = append(p.Steps, join{Tenant: t.ID, GPU: m.gpu, Percentage: m.limits.Percentage, Memory: m.limits.Memory, member: m, backend: b})
	return p, nil
}

// memberOf is what the daemon has to know of a tenant.
func memberOf(t backend.Tenant) member {
	s := t.Shares[0]
	m := member{gpu: s.GPU.UUID, uid: t.UID, limits: mps.Limits{Percentage: float64(s.Cores), Memory: s.Limit}}
	if s.ProcessLimit > 0 {
		// The daemon's limit is that of each process, which our library tightens to the share's and never loosens.
		m.limits.Memory = min(m.limits.Memory, s.ProcessLimit)
	}
	if s.Cores == 0 {
		m.limits.Percentage = v1alpha1.MaxCores
	}
	if t.Layer == backend.LayerContainer {
		m.uid = -1
	}
	return m
}

// Change implements [backend.Changer]. Programs that run keep their ceiling of SMs: the driver reads it as they start.
func (b *Backend) Change(ctx context.Context, t backend.Tenant) error {
	t, err := b.piped(t)
	if err != nil {
		return err
	}
	joined := b.join(ctx, t.ID, memberOf(t), false)
	return errors.Join(b.options.Maker.Change(ctx, t), joined)
}

// Keep implements [backend.Keeper].
func (b *Backend) Keep(t backend.Tenant) error { return b.options.Maker.Keep(t) }

// Extends implements [backend.Extension].
func (b *Backend) Extends() backend.Backend { return b.options.Maker }

// Undo implements [backend.Backend].
func (b *Backend) Undo(ctx context.Context, t backend.Tenant) error {
	err := b.Backend.Undo(ctx, t)
	b.part(ctx, t.ID)
	return err
}

// namespaces is the driver's first version whose daemon can keep limits for each tenant.
const namespaces = 615

// major is the first number of a driver's version, 0 for none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}
