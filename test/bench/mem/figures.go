package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// usable fills a share with blocks of 2 MiB. The overhead is what the oracle says one context takes.
func usable(b *bench) ([]measurement.Row, error) {
	var runs []float64
	for _, limit := range []uint64{2 * gib, 8 * gib, 40 * gib} {
		r, err := b.run(b.share(limit, "alloc", "--bytes", "2Mi", "--count", "100000"))
		if err != nil {
			return nil, err
		}
		// What is shown as free before the first allocation is the limit less the shown overhead.
		shown := r.Free + r.Allocated
		runs = append(runs, 100*float64(r.Allocated)/float64(shown))
		if r.Allocated > limit {
			return nil, fmt.Errorf("a share of %d bytes allocated %d", limit, r.Allocated)
		}
	}
	row := measurement.Of("mem.usable_percent", "%", 99.9, measurement.Higher, command, runs...)
	row.Note = "limits of 2, 8 and 40 GiB"
	return []measurement.Row{row}, nil
}

// cost pairs gpubench with and without the library; a run's figure is the difference of medians of 21 batches.
func cost(b *bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	var launches []float64
	for _, live := range []string{"1", "50000"} {
		var pairs []float64
		for range 7 {
			args := []string{"cost", "--count", "400000", "--bytes", "4096", "--live", live}
			native, err := b.run(b.native(args...))
			if err != nil {
				return nil, err
			}
			ours, err := b.run(b.share(8*gib, args...))
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, ours.PairNs-native.PairNs)
			launches = append(launches, ours.LaunchNs-native.LaunchNs)
		}
		row := measurement.Of("mem.alloc_added_ns", "ns", 150, measurement.Lower, command, pairs...)
		row.Case = live + " live"
		rows = append(rows, row)
	}
	return append(rows, measurement.Of("mem.launch_added_ns", "ns", 5, measurement.Lower, command, launches...)), nil
}

// start compares the processor time from the first instruction of main to the end of cuInit.
func start(b *bench) ([]measurement.Row, error) {
	var one []float64
	for range 21 {
		added, err := b.startAdded(1)
		if err != nil {
			return nil, err
		}
		one = append(one, added...)
	}
	row := measurement.Of("mem.init_added_ms", "ms", 1, measurement.Lower, command, one...)
	row.Case = "one start"
	added, err := b.startAdded(b.starts)
	if err != nil {
		return nil, err
	}
	many := measurement.Of("mem.init_added_ms", "ms", 1, measurement.Lower, command, added...)
	many.Case = fmt.Sprintf("%d concurrent starts", b.starts)
	return []measurement.Row{row, many}, nil
}

// startAdded compares starts with and without the library rank by rank: the quickest with the quickest, the
// slowest with the slowest.
func (b *bench) startAdded(count int) ([]float64, error) {
	native, err := b.concurrent(count, b.divvy, "simgpu", "exec", machine, "--")
	if err != nil {
		return nil, err
	}
	ours, err := b.concurrent(count, b.divvy, "run", "--simgpu", machine, "--memory", "8Gi", "--")
	if err != nil {
		return nil, err
	}
	for i := range ours {
		ours[i] -= native[i]
	}
	return ours, nil
}

// concurrent starts all processes of one tenant at once and returns their processor times in ms, ascending. A
// shell starts them, because what `divvy run` itself takes is counted in the process that it becomes.
func (b *bench) concurrent(count int, argv ...string) ([]float64, error) {
	script := fmt.Sprintf("for i in $(seq %d); do %s init & done; wait", count, b.gpubench)
	text, err := b.output(append(argv, "sh", "-c", script)...)
	if err != nil {
		return nil, err
	}
	return startTimes(text, count)
}

// crash runs the library's own crash injection: a process is killed after every store and every instruction
// of the operations on a page, another one reaps, and the totals are compared with the survivors' balances.
func crash(b *bench) ([]measurement.Row, error) {
	text, err := exec.Command(filepath.Join(b.build, "test", "share", "crash"), "--full").Output()
	if err != nil {
		return nil, fmt.Errorf("inject crashes: %w: %s", err, text)
	}
	var found struct {
		Kills       int    `json:"kills"`
		LostBytes   uint64 `json:"lost_bytes"`
		GainedBytes uint64 `json:"gained_bytes"`
		Hangs       int    `json:"hangs"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read what the crash test printed: %w: %q", err, text)
	}
	row := measurement.Of("mem.crash_lost_bytes", "bytes", 0, measurement.Lower, command, float64(found.LostBytes+found.GainedBytes))
	row.Note = fmt.Sprintf("%d kills, %d hangs", found.Kills, found.Hangs)
	if found.Hangs > 0 {
		return nil, fmt.Errorf("%d of %d crashes left a hang", found.Hangs, found.Kills)
	}
	return []measurement.Row{row}, nil
}

const racers = 8

// race lets processes of one tenant allocate against each other; the oracle knows what they truly held at most,
// and gpubench judges the refusals from its own log.
func race(b *bench) ([]measurement.Row, error) {
	if err := b.fresh(context.Background()); err != nil {
		return nil, err
	}
	const limit = 8 * gib
	overhead, err := b.contextBytes()
	if err != nil {
		return nil, err
	}
	r, err := b.run(b.share(limit, "storm", "--processes", strconv.Itoa(racers),
		"--count", strconv.FormatUint(b.allocations, 10), "--limit", strconv.FormatUint(limit-racers*overhead, 10)))
	if err != nil {
		return nil, err
	}
	if r.Failed {
		return nil, fmt.Errorf("a process of the race failed: %+v", r)
	}
	report, err := b.oracle()
	if err != nil {
		return nil, err
	}
	peak := tenantPeak(report)
	over := measurement.Of("mem.over_admitted_bytes", "bytes", 0, measurement.Lower, command, float64(max(peak, limit)-limit))
	over.Note = fmt.Sprintf("oracle's peak %d of %d bytes, %d allocations, %d refused", peak, uint64(limit), r.Allocations, r.Refused)
	wrong := measurement.Of("mem.false_refusals", "count", 0, measurement.Lower, command, float64(r.FalseRefusals))
	wrong.Note = fmt.Sprintf("a request fits if whole free blocks of 2 MiB hold it; %d of the %d refusals were of requests below "+
		"2 MiB whose process had as many bytes left in blocks of its own, where the driver might have placed them",
		r.RefusedRoom, r.Refused)
	return []measurement.Row{over, wrong}, nil
}

// contextBytes is what the oracle says one context takes.
func (b *bench) contextBytes() (uint64, error) {
	holder, err := b.hold(b.native("hold", "--bytes", "2Mi"))
	if err != nil {
		return 0, err
	}
	defer holder.end()
	report, err := b.oracle()
	if err != nil {
		return 0, err
	}
	for _, process := range report.Processes {
		if len(process.GPUs) > 0 && process.GPUs[0].Context > 0 {
			return process.GPUs[0].Context, nil
		}
	}
	return 0, fmt.Errorf("the oracle shows no context of process %d", holder.pid)
}

// holders are ended together, also when a measurement fails.
type holder struct {
	command *exec.Cmd
	pid     int
	once    sync.Once
}
