package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const written = `{"Action":"start","Package":"e2e"}
{"Action":"run","Test":"TestSlots"}
{"Action":"output","Test":"TestSlots/third","Output":"=== RUN third\n"}
{"Action":"pass","Test":"TestSlots/third","Elapsed":12.5}
{"Action":"skip","Test":"TestReplicasToClaims"}
{"Action":"pass","Test":"TestSlots","Elapsed":30}
{"Action":"pass","Package":"e2e","Elapsed":31}
`

func TestScenarios(t *testing.T) {
	var told strings.Builder
	got, err := scenarios(strings.NewReader(written), &told)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Scenario{{"TestSlots/third", true, 12.5}}; !slices.Equal(got, want) || told.String() != "=== RUN third\n" {
		t.Errorf("got %+v and %q", got, told.String())
	}
	// A suite whose cluster does not start has failed without a scenario.
	got, err = scenarios(strings.NewReader(`{"Action":"fail","Test":"TestSlots","Elapsed":3}`), &told)
	if err != nil || len(got) != 1 || got[0].Passed {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := scenarios(strings.NewReader("PASS\n"), &told); err == nil {
		t.Error("text is read as events")
	}
}

func TestCount(t *testing.T) {
	passed, failed := []Scenario{{"TestSlots/a", true, 1}}, []Scenario{{"TestSlots/a", true, 1}, {"TestSlots/b", false, 1}}
	out := t.TempDir()
	for _, r := range []Report{
		{Kubernetes: "v1.32.10", Containerd: "v1.7.30", Date: "2026-01-01", Scenarios: passed},
		{Kubernetes: "v1.32.10", Containerd: "v2.3.7", Date: "2026-01-03", Commit: "last", Scenarios: passed},
		{Kubernetes: "v1.33.7", Containerd: "v2.3.7", Date: "2026-01-02", Scenarios: failed},
		{Kubernetes: "v1.34.4", Containerd: "v2.3.7", Date: "2026-01-02"},
		{Kubernetes: "v1.35.4", Containerd: "v2.3.7", Date: "2026-01-02", Part: "^TestSlots$", Scenarios: passed},
	} {
		if err := r.write(filepath.Join(out, "versions")); err != nil {
			t.Fatal(err)
		}
	}
	if err := count(out); err != nil {
		t.Fatal(err)
	}
	rows, err := measurement.Read(filepath.Join(out, "slots.json"))
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v: %+v", err, rows)
	}
	if r := rows[0]; r.Value != 1 || r.Reached() || r.Commit != "last" || !strings.HasSuffix(r.Note, ": v1.32; not counted: v1.33 with containerd v2.3 (1 of 2), v1.34 with containerd v2.3 (0 of 0), v1.35 with containerd v2.3 (a part, 1 of 1)") {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Value != 1 || !r.Reached() {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(out, "versions", "other.json"), []byte(`{"kubernets":""}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := count(out); err == nil {
		t.Error("a report with an unknown field is counted")
	}
}
