package main

import (
	"math"
	"math/rand/v2"
)

// mix is how often each profile of a GPU with seven compute slices is asked for. Weights are relative.
type mix struct {
	name    string
	weights map[string]float64
}

// sevenths are the kinds of profiles of a GPU with seven compute slices. "1gd" is the one with one compute slice and
// twice the memory.
var sevenths = []string{"1g", "1gd", "2g", "3g", "4g", "7g"}

// named are the four mixes for which rules of placement were compared before this measurement was written.
var named = []mix{
	{"equal", map[string]float64{"1g": 1, "1gd": 1, "2g": 1, "3g": 1, "4g": 0.5}},
	{"1g3g", map[string]float64{"1g": 3, "3g": 1}},
	{"inference", map[string]float64{"1g": 5, "2g": 3, "3g": 2}},
	{"all", map[string]float64{"1g": 4, "1gd": 1, "2g": 2, "3g": 2, "4g": 1, "7g": 0.3}},
}

// The seeds of the drawn mixes. Whoever tunes the policy looks at the first half alone; the second half is for the end.
const (
	firstSeed = 1
	openSeeds = 10
	allSeeds  = 20
)

// drawn makes the mix of a seed: each profile is asked for with probability one half, at least two of them are, and
// each weight lies between a tenth and ten, uniformly in its logarithm.
func drawn(seed uint64) mix {
	random := rand.New(rand.NewPCG(seed, 0))
	m := mix{name: "drawn"}
	for len(m.weights) < 2 {
		m.weights = map[string]float64{}
		for _, profile := range sevenths {
			in, weight := random.IntN(2) == 1, math.Pow(10, 2*random.Float64()-1)
			if in {
				m.weights[profile] = weight
			}
		}
	}
	return m
}
