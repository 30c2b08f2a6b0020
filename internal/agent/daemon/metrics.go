package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

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

// openMetrics listens for scrapes. An address that somebody asked for and that is taken is an error; the usual one can be
// anybody's, and the agent serves without it.
func (s *service) openMetrics(ctx context.Context) error {
	address, asked := s.options.metricsAddress(s.rules)
	if address == "" {
		return nil
	}
	listener, err := exposition.Listen(ctx, address)
	if err != nil && asked {
		return err
	}
	if err != nil {
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

// serveMetrics answers scrapes until ctx is done.
func (s *service) serveMetrics(ctx context.Context) {
	node, err := os.Hostname()
	if err != nil {
		s.options.Log.WarnContext(ctx, "cannot find the machine's name for metrics", "error", err)
	}
	shown := exposition.New(exposition.Config{
		Source: s.agent, Node: node, Faults: s.health.Reasons, XIDs: s.health.XIDs,
		DCGM: s.rules.Metrics().DCGM, Exporter: ExporterRuns, Fresh: time.Second, Version: s.options.Version, Log: s.options.Log,
	})
	if err := exposition.Serve(ctx, s.metrics, exposition.Handler(exposition.Probes{}, shown)); err != nil {
		s.options.Log.WarnContext(ctx, "metrics are not served any more", "error", err)
	}
}
