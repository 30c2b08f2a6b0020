package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	queueRatio = "queue.rate_ratio"
	// manyQueues divide all GPUs among them.
	manyQueues = 50
)

// measureQueueRate compares how quickly the same pods are placed with queues and without.
func measureQueueRate(ctx context.Context, o options) (rows []measurement.Row, err error) {
	q, err := openQueued(ctx, o, o.NodesOr(stockNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Stop()) }()
	share, err := namedPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	specs, spread := map[string]string{}, []kind{}
	for i := range manyQueues {
		name := fmt.Sprintf("queue-%02d", i)
		specs[name] = fmt.Sprintf("{namespaces: [%s], resources: [{guaranteed: %d}]}", namespace, q.nodes*len(q.inventory)/manyQueues)
		pods := share.in(name)
		pods.name = name
		spread = append(spread, pods)
	}
	if err := q.warm(ctx, share); err != nil {
		return nil, err
	}
	var with, without, ratios []float64
	for run := range q.Rounds() {
		var rates [2]float64
		for at := range rates {
			which := (run + at) % len(rates)
			if which == 0 {
				rates[which], err = q.rateWith(ctx, specs, spread)
			} else {
				rates[which], err = q.rate(ctx, share)
			}
			if err != nil {
				return nil, err
			}
		}
		with, without, ratios = append(with, rates[0]), append(without, rates[1]), append(ratios, rates[0]/rates[1])
	}
	on := fmt.Sprintf("%d nodes, ", q.nodes)
	rows = []measurement.Row{
		queueRow(queueRatio, "", 0.95, measurement.Higher, "all pods within what is guaranteed to their queues; alternated", ratios...),
		queueRow(queueRatio, "pods/s", 0, measurement.Higher, "", with...),
		queueRow(queueRatio, "pods/s", 0, measurement.Higher, "", without...),
	}
	for i, name := range []string{"of the rate without queues", fmt.Sprintf("%d queues", manyQueues), "no queue"} {
		rows[i].Case = on + name
	}
	rows[1].Goal, rows[2].Goal = nil, nil
	return rows, nil
}

// rateWith is rate while there are queues.
func (q *queued) rateWith(ctx context.Context, specs map[string]string, kinds []kind) (float64, error) {
	if err := q.configure(ctx, specs); err != nil {
		return 0, err
	}
	rate, err := q.rate(ctx, kinds...)
	return rate, errors.Join(err, q.unconfigure(ctx))
}

// rate is how many pods a second are bound, of all kinds in turn.
func (q *queued) rate(ctx context.Context, kinds ...kind) (float64, error) {
	// The first pods meet what the change of queues has set off.
	if err := q.warm(ctx, kinds[0]); err != nil {
		return 0, err
	}
	n := q.Few(placedRound) / len(kinds) * len(kinds)
	o, err := q.round(ctx, n/len(kinds), roundLimit, func(bound, _ int) bool { return bound == n }, kinds...)
	if err != nil {
		return 0, err
	}
	if o.bound != n {
		return 0, fmt.Errorf("place pods in queues: %d of %d are bound, %d wait", o.bound, n, o.waiting)
	}
	q.Say("%d pods in %d kinds bound in %.1f s: %.1f pods/s, %s a pod", n, len(kinds), o.took.Seconds(), o.rate(), o.costs())
	return o.rate(), errors.Join(q.check(ctx), q.clear(ctx))
}
