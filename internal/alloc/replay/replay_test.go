package replay

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// small is a cluster with room for some dozens of its pods.
func small(t *testing.T) *Trace {
	t.Helper()
	var nodes, pods strings.Builder
	nodes.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range 12 {
		fmt.Fprintf(&nodes, "n%02d,%d,262144,%d,G2\n", i, 16000*(1+i%6), []int{1, 2, 8}[i%3])
	}
	pods.WriteString("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n")
	for i := range 90 {
		count, milli := 1, []int{1000, 470, 320, 810}[i%4]
		switch {
		case i%15 == 0:
			count, milli = 8, 1000
		case i%7 == 0:
			count, milli = 0, 0
		}
		fmt.Fprintf(&pods, "p%03d,%d,4096,%d,%d\n", i, 2000*(1+i%5), count, milli)
	}
	trace := &Trace{Nodes: readNodes(t, nodes.String())}
	var err error
	if trace.Pods, err = ReadPods("pods.csv", strings.NewReader(pods.String()), trace.Nodes); err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestRun(t *testing.T) {
	trace := small(t)
	for _, policy := range alloc.PolicyNames() {
		o := Options{Policy: policy, Seed: 42, Until: 130, Fragmentation: true}
		first, err := trace.Run(context.Background(), o)
		if err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		if first.AllocatedAt100 <= 40 || first.AllocatedAt130 < first.AllocatedAt100-1e-9 || first.AllocatedAt130 > 100 {
			t.Errorf("%s: %.2f %% and then %.2f %% allocated", policy, first.AllocatedAt100, first.AllocatedAt130)
		}
		again, err := trace.Run(context.Background(), o)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("%s: the same seed gave another result, %v", policy, err)
		}
		if trace.Nodes[0].CPUUsed != 0 || trace.Nodes[0].GPUs[0].Granted != 0 {
			t.Fatalf("%s: the replay changed the trace", policy)
		}
	}
}

func TestArrivalsReachTheDemand(t *testing.T) {
	trace := small(t)
	pods, nodes, err := trace.Arrivals(42, 130)
	if err != nil {
		t.Fatal(err)
	}
	demand := int64(0)
	for i := range pods {
		demand += pods[i].Milli
	}
	if want := int64(trace.GPUs()) * 1300; demand < want || demand-pods[len(pods)-1].Milli >= want && len(pods) > len(trace.Pods) {
		t.Errorf("demand %d of %d thousandths", demand, want)
	}
	if len(nodes) != len(trace.Nodes) {
		t.Errorf("%d nodes", len(nodes))
	}
}

func TestChurnSeesTheSameEvents(t *testing.T) {
	trace := small(t)
	var arrivals []int
	for _, policy := range []string{"bestfit", alloc.DefaultPolicy} {
		r, err := trace.Churn(context.Background(), ChurnOptions{Policy: policy, Seed: 1, Load: 70, Events: 3000})
		if err != nil {
			t.Fatal(err)
		}
		if r.Fragmented <= 0 || r.Fragmented >= 100 {
			t.Errorf("%s: %.2f %% fragmented", policy, r.Fragmented)
		}
		arrivals = append(arrivals, r.Arrivals)
	}
	if arrivals[0] != arrivals[1] {
		t.Errorf("arrivals differ: %v", arrivals)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	trace := small(t)
	for name, o := range map[string]Options{
		"until 0":        {Policy: "bestfit"},
		"until too much": {Policy: "bestfit", Until: MostUntil + 1},
	} {
		if _, err := trace.Run(context.Background(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Trace{Nodes: trace.Nodes}).Run(context.Background(), Options{Policy: "bestfit", Until: 100}); !errors.Is(err, ErrOptions) {
		t.Errorf("no pods: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := trace.Run(ctx, Options{Policy: "bestfit", Until: 100}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPlotEscapesAndDrawsMedians(t *testing.T) {
	var svg bytes.Buffer
	err := Plot(&svg, []Result{
		{Policy: "a<b", Curve: []Point{{Arrived: 50, Allocated: 40}, {Arrived: 100, Allocated: 80}}},
		{Policy: "a<b", Curve: []Point{{Arrived: 50, Allocated: 50}, {Arrived: 100, Allocated: 100}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := svg.String()
	// The median of 40 and 50 is at half of the width, and of the upper end only the last point is seen.
	for _, want := range []string{"a&lt;b", "300.0,234.3", "<title>Replay of a trace</title>", "a&lt;b: 90.0%, 0.0% unusable", "prefers-color-scheme: dark", "enlarged"} {
		if !strings.Contains(text, want) {
			t.Errorf("plot lacks %s:\n%s", want, text)
		}
	}
	wellFormed(t, text)
	svg.Reset()
	if err := PlotChurn(&svg, []ChurnResult{
		{Policy: "a<b", Fragmented: 3, Curve: []ChurnPoint{{0, 0}, {100, 4}}}, {Policy: "c", Fragmented: 1, Curve: []ChurnPoint{{0, 0}, {100, 2}}},
	}); err != nil {
		t.Fatal(err)
	}
	text = svg.String()
	if strings.Count(text, "<polyline") != 2 || !strings.Contains(text, "a&lt;b: 3.0% unusable; c: 1.0% unusable") {
		t.Errorf("plot of departures:\n%s", text)
	}
	wellFormed(t, text)
	for _, none := range []func() error{func() error { return Plot(&svg, nil) }, func() error { return PlotChurn(&svg, nil) }} {
		svg.Reset()
		if err := none(); err != nil || strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") {
			t.Errorf("of nothing: %v\n%s", err, svg.String())
		}
		wellFormed(t, svg.String())
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}
