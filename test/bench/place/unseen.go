package main

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// gain is what the default policy allocates more than FGD, in points, by seed.
type gain struct{ at100, at130 []float64 }

// points are the demands at which policies are compared.
var points = [2]string{" at 100 %", " at 130 %"}

// unseen is place.unseen: the default policy against FGD, which knows the workload beforehand, on mixes of pods that
// nobody published.
func (b *bench) unseen() ([]measurement.Row, error) {
	var rows []measurement.Row
	var at100, at130 []float64
	for i := range mixes {
		m := &mixes[i]
		if m.held && b.mixes == "tuning" || !m.held && b.mixes == "held" {
			continue
		}
		g, err := b.against(m)
		if err != nil {
			return nil, fmt.Errorf("mix %q: %w", m.name, err)
		}
		for i, of := range [][]float64{g.at100, g.at130} {
			row := measurement.Of("place.unseen", "points more than FGD", 0, measurement.Higher, command, of...)
			row.Case, row.Note = m.name+points[i], m.note()
			rows = append(rows, row)
		}
		at100, at130 = append(at100, replay.Median(g.at100)), append(at130, replay.Median(g.at130))
	}
	for i, of := range [][]float64{at100, at130} {
		row := measurement.Of("place.unseen", "points more than FGD", 0.5, measurement.Higher, command, of...)
		row.Case = fmt.Sprintf("median of %d mixes%s", len(of), points[i])
		rows = append(rows, row)
	}
	return rows, nil
}

func (m *mix) note() string {
	switch {
	case m.seen:
		return "held out, measured once before the last change"
	case m.held:
		return "never measured before the policy was final"
	}
	return "used for tuning"
}

// against compares the default policy with FGD on one mix, seed by seed.
func (b *bench) against(m *mix) (gain, error) {
	t, err := b.trace(m.from)
	if err != nil {
		return gain{}, err
	}
	t.Pods = m.pods(t)
	run := func(policy string, seed int64) (replay.Result, error) {
		return t.Run(context.Background(), replay.Options{Policy: policy, Seed: seed, Until: 130, Order: m.order.arrange})
	}
	pairs, err := each(b.seeds, func(seed int64) (pair [2]float64, err error) {
		seed += m.seed - firstSeed
		ours, err := run(alloc.DefaultPolicy, seed)
		if err != nil {
			return pair, err
		}
		fgd, err := run("fgd", seed)
		return [2]float64{ours.AllocatedAt100 - fgd.AllocatedAt100, ours.AllocatedAt130 - fgd.AllocatedAt130}, err
	})
	var g gain
	for _, p := range pairs {
		g.at100, g.at130 = append(g.at100, p[0]), append(g.at130, p[1])
	}
	return g, err
}
