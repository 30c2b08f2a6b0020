// Package metrics counts what the agent of a cluster's node does, for Prometheus: how long it takes to prepare claims, what
// it refuses and its errors. GPUs and shares are told of by package exposition.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Metrics counts the agent's work.
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
// Each of ours names the node.
func New(node string) *Metrics {
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
	prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, m.registry).MustRegister(m.prepare, m.release, m.refusals, m.errors)
	m.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Write writes all metrics in Prometheus' text format. Those that can be collected are written where others cannot.
func (m *Metrics) Write(_ context.Context, out io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil && len(families) == 0 {
		return fmt.Errorf("collect metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
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
