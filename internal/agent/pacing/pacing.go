// Package pacing divides GPU time: it runs the arbiter, writes what the arbiter
// decides into tenants' budgets, compares what tenants tell with what the driver
// tells, and answers misuse. The law itself is package arbiter.
package pacing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Driver is the part of NVML that the watch asks.
type Driver interface {
	// Utilisations has what it tells of who kept GPUs busy, each since a moment of its own, in their order.
	Utilisations(gpus []int, since []time.Time) []nvml.Load
	// Activities has the same of the GPUs as a whole.
	Activities(gpus []int, since []time.Time) []nvml.Activity
	// Holdings has who is on GPUs, in their order.
	Holdings(gpus []int) []nvml.Holding
}

// Ledger is what pacing asks of whoever keeps the tenants, and tells it.
type Ledger interface {
	// Owner is the id of the tenant to which a process belongs, "" if none.
	Owner(pid int) string
	// Name is what users call a tenant; ok is false when it has ended.
	Name(tenant string) (name, user string, ok bool)
	// Answer does to a tenant's processes on a GPU what the configuration says.
	Answer(ctx context.Context, tenant, uuid string)
	// Tell shows an event to people.
	Tell(e control.Event)
}

// Source is a backend whose tenants' GPU time can be divided.
type Source interface {
	OpenTime(t backend.Tenant) (*tenantdir.Time, error)
}

// Member is a tenant whose GPU time is divided, and the backend that opens it.
type Member struct {
	backend.Tenant
	Source Source
}

// Config is what a [Pacer] works with.
type Config struct {
	GPUs   []backend.GPU
	Driver Driver
	Ledger Ledger
	Misuse agentconfig.Outside // what is done about misuse of GPU time; empty means report
	// Closed is since when nothing of a tenant may run on its GPUs, in ns of CLOCK_MONOTONIC; 0 while something may. It may
	// be nil.
	Closed func(tenant string) (since uint64)
	Log    *slog.Logger
}

// Pacer divides the GPU time of one machine.
type Pacer struct {
	*loop
	config Config

	mu sync.Mutex // held for a moment, alone
	// unwatched says by GPU index why its time is not watched.
	unwatched map[int]string
}

// New knows no tenants before Publish.
func New(c Config) (*Pacer, error) {
	l, err := newLoop(c.Log)
	if err != nil {
		return nil, err
	}
	if c.Misuse == "" {
		c.Misuse = agentconfig.OutsideReport
	}
	return &Pacer{loop: l, config: c, unwatched: map[int]string{}}, nil
}

// Run divides and watches until ctx is done.
func (p *Pacer) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	running.Go(func() { p.watch(ctx) })
	running.Wait()
}

// Unwatched says why the time of a GPU is not watched, "" while it is.
func (p *Pacer) Unwatched(gpu int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unwatched[gpu]
}
