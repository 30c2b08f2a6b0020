package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// One GPU about which NVML answers with its unknown error is left out, and the others are served. When the driver tells of
// it, it is served too, without anybody starting the agent again. If the error comes later, only that GPU is faulty.
func TestRefusedGPU(t *testing.T) {
	h := newHostOf(t, "h100x8")
	h.silence("--call", "nvml", "--return", "999")
	kept := h.holdOn(0, "kept")
	l := h.list()
	if len(l.GPUs) != 7 || !slices.Equal(l.LeftOut, []int{1}) || !strings.Contains(l.Refused[1], "NVML result 999") {
		t.Fatalf("listed %+v, left out %v, because %v", l.GPUs, l.LeftOut, l.Refused)
	}
	for _, command := range []string{"ls", "doctor"} {
		if o := h.divvy(command); !strings.Contains(o.out, "GPU 1 is left out: the driver answers about it with an error") {
			t.Errorf("%s: %+v", command, o)
		}
	}
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 125 {
		t.Errorf("a share of the GPU: %+v", o)
	}
	pid := l.Info.PID

	h.silence("--clear")
	h.eventually("the GPU is served", func() bool { return isWell(h.list()) })
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("a share of the GPU that is told of now: %+v", o)
	}

	h.silence("--call", "nvml", "--return", "999")
	h.eventually("the GPU is faulty", func() bool {
		l := h.list()
		return len(l.GPUs) == 8 && strings.Contains(l.GPUs[1].Fault, "NVML result 999")
	})
	if o := h.run("--gpu", "2", "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("a share of another GPU: %+v", o)
	}
	l = h.list()
	if s := share(l, "kept"); l.Info.PID != pid || s == nil || len(s.Process) != 1 || s.Used < gib {
		t.Errorf("agent %d, now %d; the share that ran: %+v", pid, l.Info.PID, s)
	}
	kept.end()
}

// A GPU in MIG mode is listed with its form and given to nobody as a whole, not even at the agent's first moment.
func TestMIGMode(t *testing.T) {
	h := newHostOf(t, "h100x8", "--set", "gpus[1].migMode=true")
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "is in MIG mode") {
		t.Errorf("a share of it: %+v", o)
	}
	if o := h.run("--backend", "mps", "--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "is in MIG mode") {
		t.Errorf("a share of it by MPS: %+v", o)
	}
	if o := h.run("--gpus", "8", "--memory", "1Gi", "--", "true"); o.status != 125 {
		t.Errorf("shares of all GPUs: %+v", o)
	}
	kept := h.holdOn(0, "kept")
	divided := func(g control.GPU) bool { return g.Form == v1alpha1.BackendMIG }
	l := h.list()
	if len(l.GPUs) != 8 || !divided(l.GPUs[1]) || l.GPUs[1].Fault != "" || slices.IndexFunc(l.GPUs[2:], divided) >= 0 {
		t.Errorf("listed %+v", l.GPUs)
	}
	kept.end()
}
