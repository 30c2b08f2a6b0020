package main

import (
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	launchID = "remote.launch_ns"
	callID   = "remote.call_us"
)

// calls measures the client's time for a launch, which does not wait, and for two calls that do.
func (b *bench) calls() ([]measurement.Row, error) {
	pairs, err := b.pairs(15, func(lines []simulated.Line) []float64 { return []float64{lines[len(lines)-1].Launch} },
		"cost", "--count", "50000", "--bytes", "4096", "--live", "1")
	if err != nil {
		return nil, err
	}
	launch := row(launchID, "local", "ns", 200, measurement.Lower, each(pairs[0], func(p pair) float64 { return p.remote }))
	own, _ := medians(pairs[0])
	launch.Note = fmt.Sprintf("In bursts of 256. In a local share a launch takes %.0f ns.", own)

	var figures [4][]float64
	for range b.times(15) {
		lines, err := b.gpubench(remote, "calls", "--count", "20000")
		if err != nil {
			return nil, err
		}
		for i, ns := range []uint64{lines[0].AskP50, lines[0].AskP99, lines[0].WaitP50, lines[0].WaitP99} {
			figures[i] = append(figures[i], float64(ns)/1e3)
		}
	}
	rows := []measurement.Row{launch}
	for i, name := range []string{"local, cuMemGetInfo, p50", "local, cuMemGetInfo, p99", "local, cuStreamSynchronize of an idle stream, p50", "local, cuStreamSynchronize of an idle stream, p99"} {
		rows = append(rows, row(callID, name, "µs", []float64{5, 50}[i%2], measurement.Lower, figures[i]))
	}
	return rows, nil
}
