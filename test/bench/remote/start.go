package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	startID  = "remote.start_ms"
	workerID = "remote.worker_mib"
)

// starts measures what cuInit and the first context take beyond a local share, and what memory the worker has afterwards.
func (b *bench) starts() ([]measurement.Row, error) {
	pairs, err := b.pairs(remote, 41, func(lines []simulated.Line) []float64 { return []float64{float64(lines[0].Start) / 1e6} }, "start")
	if err != nil {
		return nil, err
	}
	r := row(startID, "local", "ms", 40, measurement.Lower, each(pairs[0], func(p pair) float64 { return p.remote - p.local }))
	own, away := medians(pairs[0])
	r.Note = fmt.Sprintf("In a local share they take %.2f ms, remote %.2f ms.", own, away)
	var resident, proportional []float64
	for range b.times(5) {
		memory, err := b.workerMemory()
		if err != nil {
			return nil, err
		}
		resident = append(resident, memory["Rss:"])
		proportional = append(proportional, memory["Pss:"])
	}
	own, _ = measurement.Summary(proportional, measurement.Lower)
	w := row(workerID, "local", "MiB", 12, measurement.Lower, resident)
	w.Note = fmt.Sprintf("All that is resident (Rss) of the worker of a program that makes steps of remote.step_ratio, with our library, the simulated driver, and "+
		"the rings and pinned memory that the program has too. Where pages of several processes count once (Pss), it is %.1f MiB. "+
		"A card's own driver comes on top, in a worker as in a program with a local share.", own)
	return []measurement.Row{r, w}, nil
}

// workerMemory is what a worker has in memory while its program works, in MiB.
func (b *bench) workerMemory() (map[string]float64, error) {
	before, err := b.record()
	if err != nil {
		return nil, err
	}
	// More steps than are made before it is ended.
	t, err := b.Start(remote, b.Gpubench, "step", "--ns", "60000", "--count", "100000")
	if err != nil {
		return nil, err
	}
	defer t.End()
	pid, err := b.worker()
	if err == nil {
		err = b.until("the GPU works", func(r *simgpu.Report) bool { return r.GPUs[0].BusyNs > before.GPUs[0].BusyNs+100_000_000 })
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil, fmt.Errorf("read the memory of the worker: %w", err)
	}
	memory := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		var name string
		var kib float64
		if n, _ := fmt.Sscan(line, &name, &kib); n == 2 {
			memory[name] = kib / 1024
		}
	}
	t.End()
	return memory, b.Alone()
}
