package run

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// helpers are the processes in which an agent asks the driver.
func helpers(t *testing.T, agent int) (found []process.ID) {
	t.Helper()
	for _, id := range process.Descendants(agent) {
		args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id.PID), "cmdline"))
		if err == nil && strings.Contains(string(args), "nvml-helper") {
			found = append(found, id)
		}
	}
	return found
}

// holdOn starts a share that holds memory of a GPU.
func (h *host) holdOn(gpu int, name string) *holder {
	h.t.Helper()
	return h.hold([]string{"--gpu", strconv.Itoa(gpu), "--memory", "2Gi", "--cores", "30", "--name", name},
		filepath.Join(string(h.tree), "bin", "gpubench"), "hold", "--bytes", "1Gi")
}

// silence lets the driver be silent about the machine's GPU 1, or speak again.
func (h *host) silence(how ...string) {
	h.t.Helper()
	h.ok(append([]string{"simgpu", "inject", "m", "--gpu", "1"}, how...)...)
}

// isSilent reports whether the agent says so of GPU 1, and of no other.
func isSilent(l control.Listing) bool {
	for i, g := range l.GPUs {
		if silent := g.Used == nil && strings.Contains(g.Fault, "does not answer"); silent != (i == 1) {
			return false
		}
	}
	return len(l.GPUs) == 8
}

func isWell(l control.Listing) bool {
	return len(l.GPUs) == 8 && !slices.ContainsFunc(l.GPUs, func(g control.GPU) bool { return g.Used == nil || g.Fault != "" })
}

// share is the one of a tenant, nil if there is no such tenant.
func share(l control.Listing, name string) *control.Share {
	for _, t := range l.Tenants {
		if t.Name == name {
			return &t.Shares[0]
		}
	}
	return nil
}

// A driver that is silent about one GPU holds nothing up: shares are made, listed, changed and ended, memory of the
// dead comes back, and only what the driver alone knows of that GPU is unknown.
func TestSilentGPU(t *testing.T) {
	h := newHostOf(t, "h100x8")
	h.holdOn(0, "other")
	lost := h.holdOn(1, "lost")
	second := h.holdOn(1, "second")
	h.silence("--call", "silent")
	h.eventually("GPU 1 is said to be silent", func() bool { return isSilent(h.list()) })

	l := h.list()
	if s := share(l, "lost"); s == nil || s.Used < gib || s.Limit != 2*gib || len(s.Process) != 1 {
		t.Errorf("the share on the silent GPU: %+v", s)
	}
	for _, name := range []string{"other", "lost"} {
		h.ok("set", name, "--simgpu", "m", "--memory", "3Gi", "--cores", "20")
		if s := share(h.list(), name); s == nil || s.Limit != 3*gib || s.Cores != 20 {
			t.Errorf("changed: %+v", s)
		}
	}
	for _, gpu := range []string{"0", "2"} {
		// What runs there touches the driver, and not the GPU that is silent.
		o := h.run("--gpu", gpu, "--memory", "1Gi", "--", filepath.Join(string(h.tree), "bin", "gpubench"), "alloc", "--bytes", "64Mi", "--count", "2")
		if o.status != 0 {
			t.Errorf("a share of another GPU: %+v", o)
		}
	}
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "does not answer") {
		t.Errorf("a share of the silent GPU: %+v", o)
	}
	if n := len(helpers(t, l.Info.PID)); n > 2 {
		t.Errorf("%d processes ask the driver", n)
	}
	if err := lost.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lost.end()
	h.eventually("the killed share ends", func() bool { return share(h.list(), "lost") == nil })
	h.ok("stop", "second", "--simgpu", "m")
	second.end()
	if l := h.list(); share(l, "second") != nil {
		t.Errorf("then left: %+v", l)
	}
	h.eventually("GPU 1 is still said to be silent", func() bool { return isSilent(h.list()) })
	if s := share(h.list(), "other"); s == nil || len(s.Process) != 1 {
		t.Errorf("the other GPU's share: %+v", s)
	}

	h.silence("--clear")
	h.eventually("all is as before", func() bool { return isWell(h.list()) })
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("a share of the GPU that answers again: %+v", o)
	}
}

// A GPU that is reset under a silent driver is served again, by true figures: what it held is gone, nothing is granted
// twice, and nobody is accused or stopped for what was not known meanwhile.
func TestResetUnderSilence(t *testing.T) {
	h := newHostOf(t, "h100x8")
	h.holdOn(0, "other")
	lost := h.holdOn(1, "lost")
	h.silence("--call", "silent")
	h.eventually("GPU 1 is said to be silent", func() bool { return isSilent(h.list()) })
	if o := h.divvy("simgpu", "inject", "m", "--gpu", "1", "--call", "reset"); o.status == 0 || !strings.Contains(o.err, "in use") {
		t.Errorf("reset under a process: %+v", o)
	}
	if l := h.list(); l.GPUs[1].Granted != 2*gib || l.GPUs[1].Used != nil {
		t.Errorf("while it is silent: %+v", l.GPUs[1])
	}
	if err := lost.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lost.end()
	h.eventually("the killed share ends", func() bool { return share(h.list(), "lost") == nil })
	h.silence("--call", "reset")
	h.eventually("all is well", func() bool { return isWell(h.list()) })
	l := h.list()
	if g := l.GPUs[1]; *g.Used != 0 || g.Granted != 0 || g.Excess != "" || g.Hidden != "" {
		t.Errorf("after the reset: %+v", g)
	}
	if g, s := l.GPUs[0], share(l, "other"); *g.Used < gib || g.Granted != 2*gib || s == nil || s.Used < gib || len(s.Process) != 1 || s.Excess != "" {
		t.Errorf("the other GPU: %+v, its share: %+v", g, s)
	}
	for _, e := range l.Events {
		if e.Kind == control.EventExcess || e.Kind == control.EventOutside || e.Kind == control.EventMisuse {
			t.Errorf("told %+v", e)
		}
	}
	next := h.holdOn(1, "next")
	if l := h.list(); l.GPUs[1].Granted != 2*gib || *l.GPUs[1].Used < gib {
		t.Errorf("with a share again: %+v", l.GPUs[1])
	}
	next.end()
}

