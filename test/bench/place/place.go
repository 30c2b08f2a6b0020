package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	command   = "make bench-place"
	firstSeed = 42
)

// bench is what all measurements need.
type bench struct {
	data  string
	seeds int
	// mixes are those that unseen measures: all, tuning or held.
	mixes string
}

func (b *bench) run(out, only string) error {
	return measurement.Take([]measurement.Figure{
		{IDs: "place.decisions_per_s place.decisions_per_s_15k", Measure: b.speed},
		{IDs: "place.halves", Measure: b.halves},
		{IDs: "place.default place.others", Measure: b.packing},
		{IDs: "place.unseen", Measure: b.unseen},
		{IDs: "place.churn_stranded_ratio", Measure: b.churn},
		{IDs: "place.baseline_error", Measure: b.baselines},
	}, only, out, os.Stdout)
}

func (b *bench) trace(name string) (*replay.Trace, error) {
	nodes := filepath.Join(b.data, "openb_node_list_gpu_node.csv.gz")
	file, err := os.Open(nodes)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t := &replay.Trace{}
	if t.Nodes, err = replay.ReadNodes(nodes, file); err != nil {
		return nil, err
	}
	pods := filepath.Join(b.data, "openb_pod_list_"+name+".csv.gz")
	arrivals, err := os.Open(pods)
	if err != nil {
		return nil, err
	}
	defer arrivals.Close()
	t.Pods, err = replay.ReadPods(pods, arrivals, t.Nodes)
	return t, err
}

// each makes a result for every seed, two at a time.
func each[R any](seeds int, make1 func(seed int64) (R, error)) ([]R, error) {
	results, faults := make([]R, seeds), make([]error, seeds)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i := range seeds {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], faults[i] = make1(firstSeed + int64(i))
		})
	}
	wait.Wait()
	for _, err := range faults {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// allocated is what a policy had allocated at 100 % and at 130 %, by seed.
func (b *bench) allocated(t *replay.Trace, policy string) (at100, at130 []float64, err error) {
	results, err := each(b.seeds, func(seed int64) (replay.Result, error) {
		return t.Run(context.Background(), replay.Options{Policy: policy, Seed: seed, Until: 130})
	})
	for _, r := range results {
		at100, at130 = append(at100, r.AllocatedAt100), append(at130, r.AllocatedAt130)
	}
	return at100, at130, err
}

// published has the medians at 100 % and 130 % in the table of the traces.
var published = map[string]map[string][2]float64{
	"default": {"random": {86.25, 87.38}, "dotproduct": {90.56, 90.80}, "clustering": {91.58, 91.79},
		"packing": {91.81, 92.06}, "bestfit": {92.91, 93.11}, "fgd": {95.23, 95.40}},
	"gpushare40": {"random": {84.96, 86.03}, "dotproduct": {89.34, 89.58}, "clustering": {89.82, 90.06},
		"packing": {89.81, 90.07}, "bestfit": {91.47, 91.73}, "fgd": {93.95, 94.14}},
	"multigpu20": {"random": {86.84, 88.66}, "dotproduct": {91.81, 92.02}, "clustering": {93.38, 93.59},
		"packing": {93.51, 93.75}, "bestfit": {93.73, 93.90}, "fgd": {95.53, 95.65}},
	"cpu050": {"random": {88.98, 91.16}, "dotproduct": {93.06, 93.29}, "clustering": {93.48, 93.79},
		"packing": {93.53, 93.79}, "bestfit": {93.58, 93.82}, "fgd": {95.00, 95.20}},
	"gpuspec10": {"random": {86.31, 87.51}, "dotproduct": {90.25, 90.44}, "clustering": {91.94, 92.19},
		"packing": {92.23, 92.44}, "bestfit": {93.12, 93.33}, "fgd": {94.70, 94.94}},
}

var traces = []string{"default", "gpushare40", "multigpu20", "cpu050", "gpuspec10"}

// packing is place.default and place.others.
func (b *bench) packing() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, name := range traces {
		t, err := b.trace(name)
		if err != nil {
			return nil, err
		}
		at100, at130, err := b.allocated(t, alloc.DefaultPolicy)
		if err != nil {
			return nil, err
		}
		id, fgd := "place.others", published[name]["fgd"]
		goal100, goal130 := fgd[0]+0.5, fgd[1]+0.5
		if name == "default" {
			id, goal100, goal130 = "place.default", 96.0, 96.1
		}
		one := measurement.Of(id, "% allocated", goal100, measurement.Higher, command, at100...)
		one.Case = name + " at 100 %"
		two := measurement.Of(id, "% allocated", goal130, measurement.Higher, command, at130...)
		two.Case = name + " at 130 %"
		rows = append(rows, one, two)
	}
	return rows, nil
}

