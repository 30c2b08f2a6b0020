package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

var update = flag.Bool("update", false, "rewrite golden files")

// teller lists what a test gives it.
type teller struct {
	listing control.Listing
	err     error
	asked   int
}

func (t *teller) Listing(context.Context) (*control.Listing, error) {
	t.asked++
	return &t.listing, t.err
}

func sample() control.Listing {
	return control.Listing{
		GPUs: []control.GPU{
			{Index: 0, UUID: "GPU-0", Name: "NVIDIA A100", Capacity: 80 << 30, Granted: 12 << 30, Used: new(uint64(3 << 30)), Cores: 30, Form: v1alpha1.BackendSlice},
			{Index: 1, UUID: "GPU-1", Name: "NVIDIA A100", Capacity: 80 << 30, Used: new(uint64)},
			{Index: 2, UUID: "GPU-2", Name: "NVIDIA A100", Capacity: 80 << 30, Fault: "it does not answer"},
			{Index: 3, UUID: "GPU-3", Name: "NVIDIA A100", Capacity: 80 << 30, Form: v1alpha1.BackendMPS, Replicas: 4},
			{Index: 4, UUID: "GPU-4", Name: "NVIDIA A100", Capacity: 80 << 30, Form: v1alpha1.BackendMIG, MIG: true, Instances: []control.Instance{
				{
					Part:   backend.Part{Instance: backend.Instance{UUID: "MIG-1", Profile: "1g.10gb", Bytes: 10 << 30, Multiprocessors: 14}, Origin: backend.OriginShare},
					Shares: []control.FormedShare{{Name: "team-a/part"}}, Used: new(uint64(5 << 30)),
				},
				{
					Part:    backend.Part{Instance: backend.Instance{Profile: "2g.20gb", Start: 2, Bytes: 20 << 30, Multiprocessors: 28}, Origin: backend.OriginForeign, Half: "it has no compute instance"},
					Outside: []control.Outside{{PID: 9, UUID: "GPU-4"}},
				},
			}},
		},
		Tenants: []control.Tenant{
			{
				ID: "c-1", Name: "team-a/train", Namespace: "team-a", Claim: "train-gpu-x7", Pods: []string{"train"},
				Shares: []control.Share{{
					UUID: "GPU-0", Limit: 4 << 30, Used: 1 << 30, Observed: new(uint64(5 << 30)), Excess: "it has more", Peak: 2 << 30, Cores: 30, Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline,
					Process: []control.Process{{PID: 7}},
					Time:    &control.Time{HeldBack: true, Used: 1_500_000_000, Charged: 1_600_000_000, Waited: 20_000_000, Launches: 42, Overdrawn: 1},
				}},
			},
			{
				ID: "c-2", Name: "team-a/both", Namespace: "team-a", Claim: "both", Pods: []string{"one", "two"},
				Shares: []control.Share{{UUID: "GPU-0", Limit: 8 << 30, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline}},
			},
			{
				ID: "m-4", Name: "side", Shares: []control.Share{{
					UUID: "GPU-3", Index: 3, Limit: 1 << 30, Cores: 30, Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendMPS,
					Time: &control.Time{Used: 9_000_000_000, Launches: 9},
				}},
			},
			{
				ID: "i-5", Name: "team-a/part", Shares: []control.Share{{
					UUID: "GPU-4", Index: 4, Limit: 10 << 30, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline, Backend: v1alpha1.BackendMIG,
					Instance: &backend.Instance{UUID: "MIG-1", Profile: "1g.10gb"}, Time: &control.Time{Launches: 3},
				}},
			},
			{
				ID: "t-3", Name: "odd\xff\"name\n", // of the command line
				Shares: []control.Share{{UUID: "GPU-1", Index: 1, Limit: 1 << 20}, {UUID: "GPU-1", Index: 1, Limit: 2 << 20}},
			},
		},
		Outside: []control.Outside{{PID: 9, UUID: "GPU-1"}},
		Waiting: []control.Waiting{{User: "root"}},
	}
}

func newMetrics(source Source) *Metrics {
	return New(Config{
		Source: source, Version: "v0.1.0", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Faults: func() map[string]string { return map[string]string{"GPU-1": "xid-48", "GPU-4": health.MIGMode} },
	})
}

// Whoever asks again and again has the agent look at its tenants once a second.
func TestOneListingAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &teller{listing: sample()}
		l := &listing{config: Config{Source: source, Fresh: time.Second}}
		for range 50 {
			if listed, err := l.list(t.Context()); err != nil || len(listed.Tenants) != 5 {
				t.Fatalf("%+v, %v", listed, err)
			}
			time.Sleep(100 * time.Millisecond) // of the bubble's clock
		}
		if source.asked != 5 {
			t.Errorf("asked %d times in five seconds", source.asked)
		}
		source.err = errors.New("away")
		if _, err := l.list(t.Context()); err == nil {
			t.Error("a listing that failed is answered with the last one")
		}
	})
}

