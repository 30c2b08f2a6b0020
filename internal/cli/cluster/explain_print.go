package cluster

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// writeExplanation writes what people read.
func writeExplanation(w *strings.Builder, e *explanation.Explanation, now time.Time) {
	since := ""
	if e.Since != nil {
		since = duration.HumanDuration(now.Sub(*e.Since))
	}
	head := fmt.Sprintf("pod %s of namespace %s ", e.Pod, e.Namespace)
	switch e.State {
	case explanation.Waiting:
		head += "waits, for " + since
	case explanation.Bound:
		head += "is on node " + e.Node
		if since != "" {
			head += ", for " + since
		}
	case explanation.Ended:
		head += "has ended"
	case explanation.Deleted:
		head += "is being deleted"
	}
	fmt.Fprintln(w, head)
	lines := [][2]string{{"scheduler", e.Scheduler}, {"reason", e.Reason}, {"next", e.Next}, {"queue", placeOf(e.Queue)}}
	lines = append(lines, gangLines(e.Gang)...)
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-10s %s\n", line[0]+":", line[1])
		}
	}
	writeClaims(w, e.Claims)
	writeAssigned(w, e.Shares)
}

// placeOf is where a pod stands in its queue.
func placeOf(p *explanation.QueuePlace) string {
	switch {
	case p == nil:
		return ""
	case p.Waiting == 0:
		return p.Name
	}
	return fmt.Sprintf("%s, where %d of %d that wait are tried before", p.Name, p.Ahead, p.Waiting)
}

// mostNamed bounds how many pods a line names.
const mostNamed = 8

func gangLines(g *explanation.Gang) [][2]string {
	if g == nil {
		return nil
	}
	there := g.Ended + len(g.Bound) + len(g.Waiting) + len(g.Extra)
	text := fmt.Sprintf("%s: %d there, of at least %d", g.Name, there, g.Minimum)
	if g.Size > 0 {
		text = fmt.Sprintf("%s: %d of %d there", g.Name, there, g.Size)
		if g.Minimum < g.Size {
			text += fmt.Sprintf(", at least %d run together", g.Minimum)
		}
	}
	if g.Minimum == 0 {
		text = g.Name
	}
	var bound []string
	for _, m := range g.Bound {
		bound = append(bound, m.Pod+" on "+m.Node)
	}
	lines := [][2]string{{"gang", text}, {"topology", g.Topology}, {"fault", g.Fault}}
	for _, part := range []struct {
		title string
		pods  []string
	}{{"bound", bound}, {"waiting", g.Waiting}, {"surplus", g.Extra}} {
		if len(part.pods) > 0 {
			lines = append(lines, [2]string{"  " + part.title, named(part.pods)})
		}
	}
	if g.Ended > 0 {
		lines = append(lines, [2]string{"  ended", fmt.Sprint(g.Ended)})
	}
	if g.Missing > 0 {
		lines = append(lines, [2]string{"  missing", fmt.Sprint(g.Missing)})
	}
	return lines
}

func named(pods []string) string {
	text := fmt.Sprintf("%d: ", len(pods))
	if len(pods) <= mostNamed {
		return text + strings.Join(pods, ", ")
	}
	return text + strings.Join(pods[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(pods)-mostNamed)
}

// writeClaims has a row for each claim, and for each further device that one has.
func writeClaims(w *strings.Builder, claims []explanation.Claim) {
	if len(claims) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"CLAIM", "STATE", "DRIVER", "POOL", "DEVICE", "AMOUNTS"}}
	for _, c := range claims {
		if len(c.Devices) == 0 {
			rows = append(rows, []string{c.Name, string(c.State), "", "", "", ""})
		}
		for i, d := range c.Devices {
			name, state := c.Name, string(c.State)
			if i > 0 {
				name, state = "", ""
			}
			rows = append(rows, []string{name, state, d.Driver, d.Pool, d.Device, amounts(d)})
		}
	}
	writeAligned(w, rows)
}

// writeAssigned has a row for each share, and for each further GPU that one has.
func writeAssigned(w *strings.Builder, shares []explanation.Share) {
	if len(shares) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"SHARE", "NODE", "GPU", "AMOUNTS"}}
	for _, s := range shares {
		for i, d := range s.GPUs {
			name := s.Name
			if i > 0 {
				name = ""
			}
			parts := amounts(d)
			if s.Whole {
				parts = "whole, " + parts
			}
			rows = append(rows, []string{name, d.Pool, d.Device, parts})
		}
	}
	writeAligned(w, rows)
}

func amounts(d explanation.Device) string {
	var parts []string
	if d.Memory > 0 {
		parts = append(parts, v1alpha1.FormatBytes(uint64(d.Memory)))
	}
	if d.Cores > 0 {
		parts = append(parts, fmt.Sprintf("%d cores", d.Cores))
	}
	return strings.Join(parts, ", ")
}
