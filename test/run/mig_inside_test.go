package run

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/escape"
)

// halfInstance are the flags of a share on an instance that MPS divides.
var halfInstance = []string{"--gpu", "0", "--profile", "3g.71gb", "--backend", "mps", "--memory", "8Gi", "--cores", "30"}

// limited fails the test unless so many programs are clients of MPS on an instance 3g.71gb, each with 30 % of its 60 SMs and
// with 8 GiB. It returns the instance.
func (d *divided) limited(what string, count int) (uuid string) {
	d.t.Helper()
	for _, p := range d.report().Processes {
		if p.MPSServer == 0 || p.PID == p.MPSServer || len(p.GPUs) == 0 {
			continue
		}
		count--
		if g := p.GPUs[0]; p.MIG == "" || uuid != "" && p.MIG != uuid || g.Multiprocessors != 18 || g.MemoryLimit != 8*gib {
			d.t.Errorf("%s: a client on %q has %+v, want 18 SMs and 8 GiB", what, p.MIG, g)
		}
		uuid = p.MIG
	}
	if count != 0 {
		d.t.Errorf("%s: %d clients are missing", what, count)
	}
	return uuid
}

// daemonOf is the control daemon of an instance, by its directory.
func (d *divided) daemonOf(uuid string) mps.Daemon {
	return mps.Daemon{Program: filepath.Join(d.instance, mps.ControlProgram), Dirs: mps.DirsOf(filepath.Join(d.rundir, "mps"), uuid)}
}

// served: the control daemon of an instance serves the shares there, each with its part of the instance. No program of a
// share commands it, or gets another share from within, and it ends with the last share.
func (d *divided) served() {
	t := d.t
	first, second := d.kept("a", halfInstance...), d.kept("b", halfInstance...)
	beside := d.kept("c", "--gpu", "0", "--profile", "1g.18gb")
	if got := d.driver(); len(got) != 2 {
		t.Errorf("the driver has %q", got)
	}
	daemon := d.daemonOf(d.limited("two shares", 2))
	if _, err := os.Stat(daemon.Dirs.Pipe); err != nil {
		t.Fatal(err)
	}
	id, err := daemon.Find()
	if err != nil {
		t.Fatal(err)
	}
	within := append(slices.Clone(halfInstance), "--")
	for _, text := range []string{"set_default_active_thread_percentage 100", "set_default_device_pinned_mem_limit 0 60G", "quit -t 1", "shutdown_server 1 -f"} {
		script := "echo " + text + " | CUDA_MPS_PIPE_DIRECTORY=" + daemon.Dirs.Pipe + " timeout 5 " + daemon.Program
		o := d.shares(append(within, "sh", "-c", script)...)
		if o.status == 125 {
			t.Fatalf("%s: %+v", text, o)
		}
		if now, err := daemon.Find(); err != nil || now != id {
			t.Errorf("after %q the daemon is %v, before %v: %v", text, now, id, err)
		}
		if percent, err := escape.Percentage(daemon.Dirs.Log); err != nil || percent != 30 {
			t.Errorf("after %q the daemon's limit is %v: %v", text, percent, err)
		}
	}
	d.limited("after commands from within", 2)
	if o := d.shares(append(within, d.bench(), "alloc", "--bytes", "9Gi")...); o.status == 0 || !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("more than the part: %+v", o)
	}
	divvy := filepath.Join(string(d.tree), "bin", "divvy")
	for what, inner := range map[string][]string{
		"another instance":          {"--profile", "1g.18gb"},
		"a part of the same one":    halfInstance,
		"a share by a bare command": {"--backend", "mig", "--memory", "1Gi"},
	} {
		for _, at := range [][]string{within, {"--gpu", "0", "--profile", "1g.18gb", "--"}} {
			o := d.shares(slices.Concat(at, []string{divvy, "run", "--simgpu", "m"}, inner, []string{"--", "true"})...)
			if o.status != 125 || !strings.Contains(o.err, "already inside a share") {
				t.Errorf("%s from within a share: %+v", what, o)
			}
		}
	}
	first()
	second()
	d.eventually("the other instance alone is left, and no server", func() bool {
		_, err := os.Stat(daemon.Dirs.Pipe)
		return err != nil && len(d.driver()) == 1 && !slices.ContainsFunc(d.report().Processes, func(p simgpu.ProcessReport) bool { return p.MPSServer != 0 })
	})
	beside()
	d.eventually("nothing is left", func() bool { return len(d.driver()) == 0 })
}

// elsewhere is a command of divvy's on the same machine, with a run directory of its own.
func (d *divided) elsewhere(rundir string, args ...string) *exec.Cmd {
	inside := d.inside(args...)
	cmd := d.command("timeout", append([]string{"120"}, inside.Args...)...)
	cmd.Env = append(cmd.Env, "DIVVY_RUNDIR="+rundir)
	return cmd
}

// besides: a second agent, of all users or one's own, gets nothing of GPUs that an agent serves, and leaves instances of
// shares alone whose agent has died.
func (d *divided) besides() {
	t := d.t
	rundir := filepath.Join(d.rundir, "other")
	if err := errors.Join(os.Mkdir(rundir, 0o755), os.Symlink(filepath.Join(d.rundir, "simgpu"), filepath.Join(rundir, "simgpu"))); err != nil {
		t.Fatal(err)
	}
	end := d.kept("first", "--gpu", "0", "--profile", "1g.18gb")
	before := d.driver()
	const none = "making MIG instances is root's"
	says := map[string]string{"agent": "an agent already runs in /run/divvy", "run": none}
	for _, args := range [][]string{
		{"agent", "--simgpu", "m"}, {"run", "--simgpu", "m", "--gpu", "0", "--profile", "1g.18gb", "--", "true"},
		{"run", "--simgpu", "m", "--gpu", "0", "--profile", "2g.35gb", "--", "true"},
	} {
		o := d.ended(d.elsewhere(rundir, args...))
		if want := says[args[0]]; o.status == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%q beside an agent: %+v, want %q", args, o, want)
		}
		if got := d.driver(); !slices.Equal(got, before) {
			t.Errorf("after %q the driver has %q, before %q", args, got, before)
		}
	}
	own := filepath.Join(d.instance, "agent.sock")
	ended := func() bool {
		_, err := os.Stat(own)
		return errors.Is(err, os.ErrNotExist)
	}
	d.eventually("the own agent ends", ended)
	d.dies(syscall.SIGKILL)
	if o := d.ended(d.elsewhere(rundir, "run", "--simgpu", "m", "--gpu", "0", "--profile", "1g.18gb", "--", "true")); o.status == 0 || !strings.Contains(o.err, none) {
		t.Errorf("after the agent's death: %+v, want %q", o, none)
	}
	if got := d.driver(); !slices.Equal(got, before) {
		t.Errorf("after the agent's death the driver has %q, before %q", got, before)
	}
	d.eventually("the own agent ends", ended)
	d.serve()
	if tenant, ok := d.tenant("first"); !ok || tenant.Shares[0].Instance == nil {
		t.Errorf("the next agent has %+v", tenant)
	}
	end()
	d.eventually("the instance is gone", func() bool { return len(d.driver()) == 0 })
}
