package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// prepareGoal is in ms.
const prepareGoal = 200

// prepare starts the pods, wave by wave, each with a share of its own, and tells how long the kubelet waited for their
// claims. The pods stay, each with a process that holds some memory of its GPU and does nothing.
func (b *bench) prepare(ctx context.Context) ([]measurement.Row, error) {
	for first := 0; first < b.plan.shares; first += b.plan.wave {
		b.say("start pods %d to %d", first, first+b.plan.wave-1)
		for i := first; i < first+b.plan.wave; i++ {
			if err := b.create(ctx, pod(shareName(i), "share", "", "gpubench", "hold", "--bytes=16Mi")); err != nil {
				return nil, err
			}
		}
		for i := first; i < first+b.plan.wave; i++ {
			if _, err := b.cluster.WaitRunning(ctx, namespace, shareName(i)); err != nil {
				return nil, err
			}
		}
	}
	waits, err := b.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	kubelet, err := kubeletRow(waits, b.plan.shares)
	if err != nil {
		return nil, err
	}
	took, err := b.agentTimes(ctx, "share-", b.plan.shares)
	if err != nil {
		return nil, err
	}
	agent := measurement.Of("k8s.prepare_p99_ms", "ms", prepareGoal, measurement.Lower, command, quantile(took, 0.99))
	agent.Case, agent.Runs, agent.Worst = "agent's own time", len(took), slices.Max(took)
	agent.Note = fmt.Sprintf("99th percentile of the times that the agent logs; pods start in waves of %d, median %.0f ms", b.plan.wave, quantile(took, 0.5))
	return []measurement.Row{kubelet, agent}, nil
}

func shareName(i int) string { return fmt.Sprintf("share-%03d", i) }

// waits are what the kubelet waited for the driver's answers to NodePrepareResources: how many of count lasted at most so
// many s.
type waits struct {
	buckets map[float64]uint64
	count   uint64
}

// until are the waits between two readings.
func (w waits) until(later waits) waits {
	between := waits{buckets: map[float64]uint64{}, count: later.count - w.count}
	for upper, below := range later.buckets {
		between.buckets[upper] = below - w.buckets[upper]
	}
	return between
}

// kubelet reads the kubelet's own histogram.
func (b *bench) kubelet(ctx context.Context) (waits, error) {
	text, err := b.cluster.Client().CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", nodeName, "proxy/metrics").DoRaw(ctx)
	if err != nil {
		return waits{}, fmt.Errorf("read the kubelet's metrics: %w", err)
	}
	f, err := parse(bytes.NewReader(text))
	if err != nil {
		return waits{}, err
	}
	buckets, count := f.histogram("dra_grpc_operations_duration_seconds", map[string]string{
		"driver_name": v1alpha1.Driver, "method_name": "NodePrepareResources",
	})
	return waits{buckets, count}, nil
}

// kubeletRow tells what the kubelet waited for so many pods. The histogram's buckets are wide, so the figure is a bound:
// the upper end of the bucket in which the 99th percentile lies.
func kubeletRow(w waits, pods int) (measurement.Row, error) {
	if w.count < uint64(pods) {
		return measurement.Row{}, fmt.Errorf("the kubelet's metrics count %d calls for %d pods", w.count, pods)
	}
	p99, worst := bound(w.buckets, w.count, 0.99)*1000, bound(w.buckets, w.count, 1)*1000
	row := measurement.Of("k8s.prepare_p99_ms", "ms", prepareGoal, measurement.Lower, command, p99)
	row.Case, row.Runs, row.Worst = "kubelet's histogram", int(w.count), worst
	row.Note = "upper end of the bucket of dra_grpc_operations_duration_seconds; the first ends at 100 ms, the next at 153 and 235"
	return row, nil
}

// bound is the upper end of the bucket in which a quantile lies.
func bound(buckets map[float64]uint64, count uint64, q float64) float64 {
	least := math.Inf(1)
	for upper, below := range buckets {
		if float64(below) >= q*float64(count) {
			least = min(least, upper)
		}
	}
	return least
}

var prepared = regexp.MustCompile(`msg=prepared claim=[^/ ]*/(\S+) .*took=(\S+)`)

// agentTimes reads from the agent's log how long each claim took of the pods whose names begin so, in ms.
func (b *bench) agentTimes(ctx context.Context, pods string, count int) ([]float64, error) {
	text, err := b.cluster.PodLogs(ctx, cluster.Namespace, b.agent.pod, "")
	if err != nil {
		return nil, err
	}
	var took []float64
	for _, match := range prepared.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(match[1], pods) {
			continue
		}
		d, err := time.ParseDuration(match[2])
		if err != nil {
			return nil, fmt.Errorf("read the agent's log: %w", err)
		}
		took = append(took, d.Seconds()*1000)
	}
	if len(took) < count {
		return nil, fmt.Errorf("the agent's log tells of %d claims for %d pods", len(took), count)
	}
	return took, nil
}

// quantile is the least of the samples that is not below a part q of them.
func quantile(samples []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
