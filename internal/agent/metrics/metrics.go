// Package metrics tells Prometheus what an agent does: its GPUs, the shares of its tenants, and how long the cluster
// waits for it.
//
// GPUs and shares are read from the agent's listing when somebody asks, so that a tenant that ended is gone with the
// next listing and nothing is kept of it. There are at most as many series of shares as there are shares; no label has a
// text that a program could change while it runs.
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

// Source is the agent that is told of.
type Source interface {
	Listing(ctx context.Context) (*control.Listing, error)
}

// Config is what metrics are made of.
type Config struct {
	Source Source
	// Faults returns the reasons why GPUs are not healthy, by UUID; nil knows of none.
	Faults func() map[string]string
	// Fresh is how long one listing answers all who ask; 0 lists for each.
	Fresh time.Duration
	// Version is the program's.
	Version string
	Log     *slog.Logger
}

// Metrics counts what the agent does, and serves it with what the agent lists.
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

// seconds are the bounds of the histograms: the kubelet's patience is 200 ms at the 99th percentile and ends after
// 45 s.
var seconds = []float64{.005, .01, .02, .035, .05, .075, .1, .15, .2, .3, .5, 1, 2, 5, 10, 30}

// New makes a registry of its own: nothing that a library registers for everybody is told.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		prepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "divvy_agent_prepare_duration_seconds", Help: "How long it took to prepare a claim's shares.", Buckets: seconds,
		}, []string{"result"}),
		release: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "divvy_agent_release_duration_seconds", Help: "How long it took to release a claim's shares.", Buckets: seconds,
		}, []string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_agent_refusals_total", Help: "Allocations that the agent refused, by reason: full, never (more than a GPU has), unknown (GPU), invalid.",
		}, []string{"reason"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_agent_errors_total", Help: "Errors of the agent's own, by what it was doing.",
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
		Name: "divvy_build_info", Help: "The program; always 1.",
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

// Registry is for those who have figures of their own to add.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

var reasons = map[alloc.Reason]string{alloc.ReasonFull: "full", alloc.ReasonNever: "never", alloc.ReasonUnknown: "unknown"}

// reasonInvalid is a claim that means nothing, whatever room there is.
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

// Failed counts an error of the agent's own.
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
