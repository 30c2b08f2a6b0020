// Package metrics exports figures of the agent to Prometheus: its GPUs, the shares of its tenants, and how long it takes
// to prepare claims.
//
// GPUs and shares are read from the agent's listing at each scrape, so the series of a tenant end with it. There are as
// many series as shares, and no label's value can be changed by a running program.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Source is the agent whose figures are exported.
type Source interface {
	Listing(ctx context.Context) (*control.Listing, error)
}

// Config is what [New] works with.
type Config struct {
	Source Source
	// Faults returns by UUID why GPUs are faulty; nil means that none is.
	Faults func() map[string]string
	// Fresh is how long one listing serves all scrapes; 0 makes one for each scrape.
	Fresh time.Duration
	// Version is the version of Divvy.
	Version string
	Log     *slog.Logger
}

// Metrics counts the agent's work, and exports the counters beside what the agent lists.
type Metrics struct {
	registry *prometheus.Registry
	prepare  *prometheus.HistogramVec
	release  *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	errors   *prometheus.CounterVec
}

// Operation is a part of the agent's work whose errors are counted.
type Operation string

// The operations.
const (
	OperationPrepare  Operation = "prepare"
	OperationRelease  Operation = "release"
	OperationPublish  Operation = "publish"
	OperationLabel    Operation = "label"
	OperationRegister Operation = "register"
	OperationList     Operation = "list"
)

var operations = []Operation{OperationPrepare, OperationRelease, OperationPublish, OperationLabel, OperationRegister, OperationList}

// The results of a preparation, as its label has them.
const (
	resultDone    = "done"
	resultRefused = "refused"
	resultFailed  = "failed"
)

// seconds are the bounds of the histograms, around the goal of 200 ms at the 99th percentile and below the kubelet's
// timeout of 45 s.
var seconds = []float64{.005, .01, .02, .035, .05, .075, .1, .15, .2, .3, .5, 1, 2, 5, 10, 30}

// New makes a registry of its own, so that metrics which libraries register globally are not exported.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		prepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "divvy_agent_prepare_duration_seconds", Help: "Time taken to prepare the shares of a claim.", Buckets: seconds,
		}, []string{"result"}),
		release: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "divvy_agent_release_duration_seconds", Help: "Time taken to release the shares of a claim.", Buckets: seconds,
		}, []string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_agent_refusals_total", Help: "Claims refused by the agent. Reasons: full (no room now), never (more than a GPU has), unknown (no such GPU), invalid.",
		}, []string{"reason"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_agent_errors_total", Help: "Errors of the agent, by operation.",
		}, []string{"operation"}),
	}
	for _, result := range []string{resultDone, resultRefused, resultFailed} {
		m.prepare.WithLabelValues(result)
	}
	m.release.WithLabelValues(resultDone)
	m.release.WithLabelValues(resultFailed)
	for _, reason := range reasons {
		m.refusals.WithLabelValues(reason)
	}
	for _, operation := range operations {
		m.errors.WithLabelValues(string(operation))
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "divvy_build_info", Help: "Version of Divvy and of Go; always 1.",
		ConstLabels: prometheus.Labels{"version": c.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.prepare, m.release, m.refusals, m.errors, build,
		&listing{config: c, failed: m.errors.WithLabelValues(string(OperationList))},
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Registry returns the registry, to which others may add metrics.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

var reasons = map[alloc.Reason]string{alloc.ReasonFull: "full", alloc.ReasonNever: "never", alloc.ReasonUnknown: "unknown"}

// reasonInvalid marks a claim that is refused whatever room there is.
const reasonInvalid = "invalid"

// Prepared counts one preparation. An error that is an *alloc.Refusal, or one of invalid, is a refusal; any other is
// the agent's own.
func (m *Metrics) Prepared(took time.Duration, err error, invalid ...error) {
	result := resultDone
	var refusal *alloc.Refusal
	switch {
	case err == nil:
	case errors.As(err, &refusal):
		result = resultRefused
		m.refusals.WithLabelValues(reasons[refusal.Reason]).Inc()
	case isAny(err, invalid):
		result = resultRefused
		m.refusals.WithLabelValues(reasonInvalid).Inc()
	default:
		result = resultFailed
		m.Failed(OperationPrepare)
	}
	m.prepare.WithLabelValues(result).Observe(took.Seconds())
}

// Released counts one release.
func (m *Metrics) Released(took time.Duration, err error) {
	result := resultDone
	if err != nil {
		result = resultFailed
		m.Failed(OperationRelease)
	}
	m.release.WithLabelValues(result).Observe(took.Seconds())
}

// Failed counts an error of the agent.
func (m *Metrics) Failed(o Operation) {
	m.errors.WithLabelValues(string(o)).Inc()
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
