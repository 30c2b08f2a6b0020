package main

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	stepID  = "remote.step_ratio"
	smallID = "remote.small_ratio"
)

// stepCase is a share that is compared with a local one.
type stepCase struct {
	id, name  string
	away      []string
	ns, count int
	goal      float64
}

// steps compares a step of a program: of each run its median step, of the runs the median ratio.
func (b *bench) steps() (rows []measurement.Row, err error) {
	h, err := b.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	longer, err := h.lengthen()
	if err != nil {
		return nil, err
	}
	defer longer.close()
	for _, c := range []stepCase{
		{stepID, "local", remote, 60_000, 40, 1.01},
		{stepID, "TLS over loopback", tls(near), 60_000, 40, 1.025},
		{stepID, "TLS, each round trip 200 µs longer", tls(far), 60_000, 40, 1.07},
		{smallID, "local", remote, 5_000, 300, 1.15},
	} {
		r, err := b.step(c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) step(c stepCase) (r measurement.Row, err error) {
	pairs, err := b.pairs(c.away, 21, medianStep, "step", "--ns", fmt.Sprint(c.ns), "--count", fmt.Sprint(c.count))
	if err != nil {
		return r, err
	}
	r = row(c.id, c.name, "", c.goal, measurement.Lower, each(pairs[0], func(p pair) float64 { return p.remote / p.local }))
	own, away := medians(pairs[0])
	r.Note = fmt.Sprintf("A step has 294 launches of %d µs, 8 copies of 16 KiB, of which 4 are from pageable memory, and 4 waits; "+
		"of each run of %d steps the median counts. In a local share it takes %.3f ms, remote %.3f ms.",
		c.ns/1000, c.count, own/1e6, away/1e6)
	return r, nil
}

func medianStep(lines []simulated.Line) []float64 {
	var walls []float64
	for _, l := range lines {
		if l.Wall > 0 {
			walls = append(walls, float64(l.Wall))
		}
	}
	return []float64{middle(walls)}
}
