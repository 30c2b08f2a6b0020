package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/divvy-gpu/divvy/internal/alloc/replay"
)

func replayTable(runs []replay.Result) table {
	var t table
	t.row("POLICY", "SEED", "AT 100%", "AT 130%", "DECISIONS", "REFUSED", "PER SECOND")
	var at100, at130 []float64
	flush := func(policy string) {
		if len(at100) > 1 {
			t.row(policy, "median", hundredths(replay.Median(at100)), hundredths(replay.Median(at130)), "", "", "")
		}
		at100, at130 = nil, nil
	}
	for i, r := range runs {
		if i > 0 && runs[i-1].Policy != r.Policy {
			flush(runs[i-1].Policy)
		}
		t.row(r.Policy, strconv.FormatInt(r.Seed, 10), hundredths(r.AllocatedAt100), hundredths(r.AllocatedAt130),
			strconv.Itoa(r.Decisions), strconv.Itoa(r.Refused), strconv.Itoa(int(r.PerSecond)))
		at100, at130 = append(at100, r.AllocatedAt100), append(at130, r.AllocatedAt130)
	}
	if len(runs) > 0 {
		flush(runs[len(runs)-1].Policy)
	}
	return t
}

func churnTable(runs []replay.ChurnResult) table {
	var t table
	t.row("POLICY", "SEED", "LOAD", "FRAGMENTED", "ARRIVALS", "REFUSED")
	for _, r := range runs {
		t.row(r.Policy, strconv.FormatInt(r.Seed, 10), percent(r.Load), hundredths(r.Fragmented),
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
	file, ok := w.(*os.File)
	if !ok {
		p.w = nil
		return p
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
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
