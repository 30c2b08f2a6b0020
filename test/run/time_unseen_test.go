package run

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/attack"
)

// Processes that end before the driver tells of them, and launch past the library, are
// noticed by what the whole GPU did, and their share pays for them: the cap holds again.
func TestFleetingProcessesAreNoticed(t *testing.T) {
	h := newHost(t)
	if err := attack.BuildFleeting(t.Context(), h.rundir); err != nil {
		t.Fatal(err)
	}
	s := h.hold(append([]string{"--memory", "2Gi", "--name", "liar"}, fixed(10)...), attack.FleetingCommand(h.rundir, 90*time.Millisecond)...)
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); s.end() })
	begun := time.Now()
	h.eventually("it is noticed", func() bool {
		for _, e := range h.list().Events {
			if e.Kind == control.EventMisuse && e.Tenant == "liar" && strings.Contains(e.Text, "end within moments") {
				t.Logf("told after %v: %s", e.Time.Sub(begun).Round(time.Millisecond), e.Text)
				return true
			}
		}
		return false
	})
	var parts float64
	h.eventually("the cap holds again", func() bool {
		first := h.truth()
		last := first
		h.eventually("some seconds have passed on the GPU", func() bool {
			last = h.truth()
			return last.At-first.At >= uint64(6*time.Second)
		})
		parts = 100 * float64(last.Busy-first.Busy) / float64(last.At-first.At)
		t.Logf("it has %.0f %%", parts)
		return parts < 25
	})
}

// Processes that live as shortly and launch through the library are no misuse, alone and
// beside a neighbour.
func TestShortProcessesAreNoMisuse(t *testing.T) {
	for name, neighbour := range map[string]bool{"alone": false, "beside a neighbour": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if neighbour {
				h.work(append(fixed(50), "--name", "neighbour"))
			}
			script := `while "$0" spin --count 10 --ns 3000000; do :; done`
			s := h.hold(append([]string{"--memory", "2Gi", "--name", "honest"}, fixed(40)...), "sh", "-c", script, h.bench())
			t.Cleanup(func() { _ = s.cmd.Process.Kill(); s.end() })
			begin := h.truth()
			h.eventually("some seconds have passed on the GPU", func() bool {
				return h.truth().At-begin.At >= uint64(10*time.Second)
			})
			t.Logf("%v of GPU time", time.Duration(h.truth().Busy-begin.Busy))
			for _, e := range h.list().Events {
				if e.Kind == control.EventMisuse {
					t.Errorf("%s is accused: %s", e.Tenant, e.Text)
				}
			}
		})
	}
}
