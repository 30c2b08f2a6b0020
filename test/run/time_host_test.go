package run

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// worker is a share whose program gives the GPU work until it is killed.
type worker struct {
	*holder
	pid int
}

// work starts gpubench load in a share and returns when it works.
func (h *host) work(flags []string, load ...string) worker {
	h.t.Helper()
	if len(load) == 0 {
		load = []string{"--ns", "1000000"}
	}
	flags = append([]string{"--memory", "1Gi"}, flags...)
	// The limit ends the program after a test that was killed.
	s := h.hold(flags, append([]string{h.bench(), "load", "--seconds", "3600"}, load...)...)
	w := worker{s, s.cmd.Process.Pid}
	h.t.Cleanup(w.kill)
	return w
}

// kill ends the worker; a second call does nothing.
func (w worker) kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		w.end()
	}
}

// truth is what the simulated driver knows: its clock and the GPU time of each process, in ns.
type truth struct {
	At   uint64         `json:"t"`
	Busy uint64         `json:"busy"` // of all processes, also of those that have ended
	Own  map[int]uint64 `json:"pids"`
}

func (h *host) truth() truth {
	h.t.Helper()
	text, err := exec.Command(h.tree.Program("simgpuctl"), "oracle", h.instance).Output()
	var now truth
	if err == nil {
		err = json.Unmarshal(text, &now)
	}
	if err != nil {
		h.t.Fatalf("simgpuctl oracle: %v: %q", err, text)
	}
	return now
}

// moment is long enough for a coarse figure.
const moment = 1500 * time.Millisecond

// parts returns the percentage of GPU time that each worker gets during the next moment.
func (h *host) parts(workers ...worker) []float64 {
	h.t.Helper()
	first := h.truth()
	last := first
	h.eventually("a moment has passed on the GPU", func() bool {
		last = h.truth()
		return last.At-first.At >= uint64(moment)
	})
	var list []float64
	for _, w := range workers {
		list = append(list, 100*float64(last.Own[w.pid]-first.Own[w.pid])/float64(last.At-first.At))
	}
	return list
}

// settled waits until the workers' parts are as described: the arbiter takes some
// decisions until a start or a change has its effect.
func (h *host) settled(what string, as func(parts []float64) bool, workers ...worker) {
	h.t.Helper()
	var parts []float64
	deadline := time.Now().Add(longest)
	for time.Now().Before(deadline) {
		if parts = h.parts(workers...); as(parts) {
			return
		}
	}
	h.t.Errorf("%s: the parts are %.0f", what, parts)
}

// agentPID returns the pid of the agent that serves the host's machine.
func (h *host) agentPID() int {
	h.t.Helper()
	return h.list().Info.PID
}

// fixed returns the flags of a share with a hard cap.
func fixed(cores int) []string {
	return []string{"--policy", "fixed", "--cores", strconv.Itoa(cores)}
}

func busy(t *testing.T, h *host, w worker) {
	t.Helper()
	before := h.truth().Own[w.pid]
	h.eventually("the tenant goes on", func() bool { return h.truth().Own[w.pid] > before+uint64(20*time.Millisecond) })
}
