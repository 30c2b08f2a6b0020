package run

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/test/escape"
)

// sideBySide returns the flags of a share that runs beside others, with a ceiling.
func sideBySide(name, cores string) []string {
	return []string{"--backend", "mps", "--memory", "1Gi", "--cores", cores, "--name", name}
}

// daemon is the control daemon of the host's first GPU.
func (h *host) daemon() mps.Daemon {
	h.t.Helper()
	return mps.Daemon{
		Program: filepath.Join(h.instance, mps.ControlProgram), Dirs: mps.DirsOf(filepath.Join(h.instance, "mps"), h.list().GPUs[0].UUID),
	}
}

// served waits for the daemon, and returns its process.
func (h *host) served(d mps.Daemon) (id process.ID) {
	h.t.Helper()
	h.eventually("the control daemon runs", func() bool {
		var err error
		id, err = d.Find()
		return err == nil
	})
	return id
}

// unserved waits until nothing is left of the daemon.
func (h *host) unserved(d mps.Daemon, id process.ID) {
	h.t.Helper()
	h.eventually("nothing is left of the control daemon", func() bool {
		_, err := os.Lstat(filepath.Dir(d.Dirs.Pipe))
		return errors.Is(err, os.ErrNotExist) && !id.Alive()
	})
}

// cat is a program that runs until its input ends, and has said so.
var cat = []string{"sh", "-c", "echo runs; exec cat"}

// Shares of MPS have ceilings, which may add up to more than the GPU. A daemon comes with the first and ends with the last,
// and lists tell no GPU time.
func TestMPSShares(t *testing.T) {
	h := newHost(t)
	a := h.hold(sideBySide("a", "30"), cat...)
	d := h.daemon()
	id := h.served(d)
	b := h.hold(sideBySide("b", "80"), cat...)
	if p, err := escape.Percentage(d.Dirs.Log); err != nil || p != 80 {
		t.Errorf("the daemon's limit is %v, %v", p, err)
	}
	share, _ := h.tenant("a")
	if s := share.Shares[0]; s.Mechanism != "MPS, ceiling 30 % of SMs" || s.Time != nil || s.Backend != "mps" {
		t.Errorf("listed: %+v", s)
	}
	if text := h.ok("ls", "--simgpu", "m"); !strings.Contains(text, "a, GPU 0: MPS, ceiling 30 % of SMs") || !strings.Contains(text, "<=80%") {
		t.Errorf("the list is:\n%s", text)
	}
	for _, c := range [][2]string{
		{"--weight 3", "leave out the weight"}, {"--class offline", "none gives way"}, {"--cores 30 --policy burst", "cannot lend SMs"}, {"--gpus 2", "the client of one only"},
	} {
		flags := append(strings.Fields(c[0]), "--backend", "mps", "--", "true")
		if o := h.run(flags...); o.status != 125 || !strings.Contains(o.err, c[1]) {
			t.Errorf("%s: %+v", c[0], o)
		}
	}
	if o := h.run("--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "shares of backend mps") {
		t.Errorf("a share of backend slice beside them: %+v", o)
	}
	h.ok("set", "a", "--simgpu", "m", "--cores", "90")
	if p, err := escape.Percentage(d.Dirs.Log); err != nil || p != 90 {
		t.Errorf("after divvy set the daemon's limit is %v, %v", p, err)
	}
	a.end()
	b.end()
	h.unserved(d, id)
	if o := h.run("--memory", "1Gi", "--cores", "30", "--", "true"); o.status != 0 {
		t.Errorf("a share of backend slice after them: %+v", o)
	}
}

