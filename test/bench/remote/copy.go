package main

import (
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	copyID   = "remote.copy_percent"
	copySize = 256 << 20
)

// copies compares copies of much memory each way.
func (b *bench) copies() ([]measurement.Row, error) {
	ways := func(lines []simulated.Line) []float64 { return []float64{float64(lines[0].To), float64(lines[0].From)} }
	var rows []measurement.Row
	for _, c := range []struct {
		kind string
		goal float64
	}{{"pinned", 90}, {"pageable", 45}} {
		pairs, err := b.pairs(31, ways, "bulk", "--kind", c.kind, "--bytes", fmt.Sprint(copySize), "--count", "3")
		if err != nil {
			return nil, err
		}
		for way, name := range []string{"to the GPU", "from the GPU"} {
			percent := each(pairs[way], func(p pair) float64 { return 100 * p.local / p.remote })
			r := row(copyID, fmt.Sprintf("local, %s, %s", c.kind, name), "%", c.goal, measurement.Higher, percent)
			own, away := medians(pairs[way])
			r.Note = fmt.Sprintf("256 MiB, of each run the median of 3. In a local share they take %.1f ms, remote %.1f ms.", own/1e6, away/1e6)
			rows = append(rows, r)
		}
	}
	return rows, nil
}
