package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	placedRate   = "sched.pods_per_s"
	placedCPU    = "sched.cpu_ms"
	placedWrites = "sched.writes_per_pod"
	plainRatio   = "sched.plain_ratio"
	templateRate = "sched.template_pods_per_s"
	// placedRound is a round of shares that Divvy's scheduler places.
	placedRound = 2000
)

// rates are the rounds of one number of nodes.
type rates struct {
	shares, plain, theirs        []float64 // pods per second
	ofPlain, ofStock, cpu, wrote []float64
	costs                        string // of the last rounds
}

// measurePlaced compares pods in the plain form with plain pods of Kubernetes' scheduler, and plain pods of both. The
// controller manager is as slow as a cluster's by default: a claim that the scheduler makes does not wait for it.
func measurePlaced(ctx context.Context, o options) (rows []measurement.Row, err error) {
	for _, nodes := range []int{1000, 5000} {
		made, err := o.placedOn(ctx, o.NodesOr(nodes))
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

func (o options) placedOn(ctx context.Context, nodes int) (rows []measurement.Row, err error) {
	b, err := openOurs(ctx, o, nodes, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	shares, err := namedPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	kinds := []kind{shares, plainPods, {name: "plain-ours", scheduler: ours}}
	if err := b.warm(ctx, kinds...); err != nil {
		return nil, err
	}
	var r rates
	for run := range b.Rounds() {
		var took [3]outcome
		for at := range kinds {
			which := (run + at) % len(kinds)
			before, err := b.writes(ctx)
			if err != nil {
				return nil, err
			}
			n := b.Few(placedRound)
			if took[which], err = b.bound(ctx, kinds[which], n); err != nil {
				return nil, err
			}
			after, err := b.writes(ctx)
			if err != nil {
				return nil, err
			}
			if which == 0 {
				r.wrote = append(r.wrote, (after-before)/float64(n))
			}
			if err := b.clear(ctx); err != nil {
				return nil, err
			}
		}
		r.add(took)
	}
	on := fmt.Sprintf("%d nodes", nodes)
	note := fmt.Sprintf("of 8 GPUs, controller manager at its default rate; %.0f shares/s, plain pods %.0f/s, alternated; %s",
		measurement.Middle(r.shares), measurement.Middle(r.plain), r.costs)
	return []measurement.Row{
		target.More(placedRate, on+", of plain pods' rate", "", 0.7, r.ofPlain, note),
		target.More(placedRate, on+", pods with a share", "pods/s", 0, r.shares, ""),
		target.More(placedRate, on+", plain pods of Kubernetes' scheduler", "pods/s", 0, r.plain, ""),
		target.Less(placedCPU, on, "ms", 3, r.cpu, "processor time of Divvy's scheduler for each pod with a share"),
		target.Less(placedWrites, on, "writes", 5, r.wrote, "from a pod's creation to its binding, with events"),
		target.More(plainRatio, on, "", 0.97, r.ofStock, "plain pods through Divvy's scheduler against Kubernetes'"),
	}, nil
}

// add takes the outcomes of shares, of plain pods, and of plain pods through Divvy's scheduler.
func (r *rates) add(took [3]outcome) {
	shares, plain, theirs := took[0].rate(), took[1].rate(), took[2].rate()
	r.shares, r.plain, r.theirs = append(r.shares, shares), append(r.plain, plain), append(r.theirs, theirs)
	r.ofPlain, r.ofStock = append(r.ofPlain, shares/plain), append(r.ofStock, theirs/plain)
	r.cpu = append(r.cpu, took[0].scheduler.Seconds()*1000/float64(max(took[0].bound, 1)))
	r.costs = fmt.Sprintf("the last round took for each pod with a share %s, for each plain pod %s", took[0].costs(), took[1].costs())
}

// bound makes n pods of a kind, waits until they are bound, holds the claims against the slices, and leaves them.
func (b *bench) bound(ctx context.Context, k kind, n int) (outcome, error) {
	o, err := b.round(ctx, n, roundLimit, func(bound, _ int) bool { return bound == n }, k)
	if err != nil {
		return o, err
	}
	b.Say("%s: %d of %d pods bound in %.1f s: %.1f pods/s, %s a pod", k.name, o.bound, n, o.took.Seconds(), o.rate(), o.costs())
	if k.gpus() {
		err = b.check(ctx)
	}
	return o, err
}

// measureTemplates compares both schedulers on pods whose claims are made from templates, with a controller manager that
// may ask as often as it likes.
func measureTemplates(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := openOurs(ctx, o, o.NodesOr(stockNodes), false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	shares, err := divvyPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	kinds := []kind{shares.by(ours), shares}
	if err := b.warm(ctx, kinds...); err != nil {
		return nil, err
	}
	var placed, stock, ratios []float64
	for run := range b.Rounds() {
		var took [2]outcome
		for at := range kinds {
			which := (run + at) % len(kinds)
			if took[which], err = b.placed(ctx, kinds[which], b.Few(shareRound), roundLimit); err != nil {
				return nil, err
			}
		}
		placed, stock = append(placed, took[0].rate()), append(stock, took[1].rate())
		ratios = append(ratios, took[0].rate()/took[1].rate())
	}
	note := fmt.Sprintf("%d nodes of 8 GPUs; Kubernetes' scheduler %.0f pods/s, alternated", b.nodes, measurement.Middle(stock))
	return []measurement.Row{
		target.More(templateRate, "pods with a share", "pods/s", 120, placed, note),
		target.More(templateRate, "against Kubernetes' scheduler", "", 3, ratios, ""),
	}, nil
}
