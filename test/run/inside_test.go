package run

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// report is the simulated driver's own record.
func (h *host) report() simgpu.Report {
	h.t.Helper()
	var report simgpu.Report
	if err := json.Unmarshal([]byte(h.ok("simgpu", "report", "m", "-o", "json")), &report); err != nil {
		h.t.Fatal(err)
	}
	return report
}

// mostHeld is the most that a share ever held at once.
func mostHeld(report simgpu.Report) (most uint64) {
	for _, tenant := range report.Tenants {
		for _, gpu := range tenant.GPUs {
			if tenant.Tenant != "" {
				most = max(most, gpu.Peak)
			}
		}
	}
	return most
}

// A program that allocates in a signal handler while the driver waits, or that has left a waiting call by siglongjmp,
// gets what its share has and no more.
func TestSignalsInsideTheDriver(t *testing.T) {
	program := filepath.Join(t.TempDir(), "inside")
	if out, err := exec.Command("cc", "-O1", "-o", program, "testdata/inside.c", "-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, out)
	}
	cases := map[string][]string{
		"a jump out of a wait":               {"sync", "leave"},
		"a jump off another stack":           {"sync", "leave", "stack"},
		"jumps of several threads":           {"sync", "leave", "4"},
		"a jump out of an allocation":        {"alloc", "leave"},
		"a jump out of a launch":             {"launch", "leave"},
		"a handler in a wait":                {"sync", "allocate"},
		"a handler on another stack":         {"sync", "allocate", "stack"},
		"a handler in an allocation":         {"alloc", "allocate"},
		"a handler in a launch":              {"launch", "allocate", "4"},
		"a handler in a handler":             {"sync", "nested"},
		"a handler in a handler, own stack":  {"sync", "nested", "stack", "4"},
		"a handler in a handler, allocating": {"alloc", "nested", "4"},
	}
	for name, words := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.ok("simgpu", "inject", "m", "--call", "cuMemAlloc_v2", "--delay", "20ms")
			h.ok("simgpu", "inject", "m", "--call", "cuLaunchKernel", "--delay", "20ms")
			const limit = 4 * gib
			o := h.run(append([]string{"--memory", "4Gi", "--cores", "50", "--", program}, words...)...)
			pieces, err := strconv.Atoi(o.out)
			if o.status != 0 || err != nil {
				t.Fatalf("exit status %d, %q, %s", o.status, o.out, o.err)
			}
			report := h.report()
			if held := mostHeld(report); held > limit || uint64(pieces)*64<<20 > held {
				t.Errorf("the share of %d bytes held %d, and the program got %d pieces", limit, held, pieces)
			}
			// Memory that a jump left behind stays charged; nothing else is refused before the share is used up.
			if jumped := words[0] == "alloc" && words[1] == "leave"; !jumped && pieces < 50 {
				t.Errorf("the program got %d pieces of 64 MiB out of 4 GiB", pieces)
			}
			if report.DeadHandles != 0 {
				t.Errorf("%d dead handles reached the driver", report.DeadHandles)
			}
		})
	}
}
