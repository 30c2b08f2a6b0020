package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// metricsAddress is where metrics are answered, "" for nowhere. The options override the configuration. The agent that
// serves every user from the usual run directory answers at [exposition.DefaultAddress] without being told to.
func (o Options) metricsAddress(rules *agentconfig.Config) (address string, asked bool) {
	address = cmp.Or(o.MetricsAddress, rules.Metrics().Address)
	switch {
	case o.Face != nil || address == agentconfig.NoMetrics:
		return "", false
	case address != "":
		return address, true
	case o.shared() && o.Endpoint.Rundir == rundir.System:
		return exposition.DefaultAddress, false
	}
	return "", false
}

// exporterName is what the kernel calls a process of DCGM's exporter.
const exporterName = "dcgm-exporter"

// ExporterRuns reports whether DCGM's exporter runs on this machine, as far as the agent sees its processes.
func ExporterRuns() bool { return process.Named(exporterName) }

// takenAgain is how often an address that is taken is tried again.
const takenAgain = 3 * time.Second

// openMetrics listens for scrapes. A port that is taken can be anybody's: the agent serves without it, and tries again.
// Another fault of an address that somebody asked for is an error.
func (s *service) openMetrics(ctx context.Context) error {
	address, asked := s.options.metricsAddress(s.rules)
	if address == "" {
		return nil
	}
	listener, err := exposition.Listen(ctx, address)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		s.options.Log.WarnContext(ctx, "metrics are not served until the address is free", "error", err)
		s.taken = address
		return nil
	case err != nil && asked:
		return err
	case err != nil:
		s.options.Log.WarnContext(ctx, "metrics are not served", "error", err)
		return nil
	}
	s.metrics = listener
	s.closers = append(s.closers, func() error {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // who served it has closed it
			return fmt.Errorf("stop serving metrics: %w", err)
		}
		return nil
	})
	return nil
}

// ListenAgain opens an address where metrics are answered as soon as it is free. It is nil when ctx is done.
func ListenAgain(ctx context.Context, address string) net.Listener {
	return listenAgain(ctx, address, takenAgain)
}

// listenAgain opens an address as soon as it is free. It is nil when ctx is done.
func listenAgain(ctx context.Context, address string, every time.Duration) net.Listener {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if listener, err := exposition.Listen(ctx, address); err == nil {
			return listener
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// serveMetrics answers scrapes until ctx is done.
func (s *service) serveMetrics(ctx context.Context) {
	listener := s.metrics
	if listener == nil {
		s.agent.NoteTaken(s.taken)
		if listener = ListenAgain(ctx, s.taken); listener == nil {
			return
		}
		s.options.Log.InfoContext(ctx, "metrics are served now", "address", s.taken)
		s.agent.NoteTaken("")
	}
	shown := exposition.New(exposition.Config{
		Source: s.agent, Node: s.node, Faults: s.health.Reasons, XIDs: s.health.XIDs,
		DCGM: s.rules.Metrics().DCGM, Exporter: ExporterRuns, Fresh: time.Second, Version: s.options.Version, Log: s.options.Log,
	})
	if err := exposition.Serve(ctx, listener, s.pages.Beside(listener, exposition.Handler(exposition.Probes{}, shown))); err != nil {
		s.options.Log.WarnContext(ctx, "metrics are not served any more", "error", err)
	}
}
