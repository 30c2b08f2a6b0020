package run

import (
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// away ends the agent as a crash does, lets so much time pass on the GPU, and starts another one.
func (h *host) away(length time.Duration) {
	h.t.Helper()
	before := h.agentPID()
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	h.passed(length)
	h.eventually("another agent serves", func() bool { return h.agentPID() != before })
}

// passed waits until so much time has passed on the GPU.
func (h *host) passed(length time.Duration) {
	h.t.Helper()
	begin := h.truth().At
	h.eventually("time has passed on the GPU", func() bool { return h.truth().At-begin >= uint64(length) })
}

// Shares that compete are accused of nothing when another agent takes them up: it judges what it saw.
func TestRestartAccusesNobody(t *testing.T) {
	h := newHost(t)
	h.work(append(fixed(45), "--name", "one"))
	h.work(append(fixed(45), "--name", "two"))
	h.passed(7 * time.Second) // the driver keeps such figures for seconds
	for range 3 {
		h.away(0)
		h.passed(4 * time.Second)
		for _, e := range h.list().Events {
			if e.Kind == control.EventMisuse {
				t.Errorf("%q is accused: %s", e.Tenant, e.Text)
			}
		}
	}
}

// figures are what the agent tells of a share on its first GPU, and what the driver gave its program.
func (h *host) figures(w worker, name string) (told control.Time, given time.Duration) {
	h.t.Helper()
	tenant, ok := h.tenant(name)
	if !ok || tenant.Shares[0].Time == nil {
		return told, time.Duration(h.truth().Own[w.pid])
	}
	return *tenant.Shares[0].Time, time.Duration(h.truth().Own[w.pid])
}

// The totals of a share go on where the last agent left them, with what it did while none was there.
func TestTotalsOutliveTheAgent(t *testing.T) {
	for name, flags := range map[string][]string{"free": nil, "limited": fixed(40)} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			w := h.work(append(flags, "--name", "s"))
			h.passed(4 * time.Second)
			before, _ := h.figures(w, "s")
			h.away(3 * time.Second)
			var told control.Time
			var given time.Duration
			h.eventually("the agent tells what was used", func() bool {
				told, given = h.figures(w, "s")
				if told.Entitled != 0 && (told.Used < before.Used || told.Entitled < before.Entitled) {
					t.Fatalf("what was told falls: %v of %v, then %v of %v", before.Used, before.Entitled, told.Used, told.Entitled)
				}
				part := float64(told.Used) / float64(given)
				return given > 9*time.Second/2 && part > 0.8
			})
			t.Logf("told %v, entitled to %v, given %v", time.Duration(told.Used), time.Duration(told.Entitled), given)
			if used := time.Duration(told.Used); used > given+given/10 || used > time.Duration(told.Entitled)+500*time.Millisecond {
				t.Errorf("told to have used %v of %v, with a right to %v", used, given, time.Duration(told.Entitled))
			}
		})
	}
}
