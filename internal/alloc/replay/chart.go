package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// The size of a chart: rows of characters, and columns to the left of the points.
const (
	chartRows  = 6
	chartLabel = 9
)

// Chart draws what each queue used against what it was entitled to, as text no wider than 100 columns: '#' is used within the
// entitlement, '+' beyond it, and '.' is entitlement that is not used. Each column is the mean of a part of the time.
func (r *QueueResult) Chart(w *strings.Builder) {
	for i := range r.Series {
		r.Series[i].chart(w, time.Duration(r.Seconds*float64(time.Second)))
	}
}

func (s *QueueSeries) chart(w *strings.Builder, all time.Duration) {
	of := string(s.Unit)
	if s.Model != "" {
		of += " (" + s.Model + ")"
	}
	fmt.Fprintf(w, "%s%s, %s: on average %s used, %s entitled\n", strings.Repeat("  ", min(s.depth, 8)), s.Queue, of, written(s.Unit, s.Used), written(s.Unit, s.Entitled))
	highest := slices.MaxFunc(s.Points, byScale)
	top := max(highest.Used, highest.Entitled)
	if top == 0 {
		return
	}
	for row := chartRows; row > 0; row-- {
		level := top * (float64(row) - 0.5) / chartRows
		var line strings.Builder
		for _, p := range s.Points {
			line.WriteByte(cell(p.Used >= level, p.Entitled >= level))
		}
		label := ""
		if row == chartRows {
			label = written(s.Unit, top)
		}
		fmt.Fprintf(w, "%*s |%s\n", chartLabel, label, strings.TrimRight(line.String(), " "))
	}
	fmt.Fprintf(w, "%*s +%s\n", chartLabel, "0", strings.Repeat("-", points))
	fmt.Fprintf(w, "%*s  0%*s\n", chartLabel, "", points-1, length(all))
}

func cell(used, entitled bool) byte {
	switch {
	case used && entitled:
		return '#'
	case used:
		return '+'
	case entitled:
		return '.'
	}
	return ' '
}

// written is an amount with at most two digits after the point.
func written(unit v1alpha1.QueueUnit, n float64) string {
	switch unit {
	case v1alpha1.UnitMemory:
		return fmt.Sprintf("%.4gGi", n/(1<<30))
	case v1alpha1.UnitCores:
		return fmt.Sprintf("%.0f%%", n)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", n), "0"), ".")
}

// length writes a time in its two largest units.
func length(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%.0fs", d.Seconds())
}
