package replay

import (
	"fmt"
	"io"
	"strings"
)

// The plot's size and margins, in SVG user units.
const (
	plotWidth, plotHeight = 720, 440
	plotLeft, plotTop     = 60, 30
	plotRight, plotBottom = 170, 50
)

// plotColours are told apart by people with colour blindness (Okabe and Ito).
var plotColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Plot draws, for each policy, the median of its runs as an SVG: what was
// allocated (full lines) and what no request of the trace could use (dashed)
// against what had arrived.
func Plot(w io.Writer, results []Result) error {
	curves, order := medians(results)
	last := 1
	for _, points := range curves {
		for _, p := range points {
			last = max(last, p.Arrived)
		}
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	axes(&svg, last)
	for i, policy := range order {
		colour := plotColours[i%len(plotColours)]
		line(&svg, curves[policy], last, colour, "", func(p Point) float64 { return p.Allocated })
		line(&svg, curves[policy], last, colour, ` stroke-dasharray="4 3"`, func(p Point) float64 { return p.Fragmented })
		y := plotTop + 14 + 18*i
		fmt.Fprintf(&svg, `<path d="M%d %dh22" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-plotRight+12, y-4, colour, plotWidth-plotRight+40, y, escape(policy))
	}
	svg.WriteString("</svg>\n")
	if _, err := io.WriteString(w, svg.String()); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

func axes(svg *strings.Builder, last int) {
	for percent := 0; percent <= 100; percent += 20 {
		y := plotY(float64(percent))
		fmt.Fprintf(svg, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			plotLeft, y, plotWidth-plotRight, plotLeft-6, y+4, percent)
	}
	step := max(10, (last/10+9)/10*10)
	for percent := 0; percent <= last; percent += step {
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", plotX(percent, last), plotHeight-plotBottom+18, percent)
	}
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="middle">GPU demand arrived, %% of capacity</text>`+"\n",
		(plotLeft+plotWidth-plotRight)/2, plotHeight-10)
	fmt.Fprintf(svg, `<text x="%d" y="18">allocated (full) and unusable (dashed), %% of capacity</text>`+"\n", plotLeft)
}

func line(svg *strings.Builder, points []Point, last int, colour, dash string, value func(Point) float64) {
	fmt.Fprintf(svg, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, colour, dash)
	for _, p := range points {
		fmt.Fprintf(svg, "%.1f,%.1f ", plotX(p.Arrived, last), plotY(value(p)))
	}
	svg.WriteString("\"/>\n")
}

func plotX(percent, last int) float64 {
	return plotLeft + float64(percent)*float64(plotWidth-plotLeft-plotRight)/float64(last)
}

func plotY(percent float64) float64 {
	return plotTop + (100-percent)*float64(plotHeight-plotTop-plotBottom)/100
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