// An agent that is killed while the driver is silent leaves no process that asks, and one that starts then serves the
// other GPUs, and the silent one's shares as far as that can be.
func TestStartUnderSilence(t *testing.T) {
	for _, call := range []string{"silent", "silent-init"} {
		t.Run(call, func(t *testing.T) {
			h := newHostOf(t, "h100x8")
			lost := h.holdOn(1, "lost")
			h.silence("--call", "silent")
			h.eventually("GPU 1 is said to be silent", func() bool { return isSilent(h.list()) })
			agent := h.list().Info.PID
			asking := helpers(t, agent)
			if len(asking) == 0 {
				t.Fatal("nobody asks the driver")
			}
			if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.eventually("the processes that asked end with their agent", func() bool {
				return !slices.ContainsFunc(asking, process.ID.Alive)
			})

			h.silence("--call", call)
			o := h.run("--gpu", "0", "--memory", "1Gi", "--name", "first", "--layer", "env", "--", "true")
			if refused := o.status == 125 && strings.Contains(o.err, "does not answer"); refused != (call == "silent-init") || !refused && o.status != 0 {
				t.Errorf("a share of another GPU: %+v", o)
			}
			l := h.list()
			if s := share(l, "lost"); s == nil || s.Index != 1 || s.Used < gib || s.Limit != 2*gib || len(s.Process) != 1 {
				t.Errorf("the share on the silent GPU: %+v", s)
			}
			if l.Info.PID == agent || len(l.GPUs) != 8 || l.GPUs[1].Used != nil || l.GPUs[1].Fault == "" {
				t.Errorf("listed %+v", l)
			}
			lost.end()
			h.eventually("the share ends", func() bool { return share(h.list(), "lost") == nil })
			h.silence("--clear")
		})
	}
}

// The table of GPUs and adapters does not wait for a GPU about which the driver is silent: it names it and shows the
// others. A driver that is silent altogether is an error.
func TestTopoUnderSilence(t *testing.T) {
	h := newHostOf(t, "h100x8")
	topo := func() outcome {
		cmd := h.command(filepath.Join(string(h.tree), "bin", "divvy"), "topo", "--capture")
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+h.instance)
		return h.ended(cmd)
	}
	shown := func(o outcome) (n int) {
		for line := range strings.Lines(o.out) {
			if strings.HasPrefix(line, "gpu ") {
				n++
			}
		}
		return n
	}
	if o := topo(); o.status != 0 || shown(o) != 8 || o.err != "" {
		t.Fatalf("without silence: %+v", o)
	}
	h.silence("--call", "silent")
	if o := topo(); o.status != 0 || shown(o) != 7 || o.err != "divvy: the driver does not answer about GPU 1, so it is not shown" {
		t.Errorf("one GPU is silent: %+v", o)
	}
	h.silence("--call", "silent-init")
	if o := topo(); o.status != 1 || !strings.Contains(o.err, "does not answer") {
		t.Errorf("the driver is silent: %+v", o)
	}
	h.silence("--clear")
}

// A GPU that is silent when the first agent starts is left out, which is said everywhere, and served when the driver
// answers, without anybody starting the agent again; the shares of the others outlive that.
func TestSilentFromTheStart(t *testing.T) {
	h := newHostOf(t, "h100x8")
	h.silence("--call", "silent")
	kept := h.holdOn(0, "kept")
	l := h.list()
	if len(l.GPUs) != 7 || !slices.Equal(l.LeftOut, []int{1}) {
		t.Fatalf("listed %+v, left out %v", l.GPUs, l.LeftOut)
	}
	told := func(l control.Listing, text string) bool {
		return slices.ContainsFunc(l.Events, func(e control.Event) bool { return strings.Contains(e.Text, text) })
	}
	if !told(l, "GPU 1 is left out") {
		t.Errorf("events %+v", l.Events)
	}
	for _, command := range []string{"ls", "doctor"} {
		if o := h.divvy(command); !strings.Contains(o.out, "GPU 1 is left out: the driver has not answered about it yet") {
			t.Errorf("%s: %+v", command, o)
		}
	}
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 125 {
		t.Errorf("a share of the silent GPU: %+v", o)
	}
	pid := l.Info.PID

	h.silence("--clear")
	h.eventually("the GPU is served", func() bool { return isWell(h.list()) })
	l = h.list()
	if l.Info.PID != pid || len(l.LeftOut) != 0 || !told(l, "the driver answers about GPU 1 now") {
		t.Errorf("agent %d, now %d; left out %v; events %+v", pid, l.Info.PID, l.LeftOut, l.Events)
	}
	if s := share(l, "kept"); s == nil || len(s.Process) != 1 || s.Used < gib || s.Limit != 2*gib {
		t.Errorf("the share that ran: %+v", s)
	}
	if o := h.run("--gpu", "1", "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("a share of the GPU that answers now: %+v", o)
	}
	kept.end()
}
