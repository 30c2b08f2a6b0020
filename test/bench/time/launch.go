package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// A limit of all of the GPU's time does not bind; it is kept because an idle neighbour has a share too.
var (
	unbinding = []string{"--cores", "100", "--policy", "fixed"}
	idle      = []string{"--policy", "weighted"}
)

// launches measures the overhead of a limit that is never reached: the time of a launch call, and the GPU time that
// is lost end to end.
func launches(b *bench) ([]measurement.Row, error) {
	neighbour, err := b.Start(idle, "sleep", "infinity")
	if err != nil {
		return nil, err
	}
	defer neighbour.End()
	rows, err := b.added()
	neighbour.End()
	return rows, errors.Join(err, b.Alone())
}

func (b *bench) added() ([]measurement.Row, error) {
	own, err := b.instructions()
	if err != nil {
		return nil, err
	}
	whole, err := b.wholeCall()
	if err != nil {
		return nil, err
	}
	longer, _ := measurement.Summary(whole, measurement.Lower)
	ns := row("time.launch_added_ns", "", "ns", 50, measurement.Lower, own)
	ns.Note = fmt.Sprintf("Our own instructions, over a driver that does nothing. Of simgpu's driver the launch of a kernel that takes no time "+
		"takes %.0f ns longer in all, with the events that are recorded.", longer)
	rows := []measurement.Row{ns}
	for _, k := range b.cases() {
		if k.window > time.Second {
			continue // nothing is added to 50 ms that could be seen
		}
		var lost []float64
		for range b.runs() {
			percent, err := b.lost(k)
			if err != nil {
				return nil, err
			}
			lost = append(lost, percent)
		}
		rows = append(rows, row("time.launch_added_percent", k.name, "%", 1, measurement.Lower, lost))
	}
	return rows, nil
}

// instructions measures, with a driver that does nothing, how much time a limit adds to a launch: ns, of each run.
func (b *bench) instructions() ([]float64, error) {
	var all []float64
	for range b.runs() {
		text, err := exec.CommandContext(b.Context(), filepath.Join(b.build, "test", "cuda", "cost")).Output()
		if err != nil {
			return nil, fmt.Errorf("count what a launch costs: %w", err)
		}
		const label = "launch, limited, 1 stream:"
		var ns float64
		_, after, found := strings.Cut(string(text), label)
		if _, err := fmt.Sscan(after, &ns); err != nil || !found {
			return nil, fmt.Errorf("count what a launch costs: no line %q in %q", label, text)
		}
		all = append(all, ns)
	}
	return all, nil
}

// wholeCall measures how much time a share adds to the launch of an empty kernel: ns, of each run.
func (b *bench) wholeCall() ([]float64, error) {
	var added []float64
	for range b.runs() {
		var each [2]float64
		for i, flags := range [][]string{nil, unbinding} {
			t, err := b.Start(flags, b.Gpubench, "cost", "--count", "400000", "--bytes", "4096", "--live", "1")
			if err != nil {
				return nil, err
			}
			lines, err := t.Wait(b.Context())
			if err != nil {
				return nil, err
			}
			each[i] = lines[len(lines)-1].Launch
		}
		fmt.Printf("  a launch takes %.0f ns, in a share %.0f ns\n", each[0], each[1])
		added = append(added, each[1]-each[0])
	}
	return added, nil
}

// lost is the part of the kernels' GPU time that is missing in a share.
func (b *bench) lost(k kernels) (float64, error) {
	t, err := b.Start(unbinding, append([]string{b.Gpubench}, k.load()...)...)
	if err != nil {
		return 0, err
	}
	defer t.End()
	pids, since, err := t.Working(1)
	if err != nil {
		return 0, err
	}
	from := since + uint64(settle)
	inside, err := b.Percent(pids, from, from+uint64(k.window))
	t.End()
	var native float64
	if err == nil {
		native, err = b.native(k)
	}
	fmt.Printf("  %-24s native %.2f, in a share %.2f\n", k.name, native, inside)
	return 100 * (1 - inside/native), err
}
