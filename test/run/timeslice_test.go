package run

import (
	"strings"
	"testing"
)

// Shares of backend timeslice have limits of memory, and the driver divides the GPU's time among them: no launch of theirs
// is counted or waits, and the GPU is shared in no other way until they have ended.
func TestTimesliceLeavesTimeToTheDriver(t *testing.T) {
	h := newHost(t)
	timeslice := func(name string) []string { return []string{"--backend", "timeslice", "--name", name} }
	a, b := h.work(timeslice("a")), h.work(timeslice("b"))
	h.settled("the driver's slices", func(p []float64) bool { return p[0] > 30 && p[1] > 30 && p[0]+p[1] > 80 }, a, b)
	for _, name := range []string{"a", "b"} {
		share, _ := h.tenant(name)
		if s := share.Shares[0]; s.Time == nil || s.Time.Limited || s.Time.Charged != 0 || s.Backend != "timeslice" {
			t.Errorf("%s: %+v with %+v", name, s, s.Time)
		}
	}
	h.eventually("the driver's figures are told", func() bool {
		share, _ := h.tenant("a")
		return share.Shares[0].Time.Percent != nil && *share.Shares[0].Time.Percent > 20
	})
	if text := h.ok("ls", "--simgpu", "m"); !strings.Contains(text, "BACKEND") || !strings.Contains(text, "timeslice") {
		t.Errorf("the list does not tell the backend:\n%s", text)
	}
	if o := h.run("--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "shares of backend timeslice") {
		t.Errorf("a share of backend slice beside them: %+v", o)
	}
	if o := h.divvy("set", "a", "--simgpu", "m", "--cores", "20"); o.status == 0 || !strings.Contains(o.err, "backend timeslice") {
		t.Errorf("cores for such a share: %+v", o)
	}
	limited := append([]string{"--memory", "1Gi"}, timeslice("c")...)
	if o := h.run(append(limited, "--", h.bench(), "alloc", "--bytes", "64Mi", "--count", "100")...); !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("memory past the limit: %+v", o)
	}
	a.kill()
	b.kill()
	h.eventually("the GPU is free", func() bool { return len(h.list().Tenants) == 0 })
	if o := h.run("--memory", "1Gi", "--cores", "30", "--", "true"); o.status != 0 {
		t.Errorf("a share of backend slice after them: %+v", o)
	}
}
