package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// schedFigures are those of Divvy's scheduler. They go to a file of their own.
func schedFigures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: placedRate + " " + placedCPU + " " + placedWrites + " " + plainRatio, Measure: of(measurePlaced)},
		{IDs: askedRate, Measure: of(measureAsked)},
		{IDs: templateRate, Measure: of(measureTemplates)},
		{IDs: bindTime, Measure: of(measureBindTime)},
		{IDs: restartTime, Measure: of(measureRestart)},
		{IDs: gangTime + " " + verdictOnPod, Measure: of(measureGangs)},
		{IDs: realTrace, Measure: of(measureTrace)},
		{IDs: gangTopology, Measure: func() ([]measurement.Row, error) { return measureTopology(o) }},
		{IDs: verdictTime + " " + planTime, Measure: func() ([]measurement.Row, error) { return measurePlans(o) }},
	}
}

// ours is Divvy's scheduler: its process, and what pods call it.
const ours = v1alpha1.SchedulerName

// startOurs starts Divvy's scheduler. Several on one plane have different names.
func (b *bench) startOurs(ctx context.Context) error {
	program, err := filepath.Abs(filepath.Join(b.build, "libexec", "divvy", "divvy-scheduler"))
	if err != nil {
		return err
	}
	config := filepath.Join(b.Dir(), "divvy-scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 5000, burst: 10000, contentType: application/vnd.kubernetes.protobuf}
profiles: [{schedulerName: %s}]
`, b.Kubeconfig(), ours)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	_, err = b.Run(ctx, plane.Program{
		Name: ours, Path: program, Ports: 1, Scheme: "https", Ready: plane.Answers("/readyz"),
		Args: func(ports []int) []string { return append(b.Serving(ours, ports[0]), "--config="+config) },
	})
	return err
}

// openOurs starts a control plane with both schedulers and published slices. The controller manager asks as often as a
// cluster's by default where slow is true.
func openOurs(ctx context.Context, o options, nodes int, slow bool) (*bench, error) {
	b, err := openIdle(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	start := b.StartManager
	if slow {
		start = b.StartSlowManager
	}
	for _, step := range []func() error{
		func() error { return b.makeNodes(ctx) },
		func() error { return b.publish(ctx) },
		func() error { return start(ctx, "resourceclaim-controller") },
		func() error { return b.StartScheduler(ctx) },
		func() error { return b.startOurs(ctx) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, b.Stop())
		}
	}
	return b, nil
}

// metric is the sum of the values of a metric whose labels hold all of these texts.
func metric(text, name string, labels ...string) (sum float64) {
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if !strings.HasPrefix(line, name) || at < 0 || !strings.ContainsAny(line[len(name):len(name)+1], "{ ") {
			continue
		}
		of, all := line[:at], true
		for _, label := range labels {
			all = all && strings.Contains(of, label)
		}
		var value float64
		if _, err := fmt.Sscan(line[at:], &value); err == nil && all {
			sum += value
		}
	}
	return sum
}

// writes counts the requests that have changed something so far, but for leases, which are renewed whatever happens.
func (b *bench) writes(ctx context.Context) (n float64, err error) {
	text, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE", "APPLY"} {
		n += metric(string(text), "apiserver_request_total", `verb="`+verb+`"`) -
			metric(string(text), "apiserver_request_total", `verb="`+verb+`"`, `resource="leases"`)
	}
	return n, nil
}
