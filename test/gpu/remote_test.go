package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// On a driver that does not tell how the parameters of a kernel lie, the case of backend remote is skipped, with the
// words of `divvy run`.
func TestBundleOnAnOldDriver(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	cmd := bundled(t, folder, "-simgpu", "t4", "-only", "^remote$")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	_, r := reported(t, filepath.Join(folder, reportName))
	if o := r.outcomes()["remote"]; o.Outcome != skipped || !strings.Contains(o.Why, "12.2") {
		t.Errorf("remote: %s, %s, want it skipped", o.Outcome, o.Why)
	}
}

func TestMedianStep(t *testing.T) {
	for out, want := range map[string]float64{
		"": 0,
		"{\"command\":\"step\",\"result\":\"CUDA_ERROR_UNKNOWN\"}\n":                                                          0,
		"{\"step\":0,\"wall_ns\":9}\nnoise\n{\"step\":1,\"wall_ns\":3}\n{\"step\":2,\"wall_ns\":5}\n{\"command\":\"step\"}\n": 5,
	} {
		if got := medianStep(out); got != want {
			t.Errorf("%q: %g, want %g", out, got, want)
		}
	}
}
