package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Results of NVML that the bindings pass on.
const (
	invalidArgument = 2
	notFound        = 6
)

// look is what testdata/look.py prints.
type look struct {
	Devices    []device        `json:"devices"`
	PastTheEnd json.RawMessage `json:"past_the_end"`
	// Topology holds a level or an error for each pair.
	Topology [][]json.RawMessage `json:"topology"`
	// Near and OfCPU hold UUIDs: of GPUs near each one, and near each CPU.
	Near   [][]string                 `json:"near"`
	OfCPU  [][]string                 `json:"of_cpu"`
	ByName map[string]json.RawMessage `json:"by_name"`
}

type device struct {
	Index    int       `json:"index"`
	UUID     string    `json:"uuid"`
	Name     string    `json:"name"`
	PCI      string    `json:"pci"`
	Minor    int       `json:"minor"`
	Memory   memory    `json:"memory"`
	Memory2  memory    `json:"memory2"`
	BAR1     uint64    `json:"bar1"`
	GPU      int       `json:"gpu"`
	Compute  []process `json:"compute"`
	Compute1 []process `json:"compute1"`
	Graphics []process `json:"graphics"`
}

type memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Free     uint64 `json:"free"`
	Reserved uint64 `json:"reserved"`
}

type process struct {
	PID    int    `json:"pid"`
	Memory uint64 `json:"memory"`
}

// lookAround runs NVIDIA's bindings.
func lookAround(t *testing.T, where place, env []string, names ...string) look {
	t.Helper()
	cmd := where(t, python(t), append([]string{"testdata/look.py"}, names...)...)
	cmd.Env = append(cmd.Env, env...)
	var errors strings.Builder
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("look through NVML: %v: %s", err, errors.String())
	}
	var found look
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	return found
}

// failed checks that an answer is the error with this number.
func failed(t *testing.T, what string, answer json.RawMessage, code int) {
	t.Helper()
	if want := fmt.Sprintf(`{"error": %d}`, code); string(answer) != want {
		t.Errorf("%s: %s, want %s", what, answer, want)
	}
}

func TestBindingsOutsideAShare(t *testing.T) {
	python(t)
	m := startMachine(t, "h100x8")
	h := hold(t, m.outside(), "3", "1Gi")
	truth := m.report(t)
	found := lookAround(t, m.outside(), nil, truth.GPUs[5].UUID)
	if len(found.Devices) != len(truth.GPUs) {
		t.Fatalf("NVML shows %d GPUs, the machine has %d", len(found.Devices), len(truth.GPUs))
	}
	for i, gpu := range truth.GPUs {
		shown := found.Devices[i]
		if shown.UUID != gpu.UUID || shown.Memory.Total != gpu.Total || shown.Index != i {
			t.Errorf("GPU %d is shown as %+v, is %+v", i, shown, gpu)
		}
		if want := gpu.Used + gpu.Reserved; shown.Memory.Used != want {
			t.Errorf("GPU %d: %d bytes are shown as used, %d are", i, shown.Memory.Used, want)
		}
	}
	if got := found.Devices[3].Compute; len(got) != 1 || got[0].PID != h.PID {
		t.Errorf("GPU 3 is used by %+v, want process %d", got, h.PID)
	}
	if len(found.Near[0]) != 4 || len(found.OfCPU[0]) != 4 {
		t.Errorf("near GPU 0 are %v, near CPU 0 %v, want the 4 GPUs of the other node and of its own", found.Near[0], found.OfCPU[0])
	}
	failed(t, "a GPU past the last", found.PastTheEnd, invalidArgument)
	if got := string(found.ByName[truth.GPUs[5].UUID]); got != strconv.Quote(truth.GPUs[5].UUID) {
		t.Errorf("looking for GPU 5 by UUID finds %s", got)
	}
}

