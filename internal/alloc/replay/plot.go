package replay

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The plot's size and margins, in SVG user units.
const (
	plotWidth, plotHeight = 760, 440
	plotLeft, plotTop     = 60, 44
	plotRight, plotBottom = 220, 50
	// closerHeight is that of the enlarged upper end, with its margins.
	closerHeight = 240
)

// plotColours are told apart by people with colour blindness (Okabe and Ito), on white and on black.
var plotColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888"}

// plotStyle has the colours of all but the curves, for light and dark screens.
const plotStyle = `<style>
.paper{fill:#fff}.grid{stroke:#ddd}text{fill:#222}.curve{fill:none;stroke-width:2}
@media (prefers-color-scheme: dark){.paper{fill:#111}.grid{stroke:#444}text{fill:#eee}}
</style>
`

// panel is a part of a plot with axes of its own, from and to these values.
type panel struct {
	top, height  float64
	fromX, toX   float64
	fromY, toY   float64
	stepX, stepY float64
	below        string
}

func (p panel) x(value float64) float64 {
	return plotLeft + (value-p.fromX)*(plotWidth-plotLeft-plotRight)/(p.toX-p.fromX)
}

func (p panel) y(value float64) float64 {
	return p.top + (p.toY-value)*p.height/(p.toY-p.fromY)
}

// axes draws the grid and its numbers.
func (p panel) axes(svg *strings.Builder) {
	for value := p.fromY; value <= p.toY+1e-9; value += p.stepY {
		fmt.Fprintf(svg, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
			plotLeft, p.y(value), plotWidth-plotRight, plotLeft-6, p.y(value)+4, value)
	}
	for value := p.fromX; value <= p.toX+1e-9; value += p.stepX {
		fmt.Fprintf(svg, `<text x="%.1f" y="%.1f" text-anchor="middle">%.6g</text>`+"\n", p.x(value), p.top+p.height+18, value)
	}
	fmt.Fprintf(svg, `<text x="%d" y="%.1f" text-anchor="middle">%s</text>`+"\n", (plotLeft+plotWidth-plotRight)/2, p.top+p.height+38, escape(p.below))
}

// mark is a point of a curve.
type mark struct{ x, y float64 }

// line draws the part of a curve that is in the panel.
func (p panel) line(svg *strings.Builder, marks []mark, colour, dash string) {
	fmt.Fprintf(svg, `<polyline class="curve" stroke="%s"%s points="`, colour, dash)
	for _, m := range marks {
		if m.x >= p.fromX && m.x <= p.toX && m.y >= p.fromY && m.y <= p.toY {
			fmt.Fprintf(svg, "%.1f,%.1f ", p.x(m.x), p.y(m.y))
		}
	}
	svg.WriteString("\"/>\n")
}

// drawing is a plot: its title, what it says in words, one entry for each curve, and what draws the curves.
type drawing struct {
	title, subtitle string
	height          int
	legend          []string
	draw            func(svg *strings.Builder)
}