// Who changes the ceiling of a share is told that its programs keep theirs, if there are any.
func TestMPSKeepsCeilings(t *testing.T) {
	h := newHostOf(t, "h100x8").namespaces()
	const told = "programs of a that run keep their ceiling of SMs"
	a := h.hold([]string{"--name", "a", "--backend", "mps", "--memory", "2Gi", "--cores", "30"}, "sh", "-c", "echo; cat")
	if o := h.divvy("set", "a", "--simgpu", "m", "--cores", "40"); o.status != 0 || o.err != "" {
		t.Errorf("without a program that uses the GPU: %+v", o)
	}
	a.end()
	a = h.hold([]string{"--name", "a", "--backend", "mps", "--memory", "2Gi", "--cores", "30"}, h.client(), "plain")
	if o := h.divvy("set", "a", "--simgpu", "m", "--cores", "50"); o.status != 0 || !strings.Contains(o.err, told) {
		t.Errorf("with one: %+v", o)
	}
	if o := h.divvy("set", "a", "--simgpu", "m", "--memory", "3Gi"); o.status != 0 || o.err != "" {
		t.Errorf("another term: %+v", o)
	}
	a.end()
}

// smTruth is what the simulated driver knows of the SMs: its clock, and for how long each process had all of them, in ns.
type smTruth struct {
	At uint64         `json:"t"`
	SM map[int]uint64 `json:"smPids"`
}

func (h *host) smTruth() (now smTruth) {
	h.t.Helper()
	text, err := exec.Command(h.tree.Program("simgpuctl"), "oracle", h.instance).Output()
	if err == nil {
		err = json.Unmarshal(text, &now)
	}
	if err != nil {
		h.t.Fatalf("simgpuctl oracle: %v: %q", err, text)
	}
	return now
}

// Programs whose kernels fill the GPU run side by side, each on its ceiling of the SMs, also if they cleared or raised what
// tells the driver so. Memory is limited by our library, as the sum of a share's programs.
func TestMPSDivides(t *testing.T) {
	h := newHost(t)
	load := []string{h.bench(), "load", "--seconds", "3600", "--ns", "1000000", "--grid", "108"}
	cleared := append([]string{"env", "-u", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}, load...)
	a, b := h.hold(sideBySide("a", "30"), load...), h.hold(sideBySide("b", "70"), cleared...)
	var parts [2]float64
	h.eventually("30 and 70 percent of the SMs", func() bool {
		before := h.smTruth()
		time.Sleep(300 * time.Millisecond) // a stretch of the GPU's time
		after := h.smTruth()
		for i, s := range []*holder{a, b} {
			parts[i] = 100 * float64(after.SM[s.cmd.Process.Pid]-before.SM[s.cmd.Process.Pid]) / float64(after.At-before.At)
		}
		return math.Abs(parts[0]-30) < 2 && math.Abs(parts[1]-70) < 2
	})
	if o := h.run(append(sideBySide("c", "10"), "--", h.bench(), "alloc", "--bytes", "64Mi", "--count", "100")...); !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("memory past the limit: %+v", o)
	}
	for _, s := range []*holder{a, b} {
		_ = s.cmd.Process.Kill()
		s.end()
	}
}

// A program that makes a fatal fault fails all of the GPU's programs. Their shares are told, the server drains, and new
// programs are served within seconds.
func TestMPSFault(t *testing.T) {
	h := newHost(t)
	a := h.hold(sideBySide("a", "30"), h.bench(), "hold", "--bytes", "64Mi")
	if o := h.run(append(sideBySide("bad", "30"), "--", h.bench(), "fault")...); !strings.Contains(o.out, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Fatalf("a fatal fault: %+v", o)
	}
	h.eventually("the other share is told", func() bool {
		share, _ := h.tenant("a")
		return strings.Contains(share.Fault, "a fatal fault")
	})
	h.eventually("new programs are served while the failed one is still there", func() bool {
		o := h.run(append(sideBySide("next", "30"), "--", h.bench(), "info")...)
		return o.status == 0 && strings.Contains(o.out, "CUDA_SUCCESS")
	})
	a.end()
	if text := a.said.String(); !strings.Contains(text, "divvy: share a, GPU 0: a program made a fatal fault") || !strings.Contains(text, "have to be started again") {
		t.Errorf("its user was told %q", text)
	}
}

