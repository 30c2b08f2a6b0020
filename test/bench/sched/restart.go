package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	restartTime = "sched.restart_s"
	// filled is how many shares are bound by then, in rounds of which each is bound before the next begins.
	filled, filledRound = 20000, 4000
	// difference is what the scheduler finds different between its ledger and a rebuild from the cluster's objects.
	difference = "divvy_scheduler_ledger_differences"
	// compareLimit is how long that may take.
	compareLimit = 30 * time.Second
)

// measureRestart fills the cluster, places more beside that, kills the scheduler, and waits for the first binding of the
// next.
func measureRestart(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := openOurs(ctx, o, o.NodesOr(stockNodes), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	held, err := namedPods("filled", smallShare)
	if err != nil {
		return nil, err
	}
	for i := range filled / filledRound {
		held.name = fmt.Sprintf("filled-%d", i)
		if o, err := b.bound(ctx, held, b.Few(filledRound)); err != nil {
			return nil, err
		} else if o.rest+o.waiting > 0 {
			return nil, fmt.Errorf("fill the cluster: %d pods are not bound", o.rest+o.waiting)
		}
	}
	var ratios, first []float64
	for run := range b.Rounds() {
		held.name = fmt.Sprintf("more-%d", run)
		plain := kind{name: fmt.Sprintf("plain-%d", run)}
		one, err := b.bound(ctx, plain, b.Few(placedRound/4))
		if err != nil {
			return nil, err
		}
		other, err := b.bound(ctx, held, b.Few(placedRound/4))
		if err != nil {
			return nil, err
		}
		ratios = append(ratios, other.rate()/one.rate())
	}
	for run := range 3 {
		took, err := b.restart(ctx, held, run)
		if err != nil {
			return nil, err
		}
		first = append(first, took)
	}
	on := fmt.Sprintf("%d nodes, %d shares bound", b.nodes, b.Few(filled))
	return []measurement.Row{
		target.Less(restartTime, on, "s", 5, first, "from kill -9 and a start at once to the first binding; the ledger is equal to a rebuild after it"),
		target.More(placedRate, on+", of plain pods' rate", "", 0.7, ratios, "alternated"),
	}, nil
}

// restart kills the scheduler, starts it and returns the seconds until the first of some pods is bound.
func (b *bench) restart(ctx context.Context, k kind, run int) (float64, error) {
	b.Process(ours).Kill()
	begin := time.Now()
	started := make(chan error, 1)
	go func() { started <- b.startOurs(ctx) }()
	k.name = fmt.Sprintf("after-%d", run)
	t := newTally()
	first := make(chan time.Duration, 1)
	t.also = func(pod *corev1.Pod) {
		if pod.Spec.NodeName == "" {
			return
		}
		select {
		case first <- time.Since(begin):
		default:
		}
	}
	if _, err := b.roundWith(ctx, t, 20, roundLimit, func(bound, _ int) bool { return bound == 20 }, k); err != nil {
		return 0, errors.Join(err, <-started)
	}
	if err := <-started; err != nil {
		return 0, err
	}
	if err := b.check(ctx); err != nil {
		return 0, err
	}
	return (<-first).Seconds(), b.compared(ctx)
}

// compared waits until the scheduler has compared its ledger with a rebuild, which it does beside its work. Both must be equal.
func (b *bench) compared(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	for {
		text, err := b.Process(ours).Get(ctx, "/metrics")
		if err == nil && strings.Contains(string(text), "\n"+difference+" ") {
			if n := metric(string(text), difference); n != 0 {
				return fmt.Errorf("after a restart %v GPUs of the ledger differ from a rebuild", n)
			}
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the scheduler does not tell %s, so nobody knows whether its ledger is equal to a rebuild", difference)
		}
	}
}