func (d drawing) write(w io.Writer) error {
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n", plotWidth, d.height)
	fmt.Fprintf(&svg, "<title>%s</title>\n<desc>%s. %s.</desc>\n", escape(d.title), escape(d.subtitle), escape(strings.Join(d.legend, "; ")))
	svg.WriteString(plotStyle)
	fmt.Fprintf(&svg, `<rect class="paper" width="%d" height="%d"/>`+"\n", plotWidth, d.height)
	fmt.Fprintf(&svg, `<text x="%d" y="18" font-weight="bold">%s</text><text x="%d" y="34">%s</text>`+"\n", plotLeft, escape(d.title), plotLeft, escape(d.subtitle))
	d.draw(&svg)
	for i, entry := range d.legend {
		y := plotTop + 14 + 18*i
		fmt.Fprintf(&svg, `<path d="M%d %dh22" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-plotRight+12, y-4, hueOf(i), plotWidth-plotRight+40, y, escape(entry))
	}
	svg.WriteString("</svg>\n")
	if _, err := io.WriteString(w, svg.String()); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

func hueOf(curve int) string { return plotColours[curve%len(plotColours)] }

// Plot draws, for each policy, the median of its runs as an SVG: what was allocated (full lines) and what no request of
// the trace could use (dashed) against what had arrived, and below it the upper end of what was allocated, enlarged.
func Plot(w io.Writer, results []Result) error {
	curves, order := medians(results)
	last := 1.0
	for _, points := range curves {
		for _, p := range points {
			last = max(last, float64(p.Arrived))
		}
	}
	whole := panel{top: plotTop, height: plotHeight - plotTop - plotBottom, toX: last, toY: 100, stepX: stepOf(last), stepY: 20, below: "GPU demand arrived, % of capacity"}
	d := drawing{title: "Replay of a trace", subtitle: "allocated (full) and unusable (dashed), % of capacity", height: plotHeight + closerHeight}
	upper := upperEnd(curves, last)
	d.draw = func(svg *strings.Builder) {
		whole.axes(svg)
		upper.axes(svg)
		for i, policy := range order {
			allocated, unusable := marksOf(curves[policy])
			whole.line(svg, allocated, hueOf(i), "")
			whole.line(svg, unusable, hueOf(i), ` stroke-dasharray="4 3"`)
			upper.line(svg, allocated, hueOf(i), "")
		}
	}
	for _, policy := range order {
		end := Point{}
		if points := curves[policy]; len(points) > 0 {
			end = points[len(points)-1]
		}
		d.legend = append(d.legend, fmt.Sprintf("%s: %.1f%%, %.1f%% unusable", policy, end.Allocated, end.Fragmented))
	}
	return d.write(w)
}

// upperEnd is the panel with the last quarter of the demand, from the least that was allocated there.
func upperEnd(curves map[string][]Point, last float64) panel {
	from, least, most := math.Floor(0.75*last), 100.0, 0.0
	for _, points := range curves {
		for _, p := range points {
			if float64(p.Arrived) >= from {
				least, most = min(least, p.Allocated), max(most, p.Allocated)
			}
		}
	}
	low, high := math.Floor(min(least, 99)), min(100, math.Ceil(most))
	if high <= low {
		high = low + 1
	}
	return panel{
		top: plotHeight + 10, height: closerHeight - 60, fromX: from, toX: max(last, from+1), fromY: low, toY: high, stepX: stepOf(last - from), stepY: max(1, math.Ceil((high-low)/5)),
		below: "the upper end of what was allocated, enlarged",
	}
}

// stepOf is a round distance between about ten numbers of an axis.
func stepOf(length float64) float64 {
	step := 1.0
	for _, factor := range []float64{2, 2.5, 2} {
		if step*10 < length {
			step *= factor
		}
	}
	for step*10 < length {
		step *= 2
	}
	return step
}

func marksOf(points []Point) (allocated, unusable []mark) {
	for _, p := range points {
		allocated = append(allocated, mark{float64(p.Arrived), p.Allocated})
		unusable = append(unusable, mark{float64(p.Arrived), p.Fragmented})
	}
	return allocated, unusable
}

// PlotChurn draws, for each policy, the median of its runs with departures as an SVG: what no request of the trace could
// use against the arrivals and departures that had happened. The runs have curves.
func PlotChurn(w io.Writer, results []ChurnResult) error {
	values := map[string]map[int][]float64{}
	means := map[string][]float64{}
	var order []string
	last, most := 1.0, 1.0
	for _, r := range results {
		if values[r.Policy] == nil {
			values[r.Policy], order = map[int][]float64{}, append(order, r.Policy)
		}
		means[r.Policy] = append(means[r.Policy], r.Fragmented)
		for _, p := range r.Curve {
			values[r.Policy][p.Events] = append(values[r.Policy][p.Events], p.Fragmented)
			last, most = max(last, float64(p.Events)), max(most, p.Fragmented)
		}
	}
	all := panel{
		top: plotTop, height: plotHeight - plotTop - plotBottom, toX: last, toY: math.Ceil(most), stepX: stepOf(last), stepY: stepOf(math.Ceil(most)),
		below: "arrivals and departures",
	}
	d := drawing{title: "Replay of a trace with departures", subtitle: "unusable, % of capacity", height: plotHeight}
	d.draw = func(svg *strings.Builder) {
		all.axes(svg)
		for i, policy := range order {
			var marks []mark
			for events, found := range values[policy] {
				marks = append(marks, mark{float64(events), Median(found)})
			}
			slices.SortFunc(marks, func(a, b mark) int { return int(a.x - b.x) })
			all.line(svg, marks, hueOf(i), "")
		}
	}
	for _, policy := range order {
		d.legend = append(d.legend, fmt.Sprintf("%s: %.1f%% unusable", policy, Median(means[policy])))
	}
	return d.write(w)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
