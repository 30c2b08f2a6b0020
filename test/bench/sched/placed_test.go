package main

import (
	"encoding/json"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func TestMetric(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",verb="POST"} 7
apiserver_request_total{code="200",resource="leases",verb="POST"} 2
apiserver_request_total{code="200",resource="pods",verb="GET"} 1e+03
apiserver_request_total_other{verb="POST"} 50
plain 3
`
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"apiserver_request_total", []string{`verb="POST"`}, 9},
		{"apiserver_request_total", []string{`verb="POST"`, `resource="leases"`}, 2},
		{"apiserver_request_total", nil, 1009},
		{"plain", nil, 3},
		{"missing", nil, 0},
	} {
		if got := metric(text, c.name, c.labels...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// Pods whose claims the scheduler makes name different ones, and carry what they hold.
func TestNamedClaims(t *testing.T) {
	k, err := namedPods("share", smallShare)
	if err != nil {
		t.Fatal(err)
	}
	a, b := podOf(k, 1), podOf(k, 2)
	if *a.Spec.ResourceClaims[0].ResourceClaimName == *b.Spec.ResourceClaims[0].ResourceClaimName || a.Spec.SchedulerName != ours {
		t.Errorf("two pods name %v", *a.Spec.ResourceClaims[0].ResourceClaimName)
	}
	var made map[string]resourcev1.ResourceClaimSpec
	if err := json.Unmarshal([]byte(a.Annotations[v1alpha1.ClaimsAnnotation]), &made); err != nil ||
		len(made[*a.Spec.ResourceClaims[0].ResourceClaimName].Devices.Requests) != 1 {
		t.Errorf("annotations: %v: %v", a.Annotations, err)
	}
}

// What pods of the trace ask is what a replay places.
func TestTraceKinds(t *testing.T) {
	trace, err := readTrace(checkout)
	if err != nil {
		t.Fatal(err)
	}
	pods, _, err := trace.Arrivals(42, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods[:500] {
		k, err := traceKind("t", &pods[i].Request)
		if err != nil {
			t.Fatalf("%+v: %v", pods[i].Request, err)
		}
		if k.gpus() != (pods[i].Request.Count > 0) {
			t.Fatalf("%+v: %+v", pods[i].Request, k)
		}
		if k.claim == "" {
			continue
		}
		var claim resourcev1.ResourceClaimSpec
		if err := json.Unmarshal([]byte(k.claim), &claim); err != nil {
			t.Fatal(err)
		}
		asked := claim.Devices.Requests[0].Exactly
		memory := asked.Capacity
		if pods[i].Request.Whole != (memory == nil) || int(asked.Count) != pods[i].Request.Count {
			t.Fatalf("%+v asks %+v", pods[i].Request, asked)
		}
		if memory != nil {
			if quantity := memory.Requests[v1alpha1.CapacityMemory]; quantity.Value()*1000/traceGPU*int64(asked.Count) != pods[i].Milli {
				t.Fatalf("%+v of %d thousandths asks %+v", pods[i].Request, pods[i].Milli, asked)
			}
		}
	}
}

// The ratio and the processor times are of the kinds that they are said to be of.
func TestRatesByKind(t *testing.T) {
	var r rates
	share := outcome{bound: 100, took: time.Second, scheduler: 200 * time.Millisecond, server: 600 * time.Millisecond}
	plain := outcome{bound: 200, took: time.Second, scheduler: 800 * time.Millisecond, server: 200 * time.Millisecond}
	r.add([3]outcome{share, plain, {bound: 300, took: time.Second}})
	const costs = "the last round took for each pod with a share scheduler 2.0 ms, API server 6.0 ms, for each plain pod scheduler 4.0 ms, API server 1.0 ms"
	if r.costs != costs {
		t.Errorf("costs are %q", r.costs)
	}
	if r.ofPlain[0] != 0.5 || r.ofStock[0] != 1.5 || r.cpu[0] != 2 {
		t.Errorf("of plain pods %v, plain pods %v, processor time %v", r.ofPlain, r.ofStock, r.cpu)
	}
}