// told is what is answered of our own metrics.
func told(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler(Probes{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	var ours strings.Builder
	for _, line := range strings.SplitAfter(answer.Body.String(), "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, "# HELPTY"), "divvy_") && !strings.Contains(line, "goversion") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

func TestExposition(t *testing.T) {
	m := newMetrics(&teller{listing: sample()})
	invalid := errors.New("invalid")
	m.Prepared(30*time.Millisecond, nil)
	m.Prepared(150*time.Millisecond, nil)
	m.Prepared(time.Millisecond, &alloc.Refusal{Reason: alloc.ReasonFull})
	m.Prepared(time.Millisecond, errors.Join(invalid, errors.New("and why")), invalid)
	m.Prepared(time.Minute, errors.New("the disk is full"), invalid)
	m.Released(time.Millisecond, nil)
	m.Released(time.Millisecond, errors.New("the disk is full"))
	m.Failed(OperationPublish)
	got := told(t, m)
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("differs from %s:\n%s", golden, got)
	}
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	faults, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(faults) > 0 {
		t.Errorf("against the conventions: %v, %v", faults, err)
	}
}

// Of a share under MPS there is a ceiling, and none of the figures that only time slices have.
func TestWhatMPSCannotHave(t *testing.T) {
	got := told(t, newMetrics(&teller{listing: sample()}))
	for name, want := range map[string]bool{
		"sm_ceiling_ratio": true, "memory_limit_bytes": true, "processes": true,
		"cores": false, "held_back": false, "gpu_seconds_total": false, "charged_gpu_seconds_total": false, "waited_seconds_total": false, "launches_total": false, "overdrawn_launches_total": false,
	} {
		if has := strings.Contains(got, "\ndivvy_share_"+name+`{claim="",class="online",gpu="GPU-3"`); has != want {
			t.Errorf("%s is told: %v", name, has)
		}
	}
	if !strings.Contains(got, `divvy_gpu_form{form="mps",gpu="GPU-3",index="3"} 1`) || strings.Contains(got, `divvy_gpu_form{form="",`) {
		t.Errorf("forms:\n%s", got)
	}
}

// A share that has a MIG instance alone has no part of a GPU's time, and none of it is told.
func TestWhatAShareOfItsOwnInstanceCannotHave(t *testing.T) {
	got := told(t, newMetrics(&teller{listing: sample()}))
	for name, want := range map[string]bool{"memory_limit_bytes": true, "processes": true, "cores": false, "sm_ceiling_ratio": false, "gpu_seconds_total": false} {
		if has := strings.Contains(got, "\ndivvy_share_"+name+`{claim="",class="offline",gpu="GPU-4"`); has != want {
			t.Errorf("%s is told: %v", name, has)
		}
	}
}

// Whoever has ended is not told of any more, and the counts of what the agent did stay.
func TestEndedTenantsDisappear(t *testing.T) {
	source := &teller{listing: sample()}
	m := newMetrics(source)
	if got := told(t, m); strings.Count(got, "\ndivvy_share_memory_limit_bytes{") != 5 {
		t.Errorf("five shares:\n%s", got)
	}
	source.listing.Tenants = source.listing.Tenants[1:2]
	m.Prepared(time.Millisecond, nil)
	got := told(t, m)
	if strings.Count(got, "\ndivvy_share_memory_limit_bytes{") != 1 || strings.Contains(got, "train") || !strings.Contains(got, "divvy_agent_prepared_claims 1\n") {
		t.Errorf("one share:\n%s", got)
	}
	source.err = errors.New("stuck")
	got = told(t, m)
	if strings.Contains(got, "divvy_share_") || !strings.Contains(got, "divvy_agent_listing_success 0\n") || !strings.Contains(got, `divvy_agent_prepare_duration_seconds_count{result="done"} 1`) {
		t.Errorf("a listing that fails:\n%s", got)
	}
	source.err = nil
	if got := told(t, m); !strings.Contains(got, `divvy_agent_errors_total{operation="list"} 1`) {
		t.Errorf("the failure is not counted:\n%s", got)
	}
}

func TestProbes(t *testing.T) {
	sick := errors.New("the kubelet does not know us yet")
	handler := newMetrics(&teller{}).Handler(Probes{Ready: func() error { return sick }})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/": 404, "/debug/pprof/": 404} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want || want == 503 && !strings.Contains(answer.Body.String(), sick.Error()) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listener, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if _, err := Listen(ctx, address); err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("an address that is taken: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, newMetrics(&teller{}).Handler(Probes{})) }()
	answer, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + address + "/healthz"); err == nil {
		t.Error("it still answers")
	}
}
