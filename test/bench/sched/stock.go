package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const (
	// stockRate compares how quickly pods with a share and plain pods are placed.
	stockRate = "cluster.stock_pods_per_s"
	// stockNodes and the pods of a round; a round of shares fills less than a tenth of the GPUs.
	stockNodes, plainRound, shareRound = 1000, 2000, 600
	// roundLimit bounds a round: what is bound by then counts.
	roundLimit = 90 * time.Second
)

// smallShare is what a pod with a share asks for.
var smallShare = map[corev1.ResourceName]string{
	v1alpha1.ResourceGPU: "1", v1alpha1.ResourceMemory: "10Gi", v1alpha1.ResourceCores: "5",
}

func measureStock(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := open(ctx, o, o.NodesOr(stockNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.publish(ctx); err != nil {
		return nil, err
	}
	shares, err := divvyPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	// The first pods find caches empty and connections closed.
	for _, k := range []kind{plainPods, shares} {
		if _, err := b.placed(ctx, k, 20, roundLimit); err != nil {
			return nil, err
		}
	}
	var ratios, ours, plain []float64
	var costs [2]outcome
	for range o.Rounds() {
		one, err := b.placed(ctx, plainPods, o.Few(plainRound), roundLimit)
		if err != nil {
			return nil, err
		}
		profiled := b.profileScheduler(ctx)
		other, err := b.placed(ctx, shares, o.Few(shareRound), roundLimit)
		if err := errors.Join(err, profiled()); err != nil {
			return nil, err
		}
		plain, ours, ratios = append(plain, one.rate()), append(ours, other.rate()), append(ratios, other.rate()/one.rate())
		costs = [2]outcome{one, other}
	}
	median := func(runs []float64) float64 { m, _ := measurement.Summary(runs, measurement.Higher); return m }
	note := fmt.Sprintf("%d nodes of %d GPUs; %.1f pods/s with a share each, %.0f plain pods/s, alternated; the last round took for each pod with a share %s, for each plain pod %s",
		b.nodes, len(b.inventory), median(ours), median(plain), costs[1].costs(), costs[0].costs())
	return []measurement.Row{
		target.More(stockRate, "of plain pods' rate", "", 0.08, ratios, note),
		target.More(stockRate, "pods with a share", "pods/s", 0, ours, ""),
		target.More(stockRate, "plain pods", "pods/s", 0, plain, ""),
	}, nil
}

// profileScheduler begins to profile the scheduler where that is wanted. What it returns waits for the end.
func (b *bench) profileScheduler(ctx context.Context) func() error {
	if b.profile == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		text, err := b.Process(plane.Scheduler).Get(ctx, "/debug/pprof/profile?seconds=8")
		if err == nil {
			err = os.WriteFile(b.profile, text, 0o644)
		}
		done <- err
	}()
	return func() error { return <-done }
}
