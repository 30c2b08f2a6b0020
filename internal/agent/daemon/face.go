package daemon

import (
	"context"
	"log/slog"
	"sync"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/web"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Face serves another client beside the agent's own socket, as the kubelet, until ctx
// is done. An error ends the agent.
type Face func(ctx context.Context, n Node) error

// Node is what a face works with.
type Node struct {
	Agent   *agent.Agent
	Health  *health.Monitor
	Library Library
	// Pages are to be served beside metrics.
	Pages *web.Pages
	// Rules are the agent's configuration, nil without one.
	Rules *agentconfig.Config
	// SwapMemory is how much host memory swapped and suspended shares may have together, in bytes.
	SwapMemory uint64
	// Dir is the agent's run directory.
	Dir string
	// Cover installs the program that limits containers where the host finds it, and returns its path.
	Cover func() (string, error)
	// Tree is the installation.
	Tree install.Tree
	// Apart has a process live on when the agent's container ends.
	Apart func(process.ID) error
	// Facts reads the host whose devices virtual machines get, nil for an agent that gives none.
	Facts func() (*facts.Host, error)
	// Step is [Options.Step].
	Step func(name string)
	Log  *slog.Logger
}

// Library is what a face asks of the driver's library.
type Library interface {
	hostfile.Driver
	Version() nvml.Version
	Architecture(gpu int) string
	Brand(gpu int) string
	Capability(gpu int) string
	MIGCapable(gpu int) bool
}

// facts looks at the host whose devices virtual machines get, again and again; nil for none.
func (s *service) facts() func() (*facts.Host, error) {
	if s.machines == nil {
		return nil
	}
	return s.machines.look
}

// serveOthers watches the GPUs' health and serves the face, if there is one, until
// ctx is done. When the face ends it calls end. The function that it returns waits for
// both and returns the face's error.
func (s *service) serveOthers(ctx context.Context, end func()) (wait func() error) {
	var running sync.WaitGroup
	var fault error
	running.Go(func() { s.health.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-s.noteFaults():
			case <-ctx.Done():
				return
			}
		}
	})
	if s.metrics != nil || s.taken != "" {
		running.Go(func() { s.serveMetrics(ctx) })
	}
	if s.options.Face != nil {
		running.Go(func() {
			defer end()
			fault = s.options.Face(ctx, Node{
				Agent: s.agent, Health: s.health, Library: s.library, Pages: s.pages, Rules: s.rules, SwapMemory: s.swapMemory(), Dir: s.options.Endpoint.Dir(), Step: s.options.Step, Log: s.options.Log,
				Cover: func() (string, error) { return slice.InstallCover(s.options.Tree, s.tenants) }, Facts: s.facts(), Tree: s.options.Tree, Apart: leaveContainer,
			})
		})
	}
	return func() error {
		running.Wait()
		return fault
	}
}
