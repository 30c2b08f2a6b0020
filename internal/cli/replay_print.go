package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// demands are those, in percent of the GPUs, at which a table says what was allocated: the usual ones that arrived, and the last.
func demands(until int) []int {
	all := []int{until}
	for _, usual := range []int{130, 100} {
		if usual < until {
			all = append([]int{usual}, all...)
		}
	}
	slices.Sort(all)
	return all
}

// replayTable has a row for each run, and one with the medians of each policy that has several.
func replayTable(runs []replay.Result) columns.Table {
	var t columns.Table
	if len(runs) == 0 {
		return t
	}
	at := demands(runs[0].Until)
	names := []string{"POLICY", "SEED"}
	for _, percent := range at {
		names = append(names, fmt.Sprintf("AT %d%%", percent))
	}
	t.Row(append(names, "DECISIONS", "REFUSED", "PER SECOND")...)
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].Policy == runs[0].Policy {
			n++
		}
		allocated := make([][]float64, len(at))
		for _, r := range runs[:n] {
			row := []string{r.Policy, strconv.FormatInt(r.Seed, 10)}
			for i, percent := range at {
				allocated[i] = append(allocated[i], r.At(percent))
				row = append(row, hundredths(r.At(percent)))
			}
			t.Row(append(row, strconv.Itoa(r.Decisions), strconv.Itoa(r.Refused), strconv.Itoa(int(r.PerSecond)))...)
		}
		if n > 1 {
			row := []string{runs[0].Policy, "median"}
			for i := range at {
				row = append(row, hundredths(replay.Median(allocated[i])))
			}
			t.Row(append(row, "", "", "")...)
		}
		runs = runs[n:]
	}
	return t
}

func churnTable(runs []replay.ChurnResult) columns.Table {
	var t columns.Table
	t.Row("POLICY", "SEED", "LOAD", "FRAGMENTED", "ARRIVALS", "REFUSED")
	for _, r := range runs {
		t.Row(r.Policy, strconv.FormatInt(r.Seed, 10), percent(r.Load), hundredths(r.Fragmented),
			strconv.Itoa(r.Arrivals), strconv.Itoa(r.Refused))
	}
	return t
}

func hundredths(percent float64) string { return fmt.Sprintf("%.2f%%", percent) }

// progress draws a bar on a terminal, and nothing elsewhere.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	each  []int
	shown int
}

func newProgress(w io.Writer, runs int) *progress {
	p := &progress{w: w, each: make([]int, runs), shown: -1}
	if !program.IsTerminal(w) {
		p.w = nil
	}
	return p
}

func (p *progress) set(run, percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each[run] = min(100, percent)
	sum := 0
	for _, n := range p.each {
		sum += n
	}
	if all := sum / len(p.each); p.w != nil && all != p.shown {
		p.shown = all
		_, _ = fmt.Fprintf(p.w, "\r[%-50s] %3d%%", strings.Repeat("=", all/2), all)
	}
}

// done removes the bar.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil && p.shown >= 0 {
		_, _ = fmt.Fprintf(p.w, "\r%-60s\r", "")
	}
	p.w = nil
}
