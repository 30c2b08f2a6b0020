package run

import (
	"math"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// used is the GPU time that the agent tells of a share on its first GPU.
func (h *host) used(name string) time.Duration {
	h.t.Helper()
	tenant, ok := h.tenant(name)
	if !ok || tenant.Shares[0].Time == nil {
		h.t.Fatalf("the agent knows no time of %s: %+v", name, tenant)
	}
	return time.Duration(tenant.Shares[0].Time.Used)
}

// apart is a program that works on the host's GPU without a share.
func (h *host) apart(load ...string) worker {
	h.t.Helper()
	cmd := exec.Command(h.bench(), append([]string{"load", "--seconds", "3600"}, load...)...)
	cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+h.instance)
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	w := worker{&holder{cmd: cmd, input: input}, cmd.Process.Pid}
	h.t.Cleanup(w.kill)
	busy(h.t, h, w)
	return w
}

// agrees compares what the agent tells of a share with what the simulated driver gave it, over some seconds of GPU time. The two are
// asked one after the other: where this process waits for a processor between them they differ by that, over more seconds by less.
func (h *host) agrees(w worker, name string, within float64) {
	h.t.Helper()
	const span, longSpan = 4 * time.Second, 30 * time.Second
	told, true0 := h.used(name), h.truth().Own[w.pid]
	var part float64
	h.eventually("enough was used", func() bool {
		given := time.Duration(h.truth().Own[w.pid] - true0)
		part = float64(h.used(name)-told) / float64(given)
		return given > span && math.Abs(part-1) <= within || given > longSpan
	})
	if h.t.Logf("%s is told to have used %.3f of what it had", name, part); math.Abs(part-1) > within {
		h.t.Errorf("%s is told to have used %s of the true time", name, strconv.FormatFloat(part, 'f', 3, 64))
	}
}

// Beside programs without a share the agent tells what a share had, not what its launches took with theirs between them.
func TestTimeBesideProcessesWithoutAShare(t *testing.T) {
	h := newHost(t)
	w := h.work(append(fixed(30), "--name", "beside"), "--ns", "20000000")
	h.settled("thirty", func(p []float64) bool { return p[0] > 27 && p[0] < 33 }, w)
	h.apart("--ns", "1000000")
	h.settled("it has what it was promised beside them", func(p []float64) bool { return p[0] > 26 && p[0] < 34 }, w)
	h.agrees(w, "beside", 0.1)
}

// A share alone on its GPU is not measured by its library, and the driver's figures tell what it used, also of processes
// that have ended.
func TestTimeOfAShareAlone(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		within  float64
	}{
		"all the time": {"$0 load --seconds 4", 0.02},
		"in pieces":    {"$0 load --seconds 5 --work 130 --pause 370", 0.05},
		"short pieces": {"$0 load --seconds 5 --ns 500000 --work 20 --pause 47", 0.08},
		"once":         {"$0 spin --count 300 --ns 1000000", 0.1},
		"processes":    {"for i in 1 2 3 4 5 6 7 8; do $0 spin --count 100 --ns 1000000; done", 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			const tries = 3 // an agent that has no processor for seconds misses what the driver tells for seconds alone
			for try := 1; ; try++ {
				told, given := h.alone(c.command)
				part := float64(told) / float64(given)
				if t.Logf("%v of %v: %.3f", told, given, part); math.Abs(part-1) <= c.within {
					return
				}
				if try == tries {
					t.Fatalf("%v is told of %v", told, given)
				}
			}
		})
	}
}

// alone runs a command in a share that has its GPU for itself, and returns the GPU time that the agent tells and the driver gave.
func (h *host) alone(command string) (told, given time.Duration) {
	h.t.Helper()
	before := h.truth().Busy
	s := h.hold([]string{"--memory", "1Gi", "--name", "alone"}, "sh", "-c", "{ "+command+"; } >/dev/null; echo done; read x", h.bench())
	ended := time.Now()
	h.eventually("its time is known", func() bool {
		tenant, _ := h.tenant("alone")
		if tenant.Shares[0].Time.Limited {
			h.t.Fatal("it is measured")
		}
		return tenant.Shares[0].Time.UsedUntil.After(ended)
	})
	told, given = h.used("alone"), time.Duration(h.truth().Busy-before)
	s.end()
	h.eventually("the share has ended", func() bool { _, there := h.tenant("alone"); return !there })
	return told, given
}

// What another program does on the GPU without a share is not the share's.
func TestTimeOfAShareAloneBesideOthers(t *testing.T) {
	h := newHost(t)
	w := h.work([]string{"--name", "beside"}, "--work", "30", "--pause", "20")
	h.apart("--work", "100", "--pause", "200")
	h.agrees(w, "beside", 0.25)
}
