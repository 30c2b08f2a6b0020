package users

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// truths are the bytes that the driver has in use on each GPU.
func (s *server) truths() (bytes []uint64) {
	s.t.Helper()
	var report simgpu.Report
	text := s.ok("root", "env", "DIVVY_RUNDIR=/opt/gpus", "divvy", "simgpu", "report", "-o", "json")
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		s.t.Fatal(err)
	}
	for _, g := range report.GPUs {
		bytes = append(bytes, g.Used)
	}
	return bytes
}

// The limit of a share of several GPUs holds on each of them, and it changes and ends on all.
func TestShareOfSeveralGPUs(t *testing.T) {
	s := newServer(t)
	s.agent()
	// A line "DEVICE BYTES" has more allocated there.
	const script = `for device in 0 1; do sleep 100000 | gpubench hold --device $device --bytes 1Gi >/dev/null & done
echo up
while read -r device bytes; do gpubench alloc --device $device --bytes $bytes; done`
	share := s.start("u1", true, "divvy", "run", "--gpu", "2,5", "--memory", "3Gi", "--name", "both", "--", "sh", "-c", script)
	s.eventually("both are used", func() bool { used := s.truths(); return used[2] >= gib && used[5] >= gib })
	for _, memory := range []string{"3Gi", "6Gi"} {
		s.ok("u1", "divvy", "set", "both", "--memory", memory)
		for _, device := range []string{"0", "1"} {
			if _, err := share.input.Write([]byte(device + " 2Gi\n")); err != nil {
				t.Fatal(err)
			}
			said, err := readLine(share.output)
			if refused := strings.Contains(said, "CUDA_ERROR_OUT_OF_MEMORY"); err != nil || refused != (memory == "3Gi") {
				t.Errorf("2Gi more on GPU %s of %s each: %s, %v", device, memory, said, err)
			}
		}
	}
	s.ok("u1", "divvy", "stop", "--grace", "0s", "both")
	share.wait()
	if used := s.truths(); used[2] != 0 || used[5] != 0 {
		t.Errorf("%d and %d bytes are left", used[2], used[5])
	}
}