func TestBindingsInsideAShare(t *testing.T) {
	python(t)
	const limit = 4 << 30
	m := startMachine(t, "h100x8")
	// The order of the grant is not that of the machine.
	share := m.tenant(t, limit, 5, 2)
	stranger := hold(t, m.outside(), "2", "3Gi")
	own := hold(t, share, "0", "1Gi")
	truth := m.report(t)
	foreign := truth.GPUs[3]
	// NVML takes no notice of CUDA's variable, so a share does not either.
	found := lookAround(t, share, []string{"CUDA_VISIBLE_DEVICES=1"}, foreign.UUID, foreign.PCI, truth.GPUs[5].UUID)
	if len(found.Devices) != 2 {
		t.Fatalf("the share shows %d GPUs, want 2", len(found.Devices))
	}
	var users []process
	for i, number := range []int{2, 5} {
		shown, gpu := found.Devices[i], truth.GPUs[number]
		if shown.UUID != gpu.UUID || shown.Index != i || shown.Minor != number {
			t.Errorf("GPU %d of the share is %+v, want GPU %d of the machine, %s", i, shown, number, gpu.UUID)
		}
		held := heldBy(truth, own.PID, number)
		if shown.Memory.Total != limit || shown.Memory.Used != held || shown.Memory.Free != limit-held {
			t.Errorf("GPU %d of the share shows %+v, want total %d, used %d", i, shown.Memory, limit, held)
		}
		if shown.Memory2 != shown.Memory {
			t.Errorf("GPU %d of the share: version 2 of memory is %+v, version 1 %+v", i, shown.Memory2, shown.Memory)
		}
		if shown.BAR1 > limit {
			t.Errorf("GPU %d of the share: BAR1 of %d bytes", i, shown.BAR1)
		}
		for _, user := range append(shown.Compute, shown.Compute1...) {
			if user.PID == stranger.PID {
				t.Errorf("GPU %d of the share shows a stranger's process %+v", i, user)
			}
			if user.PID == own.PID && user.Memory != held {
				t.Errorf("GPU %d of the share: own process holds %d bytes, is shown as %+v", i, held, user)
			}
		}
		users = append(users, shown.Compute...)
	}
	if len(users) != 1 || users[0].PID != own.PID {
		t.Errorf("the share's processes are %+v, want %d alone", users, own.PID)
	}
	failed(t, "a GPU past the share's last", found.PastTheEnd, invalidArgument)
	failed(t, "a foreign UUID", found.ByName[foreign.UUID], notFound)
	failed(t, "a foreign bus address", found.ByName[foreign.PCI], notFound)
	if got := string(found.ByName[truth.GPUs[5].UUID]); got != strconv.Quote(truth.GPUs[5].UUID) {
		t.Errorf("looking for a GPU of the share by UUID finds %s", got)
	}
	// GPU 2 is near CPU 0, GPU 5 is not; they meet only at the host's root.
	if want := truth.GPUs[5].UUID; !slices.Equal(found.Near[0], []string{want}) {
		t.Errorf("near GPU 2 are %v, want GPU 5 of the share alone, %s", found.Near[0], want)
	}
	if want := truth.GPUs[2].UUID; !slices.Equal(found.OfCPU[0], []string{want}) {
		t.Errorf("near CPU 0 are %v, want GPU 2 of the share alone, %s", found.OfCPU[0], want)
	}
	if got := string(found.Topology[0][1]); strings.Contains(got, "error") {
		t.Errorf("topology between the share's GPUs: %s", got)
	}
}

// monitorIn is what nvitop shows.
func monitorIn(t *testing.T, where place, interpreter string) string {
	t.Helper()
	cmd := where(t, interpreter, "-m", "nvitop", "--once", "--ascii")
	cmd.Env = append(cmd.Env, "COLUMNS=120", "LINES=100", "TERM=dumb")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nvitop: %v: %s", err, text)
	}
	return string(text)
}

func TestMonitor(t *testing.T) {
	interpreter := python(t)
	m := startMachine(t, "h100x8")
	share := m.tenant(t, 6<<30, 4)
	stranger := hold(t, m.outside(), "4", "2Gi")
	own := hold(t, share, "0", "1Gi")
	whole, part := monitorIn(t, m.outside(), interpreter), monitorIn(t, share, interpreter)
	for _, pid := range []int{stranger.PID, own.PID} {
		if !strings.Contains(whole, strconv.Itoa(pid)) {
			t.Errorf("outside a share nvitop does not show process %d:\n%s", pid, whole)
		}
	}
	if strings.Contains(part, strconv.Itoa(stranger.PID)) || !strings.Contains(part, strconv.Itoa(own.PID)) {
		t.Errorf("inside a share nvitop shows process %d or not %d:\n%s", stranger.PID, own.PID, part)
	}
	total := fmt.Sprintf("%.2fGiB", float64(m.report(t).GPUs[4].Total)/(1<<30))
	if got := strings.Count(whole, total); got != 8 {
		t.Errorf("outside a share nvitop shows %d GPUs of %s, want 8:\n%s", got, total, whole)
	}
	if strings.Contains(part, total) || strings.Count(part, "/ 6144MiB") != 1 {
		t.Errorf("inside a share nvitop does not show one GPU of 6144MiB:\n%s", part)
	}
}

// spin keeps a GPU busy until the test ends.
func spin(t *testing.T, where place, device string) {
	t.Helper()
	cmd := where(t, filepath.Join(prefix(t), "bin", "gpubench"), "spin", "--device", device,
		"--count", "1000000", "--ns", "1000000")
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		cmd.Wait()
	})
}

// until looks again and again until what is seen is what is awaited.
func until(t *testing.T, where place, what string, seen func(look) bool) look {
	t.Helper()
	deadline := time.Now().Add(longest)
	for {
		found := lookAround(t, where, nil)
		if seen(found) {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: last seen %+v", what, found)
		}
	}
}

func TestLoadInsideAShare(t *testing.T) {
	python(t)
	m := startMachine(t, "a100-80g")
	share := m.tenant(t, 4<<30, 0)
	spin(t, m.outside(), "0")
	until(t, m.outside(), "a stranger's load", func(l look) bool { return l.Devices[0].GPU > 90 })
	if busy := lookAround(t, share, nil).Devices[0].GPU; busy != 0 {
		t.Errorf("a stranger's load shows as %d %% inside a share that is idle", busy)
	}
	spin(t, share, "0")
	until(t, share, "the share's own load", func(l look) bool {
		return l.Devices[0].GPU > 20 && l.Devices[0].GPU < 80
	})
}
