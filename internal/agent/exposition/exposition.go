// Package exposition tells Prometheus of an agent's GPUs, MIG instances and shares, in Prometheus' text format.
//
// All of it is read from the agent's listing at each scrape, so the series of a tenant end with it. There are as many
// series as shares: no label's value can be changed by a running program, and what a user chose is escaped and cut. A
// share's policy, class, backend and layer are labels of divvy_share_info alone, so that a change of them ends no other
// series.
package exposition

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
)

// ContentType is that of what [Exposition.Write] writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Source is the agent of which is told.
type Source interface {
	// Recent may be a second old: it is to cost little.
	Recent(ctx context.Context) (*control.Listing, error)
}

// Config is what [New] works with.
type Config struct {
	Source Source
	// Node is the machine's name, or the node's in its cluster.
	Node string
	// Faults returns by UUID why GPUs are faulty; nil means that none is.
	Faults func() map[string]string
	// XIDs returns by UUID which errors the driver reported; nil means that nobody knows.
	XIDs func() map[string]health.XIDs
	// DCGM has GPUs told of under the names of DCGM's exporter too, while Exporter, if not nil, does not say that it runs on
	// the node itself.
	DCGM     bool
	Exporter func() bool
	// Failed, if not nil, is told each time that the agent could not list.
	Failed func()
	// Fresh is how long one listing serves all scrapes; 0 makes one for each scrape.
	Fresh time.Duration
	// Version is the version of Divvy.
	Version string
	Log     *slog.Logger
}

// Exposition writes what is told. It may be used by several goroutines.
type Exposition struct {
	config Config
	node   string // the node's label, rendered
	other  exporter
	// size is that of the last answer, in bytes.
	size atomic.Int64

	mu   sync.Mutex
	last *control.Listing
	at   time.Time
}

// New makes an Exposition.
func New(c Config) *Exposition {
	return &Exposition{config: c, node: labels("node", c.Node), other: exporter{runs: c.Exporter}}
}

// listTimeout bounds a listing, which takes some milliseconds.
const listTimeout = 5 * time.Second

// Write asks the agent and writes all metrics. The error is the writer's: an agent that cannot list is told of by
// divvy_agent_listing_success.
func (e *Exposition) Write(ctx context.Context, out io.Writer) error {
	p := &page{text: make([]byte, 0, e.size.Load()+e.size.Load()/8)}
	e.write(ctx, p)
	e.size.Store(int64(len(p.text)))
	_, err := out.Write(p.text)
	return err
}

func (e *Exposition) write(ctx context.Context, p *page) {
	p.family("divvy_build_info", gauge, "Version of Divvy and of Go; always 1.")
	p.sample(labels("version", e.config.Version, "goversion", runtime.Version()), 1)
	success := family{"divvy_agent_listing_success", gauge, "1 if the agent's last listing succeeded; 0 if the metrics of GPUs and tenants are missing from this scrape."}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := e.list(ctx)
	if err != nil {
		if e.config.Failed != nil {
			e.config.Failed()
		}
		e.config.Log.WarnContext(ctx, "cannot list for metrics", "error", err)
		p.one(success, e.node, 0)
		return
	}
	p.one(success, e.node, 1)
	held := 0
	for i := range listed.Tenants {
		if listed.Tenants[i].Claim != "" {
			held++
		}
	}
	p.one(family{"divvy_agent_prepared_claims", gauge, "ResourceClaims that are prepared on this node."}, e.node, float64(held))
	p.one(family{"divvy_agent_tenants", gauge, "Tenants: prepared claims and commands under `divvy run`."}, e.node, float64(len(listed.Tenants)))
	p.one(family{"divvy_agent_waiting_requests", gauge, "Requests of `divvy run --wait` that wait for room."}, e.node, float64(len(listed.Waiting)))
	if m := listed.SwapMemory; m != nil {
		p.one(family{"divvy_agent_swap_memory_bytes", gauge, "Host memory that swap shares and suspended shares may have together; absent where the agent gives them none."}, e.node, float64(m.Allowed))
		p.one(family{"divvy_agent_swap_memory_granted_bytes", gauge, "The part of it that they are granted."}, e.node, float64(m.Granted))
	}
	var faults map[string]string
	if e.config.Faults != nil {
		faults = e.config.Faults()
	}
	writeGPUs(p, e.node, listed, faults)
	var xids map[string]health.XIDs
	if e.config.XIDs != nil {
		xids = e.config.XIDs()
	}
	writeXIDs(p, e.node, listed, xids)
	writeInstances(p, e.node, listed)
	writeShares(p, e.node, listed)
	if e.config.DCGM && !e.other.present() {
		writeDCGM(p, e.config.Node, listed, xids)
	}
}

// list asks the agent unless it was asked just now: a listing looks at every tenant, and
// anybody who reaches the port may scrape as often as they like.
func (e *Exposition) list(ctx context.Context) (*control.Listing, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil && time.Since(e.at) < e.config.Fresh {
		return e.last, nil
	}
	listed, err := e.config.Source.Recent(ctx)
	if err != nil {
		return nil, err
	}
	e.last, e.at = listed, time.Now()
	return listed, nil
}

// gpuLabels name a GPU, as DCGM's exporter does.
func gpuLabels(node, uuid string, index int) string {
	return node + "," + labels("gpu", strconv.Itoa(index), "UUID", uuid)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