// baselines is place.baseline_error: the greatest difference of a median from
// the published one, over traces and points.
func (b *bench) baselines() ([]measurement.Row, error) {
	var rows []measurement.Row
	worst := map[string][]float64{}
	policies := []string{"random", "dotproduct", "clustering", "packing", "bestfit", "fgd"}
	for _, name := range traces {
		t, err := b.trace(name)
		if err != nil {
			return nil, err
		}
		for _, policy := range policies {
			at100, at130, err := b.allocated(t, policy)
			if err != nil {
				return nil, err
			}
			want := published[name][policy]
			off := max(math.Abs(replay.Median(at100)-want[0]), math.Abs(replay.Median(at130)-want[1]))
			worst[policy] = append(worst[policy], off)
		}
	}
	for _, policy := range policies {
		goal := 0.3
		if policy == "clustering" || policy == "packing" {
			goal = 0.5
		}
		for i, name := range traces {
			row := measurement.Of("place.baseline_error", "points", goal, measurement.Lower, command, worst[policy][i])
			row.Case, row.Runs = policy+" on "+name, b.seeds
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// churn is place.churn_stranded_ratio: fragmentation against best fit in the
// same run, and the refusals that best fit did not have.
func (b *bench) churn() ([]measurement.Row, error) {
	t, err := b.trace("default")
	if err != nil {
		return nil, err
	}
	results := map[string][]replay.ChurnResult{}
	for _, policy := range []string{"bestfit", alloc.DefaultPolicy, "fragmentation"} {
		results[policy], err = each(min(b.seeds, 4), func(seed int64) (replay.ChurnResult, error) {
			return t.Churn(context.Background(), replay.ChurnOptions{Policy: policy, Seed: seed, Load: 85, Events: 100_000})
		})
		if err != nil {
			return nil, err
		}
	}
	var rows []measurement.Row
	for _, policy := range []string{alloc.DefaultPolicy, "fragmentation"} {
		var ratios, refused []float64
		for i, r := range results[policy] {
			best := results["bestfit"][i]
			ratios = append(ratios, r.Fragmented/best.Fragmented)
			refused = append(refused, float64(r.Refused-best.Refused))
		}
		ratio := measurement.Of("place.churn_stranded_ratio", "× best fit", 0.8, measurement.Lower, command, ratios...)
		ratio.Case = "policy " + policy
		more := measurement.Of("place.churn_stranded_ratio", "more refusals than best fit", 0, measurement.Lower, command, refused...)
		more.Case = "policy " + policy + ", refusals"
		rows = append(rows, ratio, more)
	}
	return rows, nil
}

// halves is place.halves: the most shares on one GPU after 16 halves on 8.
func (b *bench) halves() ([]measurement.Row, error) {
	most, err := placeHalves()
	if err != nil {
		return nil, err
	}
	row := measurement.Of("place.halves", "halves on the fullest of 8 GPUs", 2, measurement.Lower, command, most)
	return []measurement.Row{row}, nil
}
