package exposition

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

var update = flag.Bool("update", false, "rewrite golden files")

// teller lists what a test gives it.
type teller struct {
	listing control.Listing
	err     error
	asked   int
}

func (t *teller) Recent(context.Context) (*control.Listing, error) {
	t.asked++
	return &t.listing, t.err
}

func sample() control.Listing {
	return control.Listing{
		SwapMemory: &control.HostMemory{Allowed: 64 << 30, Granted: 20 << 30},
		GPUs: []control.GPU{
			{Index: 0, UUID: "GPU-0", Name: "NVIDIA A100", PCI: "00000000:3B:00.0", Total: 80 << 30, Reserved: 1 << 30, Capacity: 80 << 30, Granted: 12 << 30, TurnRoom: 5 << 30, Used: new(uint64(3 << 30)), Cores: 30, Form: v1alpha1.BackendSlice, Reading: &nvml.Reading{
				Utilisation: new(87), MemoryUtilisation: new(0), Temperature: new(61), Milliwatts: new(uint64(240_500)), LimitMilliwatts: new(uint64(400_000)),
				Millijoules: new(uint64(5_000_000)), ClockMHz: new(1410), MemoryClockMHz: new(1593), Uncorrected: new(uint64(2)),
			}},
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
				ID: "c-1", Name: "team-a/train", Layer: backend.LayerContainer, User: "team-a", Namespace: "team-a", Claim: "train-gpu-x7", Pods: []string{"train"}, Container: "main",
				Suspended: &control.Suspended{State: control.SuspensionWaiting, Since: time.Unix(1_700_000_000, 500_000_000)},
				Shares: []control.Share{{
					UUID: "GPU-0", Limit: 4 << 30, Used: 1 << 30, Observed: new(uint64(5 << 30)), Excess: "it has more", Peak: 2 << 30, Cores: 30, Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline,
					Process:  []control.Process{{PID: 7}},
					Refusals: &control.Refusals{Count: 3, ByGPU: 1, Largest: 1 << 30}, Signalled: 2,
					Time: &control.Time{HeldBack: true, Used: 1_500_000_000, Entitled: 1_700_000_000, Error: new(-0.01), HeldBackTotal: 15_000_000, Yielded: 5_000_000, Charged: 1_600_000_000, Waited: 20_000_000, Launches: 42, Overdrawn: 1},
				}},
			},
			{
				ID: "c-2", Name: "team-a/both", Layer: backend.LayerContainer, User: "team-a", Namespace: "team-a", Claim: "both", Pods: []string{"one", "two"},
				Shares: []control.Share{{
					UUID: "GPU-0", Limit: 8 << 30, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
					Turns: &control.Turns{
						State: control.TurnIn, Swapped: 6 << 30, OnGPU: 5 << 30, Room: 70 << 30, Turns: 3, MovedIn: 40 << 30, MovedOut: 28 << 30, Moving: 5_500_000_000, Held: 61_000_000_000,
						Thrashing: "it moves",
					},
				}},
			},
			{
				ID: "m-4", Name: "side", User: "ada", Layer: control.LayerNamespace, Shares: []control.Share{{
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
		Info:    control.Info{Driver: "550.90.07"},
		Outside: []control.Outside{{PID: 9, UUID: "GPU-1"}},
		Waiting: []control.Waiting{{User: "root"}},
	}
}

func shown(source Source) *Exposition {
	return New(Config{
		Source: source, Node: "gpu-1", Version: "v0.1.0", Log: slog.New(slog.DiscardHandler),
		Faults: func() map[string]string { return map[string]string{"GPU-1": "xid-48", "GPU-4": health.MIGMode} },
		XIDs: func() map[string]health.XIDs {
			return map[string]health.XIDs{"GPU-1": {Count: map[uint64]uint64{48: 2, 13: 1}, Last: 48}}
		},
	})
}

// Whoever asks again and again has the agent look at its tenants once a second.
func TestOneListingAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &teller{listing: sample()}
		l := New(Config{Source: source, Fresh: time.Second})
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

// told is what is answered to a scrape, without the version of Go.
func told(t *testing.T, e *Exposition) string {
	t.Helper()
	answer := httptest.NewRecorder()
	Handler(Probes{}, e).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != ContentType || answer.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%d, %v: %s", answer.Code, answer.Header(), answer.Body)
	}
	return strings.ReplaceAll(answer.Body.String(), runtime.Version(), "go1")
}

// parsed is what Prometheus' own library reads there.
func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return families
}

func TestExposition(t *testing.T) {
	got := told(t, shown(&teller{listing: sample()}))
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
	if got != string(want) {
		t.Errorf("differs from %s:\n%s", golden, got)
	}
	faults, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil || len(faults) > 0 {
		t.Errorf("against the conventions: %v, %v", faults, err)
	}
}

// What changes a share ends none of its series but the one that says what it is.
func TestChangesEndNoSeries(t *testing.T) {
	source := &teller{listing: sample()}
	e := shown(source)
	before := told(t, e)
	s := &source.listing.Tenants[0].Shares[0]
	s.Policy, s.Class, s.Cores, s.Limit = v1alpha1.PolicyBurst, v1alpha1.ClassOffline, 10, 1<<30
	after := told(t, e)
	var gone []string
	for line := range strings.Lines(before) {
		if series, _, found := strings.Cut(line, "} "); found && !strings.Contains(after, series) {
			gone = append(gone, series)
		}
	}
	if len(gone) != 1 || !strings.HasPrefix(gone[0], `divvy_share_info{node="gpu-1",gpu="0",UUID="GPU-0",namespace="team-a",pod="train",container="main",user="",`) {
		t.Errorf("the series that ended: %q", gone)
	}
}

// Whatever users call what they have, each share has one series of each metric, and nobody's name ends a label, obeys a
// terminal or fills a disk.
func TestHostileLabels(t *testing.T) {
	names := []string{
		strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y", strings.Repeat("\xff", 1<<20), strings.Repeat("\x1b[2J", 1000), "\x1b]0;title\a",
		"<script>alert(1)</script>", "a\"} 1\ndivvy_share_info{tenant=\"", `back\slash\`, "\u202egnp.exe", "\xed\xa0\x80", "née 模型", "", "\u009b31m", strings.Repeat("\x00", 4096),
	}
	var l control.Listing
	for i, name := range names {
		l.Tenants = append(l.Tenants, control.Tenant{
			ID: fmt.Sprint("t-", i), Name: name, User: name, Namespace: name, Claim: name, Container: name, Pods: []string{name},
			Shares: []control.Share{{UUID: "GPU-0", Time: &control.Time{}}, {UUID: "GPU-0"}},
		})
		l.GPUs = append(l.GPUs, control.GPU{Index: i, UUID: fmt.Sprint("GPU-", i), Name: name})
	}
	text := told(t, shown(&teller{listing: l}))
	if most := len(names) * len(shareFamilies) * 20 * longestValue; len(text) > most {
		t.Errorf("%d bytes, at most %d", len(text), most)
	}
	if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
		t.Errorf("%q is told as it is", text[at:min(at+20, len(text))])
	}
	for name, f := range parsed(t, text) {
		if strings.HasPrefix(name, "divvy_share_") && len(f.GetMetric()) != len(names) && len(f.GetMetric()) != 0 {
			t.Errorf("%s has %d series of %d shares", name, len(f.GetMetric()), len(names))
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := len([]rune(l.GetValue())); n > 10*longestValue {
					t.Errorf("%s: a label of %d characters", name, n)
				}
			}
		}
	}
}

func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		"plain-name": "plain-name", "née 模型": "née 模型", "<b>&amp;": "<b>&amp;",
		`a"b\c`: `a\"b\\c`, "a\nb": `a\\nb`, "\x1b[0m": `\\x1b[0m`, "\u202e": `\\u202e`, "a\xffb": "a?b",
		strings.Repeat("x", 256): strings.Repeat("x", 256), strings.Repeat("ü", 257): strings.Repeat("ü", 256) + "…",
	} {
		if got := value(text); got != want {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}

// Of a share under MPS there is a ceiling, and none of the figures that only time slices have.
func TestWhatMPSCannotHave(t *testing.T) {
	got := told(t, shown(&teller{listing: sample()}))
	for name, want := range map[string]bool{
		"sm_ceiling_ratio": true, "memory_limit_bytes": true, "processes": true,
		"cores": false, "held_back": false, "gpu_seconds_total": false, "charged_gpu_seconds_total": false, "waited_seconds_total": false, "launches_total": false, "overdrawn_launches_total": false,
	} {
		if has := strings.Contains(got, "\ndivvy_share_"+name+`{node="gpu-1",gpu="3",UUID="GPU-3"`); has != want {
			t.Errorf("%s is told: %v", name, has)
		}
	}
	if !strings.Contains(got, `divvy_gpu_form{node="gpu-1",gpu="3",UUID="GPU-3",form="mps"} 1`) || strings.Contains(got, `form=""`) {
		t.Errorf("forms:\n%s", got)
	}
}

// A share that has a MIG instance alone has no part of a GPU's time, and none of it is told.
func TestWhatAShareOfItsOwnInstanceCannotHave(t *testing.T) {
	got := told(t, shown(&teller{listing: sample()}))
	for name, want := range map[string]bool{"memory_limit_bytes": true, "processes": true, "cores": false, "sm_ceiling_ratio": false, "gpu_seconds_total": false} {
		if has := strings.Contains(got, "\ndivvy_share_"+name+`{node="gpu-1",gpu="4",UUID="GPU-4"`); has != want {
			t.Errorf("%s is told: %v", name, has)
		}
	}
}

// Whoever has ended is not told of any more, and an agent that cannot list says so.
func TestEndedTenantsDisappear(t *testing.T) {
	source := &teller{listing: sample()}
	failed := 0
	e := shown(source)
	e.config.Failed = func() { failed++ }
	if got := told(t, e); strings.Count(got, "\ndivvy_share_memory_limit_bytes{") != 5 {
		t.Errorf("five shares:\n%s", got)
	}
	source.listing.Tenants = source.listing.Tenants[1:2]
	got := told(t, e)
	if strings.Count(got, "\ndivvy_share_memory_limit_bytes{") != 1 || strings.Contains(got, "train") || !strings.Contains(got, "divvy_agent_prepared_claims{node=\"gpu-1\"} 1\n") {
		t.Errorf("one share:\n%s", got)
	}
	source.err = errors.New("stuck")
	if got = told(t, e); strings.Contains(got, "divvy_share_") || !strings.Contains(got, "divvy_agent_listing_success{node=\"gpu-1\"} 0\n") || failed != 1 {
		t.Errorf("a listing that fails, counted %d times:\n%s", failed, got)
	}
}

// The page for people has every metric.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range parsed(t, told(t, shown(&teller{listing: sample()}))) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not have %s", name)
		}
	}
}
