package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	boundRate = "slots.pods_per_s"
	// ratedPods is a round of pods of either kind.
	ratedPods = 2000
	// largeFleet is how many nodes make a round long.
	largeFleet = 2000
)

// rateGoals are those of the numbers of nodes: parts of plain pods' rate.
var rateGoals = map[int]float64{1000: 0.5, 5000: 0.4}

// measureRates compares pods with a share and plain pods of the same scheduler, which looks at all nodes for both.
func measureRates(ctx context.Context, o options) (rows []measurement.Row, err error) {
	for _, nodes := range []int{1000, 5000} {
		made, err := o.ratesOn(ctx, o.NodesOr(nodes), rateGoals[nodes])
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

func (o options) ratesOn(ctx context.Context, nodes int, goal float64) (rows []measurement.Row, err error) {
	fleet, err := fleetOf(nodes)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, o, fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.startBoth(ctx); err != nil {
		return nil, err
	}
	kinds, err := bothKinds()
	if err != nil {
		return nil, err
	}
	// The first pods find caches empty and connections closed.
	for _, k := range kinds {
		if _, err := c.placed(ctx, k, 20); err != nil {
			return nil, err
		}
	}
	var shares, plain, ratios []float64
	var took [2]outcome
	runs := c.Rounds()
	if nodes > largeFleet {
		runs = min(runs, 3) // of minutes each
	}
	for run := range runs {
		for at := range kinds {
			which := (run + at) % len(kinds)
			if took[which], err = c.placed(ctx, kinds[which], c.Few(ratedPods)); err != nil {
				return nil, err
			}
		}
		shares, plain = append(shares, took[0].rate()), append(plain, took[1].rate())
		ratios = append(ratios, took[0].rate()/took[1].rate())
	}
	on := fmt.Sprintf("%d nodes", nodes)
	note := fmt.Sprintf("of %d GPUs, all scored; %.0f pods with a share/s, plain pods %.0f/s, alternated; the last round took for each pod with a share %s, for each plain pod %s",
		len(fleet[0].gpus), measurement.Middle(shares), measurement.Middle(plain), took[0].costs(), took[1].costs())
	return []measurement.Row{
		target.More(boundRate, on+", of plain pods' rate", "", goal, ratios, note),
		target.More(boundRate, on+", pods with a share", "pods/s", 0, shares, ""),
		target.More(boundRate, on+", plain pods", "pods/s", 0, plain, ""),
	}, nil
}

// bothKinds are pods with a share and plain ones.
func bothKinds() ([]kind, error) {
	small, err := kindOf("share", smallShare)
	if err != nil {
		return nil, err
	}
	plain, err := kindOf("plain", asked{})
	return []kind{small, plain}, err
}

// placed makes n pods of a kind, waits until they are bound, and removes them.
func (c *cluster) placed(ctx context.Context, k kind, n int) (outcome, error) {
	o, err := c.round(ctx, false, n, k.one)
	if err != nil {
		return o, err
	}
	c.Say("%s: %d of %d pods bound in %.1f s: %.1f pods/s, %s a pod", k.name, o.bound, n, o.took.Seconds(), o.rate(), o.costs())
	return o, c.clear(ctx)
}