// When the daemon is killed every share is told within two seconds, where its program writes its errors as well, and new
// ones are served.
func TestMPSDaemonIsKilled(t *testing.T) {
	h := newHost(t)
	a, b := h.hold(sideBySide("a", "30"), cat...), h.hold(sideBySide("b", "30"), cat...)
	d := h.daemon()
	id := h.served(d)
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("both shares have an event", func() bool {
		told := map[string]bool{}
		for _, e := range h.list().Events {
			told[e.Tenant] = told[e.Tenant] || e.Kind == control.EventFault && strings.Contains(e.Text, "MPS control daemon has ended")
		}
		return told["a"] && told["b"]
	})
	c := h.hold(sideBySide("c", "30"), cat...)
	h.eventually("no share has a fault any more", func() bool {
		for _, tenant := range h.list().Tenants {
			if tenant.Fault != "" {
				return false
			}
		}
		return true
	})
	next := h.served(d)
	if next == id {
		t.Error("the daemon is the one that was killed")
	}
	for _, s := range []*holder{a, b, c} {
		s.end()
	}
	for name, s := range map[string]*holder{"a": a, "b": b} {
		if want := "divvy: share " + name + ", GPU 0: its MPS control daemon has ended"; !strings.Contains(s.said.String(), want) {
			t.Errorf("%s was told %q", name, s.said)
		}
	}
	h.unserved(d, next)
}

// The agent that follows a killed one takes the daemon over.
func TestMPSAgentIsKilled(t *testing.T) {
	h := newHost(t)
	a := h.hold(sideBySide("a", "30"), cat...)
	d := h.daemon()
	id := h.served(d)
	agent, err := process.Find(h.agentPID())
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("another agent serves", func() bool { return h.agentPID() != agent.PID && !agent.Alive() })
	b := h.hold(sideBySide("b", "60"), cat...)
	if again, err := d.Find(); err != nil || again != id {
		t.Errorf("the daemon is %v, %v; it was %v", again, err, id)
	}
	if p, err := escape.Percentage(d.Dirs.Log); err != nil || p != 60 {
		t.Errorf("the daemon's limit is %v, %v", p, err)
	}
	a.end()
	b.end()
	h.unserved(d, id)
}

// A GPU of compute capability 6 has no shares of MPS.
func TestMPSOfOldGPUs(t *testing.T) {
	h := newHostOf(t, "t4", "--set", "gpu.computeCapability=6.1")
	if o := h.run(append(sideBySide("a", "30"), "--", "true")...); o.status != 125 || !strings.Contains(o.err, "its compute capability is 6.1") {
		t.Errorf("a share: %+v", o)
	}
}

// Without NVIDIA's program, or with one that fails or never ends, a share is refused in time, with the reason, and nothing
// is left.
func TestMPSIsRefused(t *testing.T) {
	h := newHost(t)
	program := filepath.Join(h.instance, mps.ControlProgram)
	replace := func(script string) {
		t.Helper()
		if err := os.Remove(program); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if script != "" {
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(what, want string) {
		t.Helper()
		begun := time.Now()
		o := h.run(append(sideBySide("a", "30"), "--", "true")...)
		if o.status != 125 || !strings.Contains(o.err, want) {
			t.Errorf("%s after %v: %+v", what, time.Since(begun), o)
		}
		if l := h.list(); len(l.Tenants) != 0 {
			t.Errorf("%s: left %+v", what, l.Tenants)
		}
		if _, err := os.Lstat(filepath.Join(h.instance, "mps")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory of daemons is left: %v", what, err)
		}
	}
	replace("")
	refused("no program", "MPS is not installed")
	replace("exit 3")
	refused("a program that fails", "start an MPS control daemon: exit status 3")
	replace("sleep 1000")
	refused("a program that never ends", "start an MPS control daemon")
}
