package main

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	launchID = "remote.launch_ns"
	callID   = "remote.call_us"
)

// calls measures the client's time for a launch, which does not wait, and for two calls that do.
func (b *bench) calls() (rows []measurement.Row, err error) {
	h, err := b.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, c := range []struct {
		name  string
		away  []string
		goals [3]float64
	}{{"local", remote, [3]float64{200, 5, 50}}, {"TLS", tls(near), [3]float64{400, 30, 150}}} {
		launch, err := b.launches(c.name, c.away, c.goals[0])
		if err != nil {
			return nil, err
		}
		waits, err := b.waits(c.name, c.away, c.goals[1:])
		if err != nil {
			return nil, err
		}
		rows = append(append(rows, launch), waits...)
	}
	return rows, nil
}

func (b *bench) launches(name string, away []string, goal float64) (r measurement.Row, err error) {
	pairs, err := b.pairs(away, 15, func(lines []simulated.Line) []float64 { return []float64{lines[len(lines)-1].Launch} },
		"cost", "--count", "50000", "--bytes", "4096", "--live", "1")
	if err != nil {
		return r, err
	}
	r = row(launchID, name, "ns", goal, measurement.Lower, each(pairs[0], func(p pair) float64 { return p.remote }))
	own, _ := medians(pairs[0])
	r.Note = fmt.Sprintf("In bursts of 256. In a local share a launch takes %.0f ns.", own)
	return r, nil
}

func (b *bench) waits(name string, away []string, goals []float64) (rows []measurement.Row, err error) {
	var figures [4][]float64
	for range b.times(15) {
		lines, err := b.gpubench(away, "calls", "--count", "20000")
		if err != nil {
			return nil, err
		}
		for i, ns := range []uint64{lines[0].AskP50, lines[0].AskP99, lines[0].WaitP50, lines[0].WaitP99} {
			figures[i] = append(figures[i], float64(ns)/1e3)
		}
	}
	for i, what := range []string{"cuMemGetInfo, p50", "cuMemGetInfo, p99", "cuStreamSynchronize of an idle stream, p50", "cuStreamSynchronize of an idle stream, p99"} {
		rows = append(rows, row(callID, name+", "+what, "µs", goals[i%2], measurement.Lower, figures[i]))
	}
	return rows, nil
}
