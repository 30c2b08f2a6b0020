package run

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Managed memory is charged on the GPU that was current when it was taken. What a program moves to
// another GPU of its share is not refused there, and is counted there by the driver's figures: told
// where the share's pages do not tell it, and as more than was granted where it is.
func TestManagedMemoryMovedToAnotherGPU(t *testing.T) {
	for name, c := range map[string]struct {
		managed, own string // MiB
		says         string
		least        uint64
	}{
		"within the grant":      {"2048", "0", "and its pages tell of", 2 * gib},
		"more than was granted": {"3072", "3072", "granted", 6 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostOf(t, "h100x8")
			program := filepath.Join(h.rundir, "prefetch")
			if out, err := exec.Command("cc", "-o", program, "testdata/prefetch.c", "-ldl").CombinedOutput(); err != nil {
				t.Fatalf("cc: %v\n%s", err, out)
			}
			s := h.hold([]string{"--gpu", "0,1", "--memory", "4Gi", "--name", "mover"}, program, c.managed, c.own)
			if strings.TrimSpace(s.first) != "moved" {
				t.Fatalf("%q: %s", s.first, s.said)
			}
			var first, second control.Share
			h.eventually("GPU 1's figure tells of it", func() bool {
				mover, ok := h.tenant("mover")
				if !ok || len(mover.Shares) != 2 {
					return false
				}
				first, second = mover.Shares[0], mover.Shares[1]
				return second.Observed != nil && *second.Observed >= c.least && second.Excess != ""
			})
			if !strings.Contains(second.Excess, c.says) || first.Excess != "" {
				t.Errorf("GPU 0: %q, GPU 1: %q; want %q there", first.Excess, second.Excess, c.says)
			}
			if first.Used < 2*gib || second.Used > second.Limit {
				t.Errorf("charged %d bytes on GPU 0 and %d of %d on GPU 1", first.Used, second.Used, second.Limit)
			}
			s.end()
		})
	}
}
