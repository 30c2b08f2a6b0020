package integration

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sweep asks everything that NVIDIA's bindings can ask of one GPU.
func sweep(t *testing.T, where place, uuid string) map[string]json.RawMessage {
	t.Helper()
	cmd := where(t, python(t), "testdata/sweep.py", uuid)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask everything: %v: %s", err, said.String())
	}
	answers := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	return answers
}

// A share changes what tells of memory, of processes and of a GPU's number. All
// else passes through it unchanged, errors included.
func TestShareChangesNothingElse(t *testing.T) {
	python(t)
	changed := []string{
		"nvmlDeviceGetBAR1MemoryInfo",
		"nvmlDeviceGetComputeRunningProcesses",
		"nvmlDeviceGetComputeRunningProcesses_v2",
		"nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetIndex",
		"nvmlDeviceGetMemoryInfo",
	}
	moving := []string{"nvmlDeviceGetTotalEnergyConsumption"}
	m := startMachine(t, "h100x8")
	share := m.tenant(t, 6<<30, 5)
	hold(t, m.outside(), "5", "1Gi")
	uuid := m.report(t).GPUs[5].UUID
	outside, inside := sweep(t, m.outside(), uuid), sweep(t, share, uuid)
	if len(outside) < 100 || len(inside) != len(outside) {
		t.Fatalf("the bindings ask %d questions outside and %d inside, want the same 100 or more", len(outside), len(inside))
	}
	for _, name := range slices.Sorted(maps.Keys(outside)) {
		same := string(outside[name]) == string(inside[name])
		switch {
		case slices.Contains(moving, name):
		case slices.Contains(changed, name) && same:
			t.Errorf("%s is the same inside a share: %s", name, inside[name])
		case !slices.Contains(changed, name) && !same:
			t.Errorf("%s is %s outside a share, %s inside", name, outside[name], inside[name])
		}
	}
}
