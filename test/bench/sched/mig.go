package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	// migRatio compares how quickly pods with an instance of a fixed layout and plain pods are placed.
	migRatio, migGoal = "mig.stock_ratio", 0.08
	// migCounters tells what it costs that layouts may change.
	migCounters = "mig.counters"
	// countedLimit bounds a round with counters: what is bound by then counts.
	countedLimit = time.Minute
)

// countedRounds are the numbers of nodes of mig.counters, and the pods and repetitions of each.
var countedRounds = []struct{ nodes, pods, runs int }{{10, 200, 3}, {100, 400, 3}, {1000, 400, 1}}

// migFigures go to a file of their own.
func migFigures(ctx context.Context, o options) []measurement.Figure {
	return []measurement.Figure{
		{IDs: migRatio, Measure: func() ([]measurement.Row, error) { return measureFixed(ctx, o) }},
		{IDs: migCounters, Measure: func() ([]measurement.Row, error) { return measureCounters(ctx, o) }},
	}
}

// instancePods ask for an instance with a profile, as users write it.
func instancePods(name, profile string) kind {
	return kind{name: name, template: &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: v1alpha1.ClassMIG, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
					Expression: fmt.Sprintf("device.attributes[%q].profile == %q", v1alpha1.Driver, profile),
				}}},
			}}},
		}}},
	}}
}

// fixedCase is a layout of all GPUs, and what so many pods of a round ask for.
type fixedCase struct {
	layout  layout
	profile string
	pods    int
}

// fixedCases are the cases of mig.stock_ratio. Devices are listed by size, so who asks for a larger profile has the scheduler
// look at all smaller ones of a node first.
var fixedCases = []fixedCase{{sevenths, "1g.10gb", shareRound}, {balanced, "1g.10gb", shareRound}, {balanced, "3g.40gb", shareRound / 10}}

// measureFixed is mig.stock_ratio, by layout.
func measureFixed(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := open(ctx, o, o.NodesOr(stockNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	whole := b.inventory
	for _, c := range fixedCases {
		if b.inventory, err = whole.fixed(c.layout); err != nil {
			return nil, err
		}
		if err := b.publish(ctx); err != nil {
			return nil, err
		}
		made, err := b.againstPlain(ctx, c)
		if err := errors.Join(err, b.withdraw(ctx, v1alpha1.Driver)); err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

// againstPlain places plain pods and pods with an instance in turn. Which come first alternates.
func (b *bench) againstPlain(ctx context.Context, c fixedCase) ([]measurement.Row, error) {
	instances := instancePods("instance-"+strings.ReplaceAll(c.profile, ".", "-"), c.profile)
	if err := b.warm(ctx, plainPods, instances); err != nil {
		return nil, err
	}
	var ratios, ours, plain []float64
	var costs [2]outcome
	for run := range b.Rounds() {
		for _, which := range []int{run % 2, 1 - run%2} {
			var err error
			if which == 0 {
				costs[0], err = b.placed(ctx, plainPods, b.Few(plainRound), roundLimit)
			} else {
				profiled := b.profileScheduler(ctx)
				costs[1], err = b.placed(ctx, instances, b.Few(c.pods), roundLimit)
				err = errors.Join(err, profiled())
			}
			if err != nil {
				return nil, err
			}
		}
		plain, ours = append(plain, costs[0].rate()), append(ours, costs[1].rate())
		ratios = append(ratios, costs[1].rate()/costs[0].rate())
	}
	name := fmt.Sprintf("%s of GPUs with %s", c.profile, c.layout.name)
	note := fmt.Sprintf("%d nodes of %d GPUs; pods with an instance against plain pods, alternated; the last round took for each pod with an instance %s, for each plain pod %s",
		b.nodes, len(b.inventory), costs[1].costs(), costs[0].costs())
	return []measurement.Row{
		target.More(migRatio, name+", of plain pods' rate", "", migGoal, ratios, note),
		target.More(migRatio, name+", pods with an instance", "pods/s", 0, ours, ""),
		target.More(migRatio, name+", plain pods", "pods/s", 0, plain, ""),
	}, nil
}

// warm places a few pods that do not count: the first find caches empty and connections closed.
func (b *bench) warm(ctx context.Context, kinds ...kind) error {
	for _, k := range kinds {
		if _, err := b.placed(ctx, k, 20, roundLimit); err != nil {
			return err
		}
	}
	return nil
}

// measureCounters is mig.counters: the same pods where layouts are fixed and where they may change.
func measureCounters(ctx context.Context, o options) (rows []measurement.Row, err error) {
	for _, c := range countedRounds {
		if o.Quick && c.nodes > 10 || o.Nodes > 0 && o.Nodes != c.nodes {
			continue
		}
		made, err := countedAt(ctx, o, c.nodes, o.Few(c.pods), c.runs)
		if err != nil {
			return nil, fmt.Errorf("%d nodes: %w", c.nodes, err)
		}
		rows = append(rows, made...)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("measure %s: it has no row for %d nodes", migCounters, o.Nodes)
	}
	return rows, nil
}

// countedAt measures on so many nodes. Fixed layouts and such as may change alternate on one control plane.
func countedAt(ctx context.Context, o options, nodes, pods, runs int) (rows []measurement.Row, err error) {
	b, err := open(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	fixed, err := b.inventory.fixed(sevenths)
	if err != nil {
		return nil, err
	}
	dynamic, err := b.inventory.dynamic()
	if err != nil {
		return nil, err
	}
	pod := instancePods("seventh", "1g.10gb")
	cases := []counted{{name: "fixed layouts", gpus: fixed}, {name: "layouts that may change, with counters", gpus: dynamic}}
	for range runs {
		for i := range cases {
			if err := cases[i].round(ctx, b, pod, pods); err != nil {
				return nil, err
			}
		}
	}
	for i := range cases {
		rows = append(rows, cases[i].rows(nodes, pods)...)
	}
	return rows, nil
}

// counted is one way to publish, and what became of each round.
type counted struct {
	name     string
	gpus     inventory
	outcomes []outcome
}

func (c *counted) round(ctx context.Context, b *bench, k kind, pods int) error {
	b.inventory = c.gpus
	if err := b.publish(ctx); err != nil {
		return err
	}
	// A few first: with them the scheduler takes in which slices there are.
	if _, err := b.placed(ctx, k, 4, countedLimit); err != nil {
		return err
	}
	o, err := b.placed(ctx, k, pods, countedLimit)
	if err != nil {
		return err
	}
	c.outcomes = append(c.outcomes, o)
	return b.withdraw(ctx, v1alpha1.Driver)
}

func (c *counted) rows(nodes, pods int) []measurement.Row {
	var rates, costs []float64
	least := pods
	for _, o := range c.outcomes {
		rates = append(rates, o.rate())
		costs = append(costs, o.scheduler.Seconds()*1000/float64(max(o.bound, 1)))
		least = min(least, o.bound)
	}
	name := fmt.Sprintf("%d nodes, %s", nodes, c.name)
	note := fmt.Sprintf("all of %d pods were placed", pods)
	if least < pods {
		note = fmt.Sprintf("%d of %d pods were placed in %s", least, pods, countedLimit)
	}
	rows := []measurement.Row{target.More(migCounters, name, "pods/s", 0, rates, note)}
	if least == 0 {
		return rows // of no pod
	}
	cost := target.Less(migCounters, name+", scheduler's processor time for a pod", "ms", 0, costs, "")
	cost.Goal = nil
	return append(rows, cost)
}
