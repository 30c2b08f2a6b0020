package integration

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// tool runs nvidia-smi somewhere and returns what it says and its exit status.
func (m *machine) tool(t *testing.T, where place, args ...string) (text string, status int) {
	t.Helper()
	out, err := where(t, filepath.Join(m.instance.Dir, "nvidia-smi"), args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	must(t, err)
	return string(out), 0
}

// nvidia-smi lists the instances that there are, in its own words; in a share on one, that one.
func TestInstancesByTool(t *testing.T) {
	o := occupy(t)
	var want strings.Builder
	for gpu, parts := range o.all {
		fmt.Fprintf(&want, "GPU %d: NVIDIA H200 (UUID: %s)\n", gpu, o.gpus[gpu].UUID)
		for _, p := range parts {
			profile := map[bool]string{true: "3g.71gb", false: "1g.18gb"}[p.Index == 0]
			fmt.Fprintf(&want, "  MIG %s     Device  %d: (UUID: %s)\n", profile, p.Index, p.UUID)
		}
	}
	if text, _ := o.tool(t, o.outside(), "-L"); text != want.String() {
		t.Errorf("nvidia-smi -L says\n%s, want\n%s", text, want.String())
	}
	inside := fmt.Sprintf("GPU 0: NVIDIA H200 (UUID: %s)\n  MIG 1g.18gb     Device  0: (UUID: %s)\n", o.gpus[0].UUID, o.own().UUID)
	if text, _ := o.tool(t, o.share, "-L"); text != inside {
		t.Errorf("in the share nvidia-smi -L says\n%s, want\n%s", text, inside)
	}
	rows := map[string][]string{
		"-lgi": {
			"|   0  MIG 1g.18gb         19        7          0:1     |", "|   0  MIG 1g.18gb         19        8          1:1     |",
			"|   0  MIG 3g.71gb          9        2          4:4     |", "|   5  MIG 3g.71gb          9        2          4:4     |",
		},
		"-lci": {
			"|   0      7       MIG 1g.18gb          0         0          0:1     |",
			"|   5      2       MIG 3g.71gb          2         0          0:3     |",
		},
		"-lgip": {"|   0  MIG 1g.18gb       19     2/7        16.00      No     16     1     0   |"},
	}
	for list, wanted := range rows {
		text, status := o.tool(t, o.outside(), "mig", list)
		for _, row := range wanted {
			if status != 0 || strings.Count(text, row+"\n") != 1 {
				t.Errorf("nvidia-smi mig %s ends with %d and lacks %s:\n%s", list, status, row, text)
			}
		}
		if text, status := o.tool(t, o.share, "mig", list); status != 4 || !strings.HasSuffix(text, ": Insufficient Permissions\n") {
			t.Errorf("in the share nvidia-smi mig %s ends with %d: %s", list, status, text)
		}
	}
	if text, status := o.tool(t, o.outside(), "mig", "-lgi", "-i", "1"); status != 6 || text != "No MIG-enabled devices found.\n" {
		t.Errorf("nvidia-smi of a GPU without MIG ends with %d: %s", status, text)
	}
}

// nvidia-smi turns the MIG mode of an idle GPU, by a reset on Ampere. What keeps it from that leaves the mode pending, until
// the GPU is reset.
func TestMIGModeByTool(t *testing.T) {
	m := startMachine(t, "a800x8")
	says := func(status int, text string, args ...string) {
		t.Helper()
		if got, ended := m.tool(t, m.outside(), args...); ended != status || !strings.Contains(got, text) {
			t.Errorf("nvidia-smi %s ends with %d: %s; want %d, %s", strings.Join(args, " "), ended, got, status, text)
		}
	}
	mode := func(on, pending bool) {
		t.Helper()
		if g := m.report(t).GPUs[0].MIG; g.On != on || g.Pending != pending {
			t.Errorf("the mode is %v and will be %v, want %v and %v", g.On, g.Pending, on, pending)
		}
	}
	gpu := m.report(t).GPUs[0]
	says(0, "Enabled MIG Mode for GPU 00000000:", "-i", "0", "-mig", "1")
	mode(true, true)
	t.Run("beside a program", func(t *testing.T) {
		hold(t, m.outside(), "1", "1Mi")
		says(0, "Warning: MIG mode is in pending disable state for GPU 00000000:", "--id="+gpu.UUID, "-mig", "DISABLED")
		mode(true, false)
		says(255, "In use by another client", "--gpu-reset", "-i", "0")
		mode(true, false)
	})
	says(0, "was successfully reset.", "--gpu-reset", "-i", "0")
	mode(false, false)
	must(t, m.store.Inject(t.Context(), m.instance, 0, simgpu.Injection{Call: simgpu.CallNoReset}))
	says(0, ":Not Supported\nReboot the system or try nvidia-smi --gpu-reset", "-i", "0", "-mig", "1")
	mode(false, true)
	says(3, "is not supported.", "-r", "-i", "0")
	says(2, "Invalid Multi-Instance GPU mode", "-mig", "2")
	says(255, "Invalid combination", "-mig", "1", "-r")
	says(6, "No devices were found", "-i", "9", "-mig", "1")
	mode(false, true)
}

// In a share nvidia-smi is found by its name, and its figures are the share's.
func TestToolOfAShare(t *testing.T) {
	s := startShell(t, "a100-80g")
	eachLayer(t, func(t *testing.T, layer string) {
		share := s.run(layer, "--memory", "8Gi", "--gpu", "0")
		out, err := share(t, "nvidia-smi").CombinedOutput()
		if err != nil || strings.Count(string(out), "/   8192MiB |") != 1 || !strings.Contains(string(out), "|   0  NVIDIA A100 80GB PCIe ") {
			t.Errorf("nvidia-smi: %v:\n%s", err, out)
		}
		query := []string{"--query-gpu=index,memory.total,memory.used,memory.free,utilization.gpu", "--format=csv"}
		const head = "index, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%]\n"
		out, err = share(t, "nvidia-smi", query...).Output() // divvy may say beside it that its agent has no processor
		if want := head + "0, 8192 MiB, 0 MiB, 8192 MiB, 0 %\n"; err != nil || string(out) != want {
			t.Errorf("nvidia-smi of the share: %v:\n%s, want\n%s", err, out, want)
		}
	})
	out, err := s.outside()(t, "nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits", "-i", "0").CombinedOutput()
	if want := "NVIDIA A100 80GB PCIe, 81920\n"; err != nil || string(out) != want {
		t.Errorf("nvidia-smi of the machine: %v: %q, want %q", err, out, want)
	}
	for _, args := range [][]string{{"--query-gpu=colour", "--format=csv"}, {"--query-gpu=name"}, {"--query-gpu=name", "--format=csv", "-x"}} {
		out, err := s.outside()(t, "nvidia-smi", args...).CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("nvidia-smi %v: %v: %s", args, err, out)
		}
	}
}
