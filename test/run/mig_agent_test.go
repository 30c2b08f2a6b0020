package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

// divided is a machine with eight H200, of which the first two are in MIG mode, with a system agent in namespaces of its
// own. Other tests' programs would find the agent by its process, its sockets and its locks in /dev/shm.
type divided struct {
	*host
	pid   int // the namespace's first process
	agent *exec.Cmd
}

// One test has such a machine: simulated machines of one kind have the same GPUs, and a system agent holds all of its own.
func newDivided(t *testing.T) *divided {
	t.Helper()
	if os.Getuid() != 0 {
		installtest.Missing(t, "users", errors.New("only root starts a system agent"))
	}
	h := newHostOf(t, "h200x8", "--set", "gpus[0].migMode=true", "--set", "gpus[1].migMode=true")
	const apart = `mount --bind "$0" /mnt && mount -t tmpfs none /dev/shm && mkdir -p "$0" && mount --move /mnt "$0" && echo made && cat`
	room := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "sh", "-c", apart, h.rundir)
	input, err := room.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := room.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := room.Start(); err != nil {
		installtest.Missing(t, "users", err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = room.Wait()
	})
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "made\n" {
		installtest.Missing(t, "users", fmt.Errorf("%q, %w", line, err))
	}
	d := &divided{host: h}
	if d.pid, err = multiuser.Child(room); err != nil {
		t.Fatal(err)
	}
	d.serve()
	return d
}

// inside is a command of divvy's in the namespace.
func (d *divided) inside(args ...string) *exec.Cmd {
	args = append([]string{"-t", strconv.Itoa(d.pid), "-p", "-m", "-n", "--", filepath.Join(string(d.tree), "bin", "divvy")}, args...)
	return d.command("nsenter", args...)
}

// does runs a command of divvy's.
func (d *divided) does(args ...string) outcome {
	d.t.Helper()
	return d.ended(d.inside(args...))
}

// shares runs a program in a share.
func (d *divided) shares(args ...string) outcome {
	d.t.Helper()
	return d.does(append([]string{"run", "--simgpu", "m"}, args...)...)
}

// serve starts the agent.
func (d *divided) serve() {
	d.t.Helper()
	agent := d.inside("agent", "--simgpu", "m")
	if err := agent.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.agent = agent
	d.t.Cleanup(func() { d.dies(syscall.SIGTERM) })
	d.eventually("the agent serves", func() bool {
		conn, err := net.Dial("unix", filepath.Join(d.rundir, "agent.sock"))
		return err == nil && conn.Close() == nil
	})
}

// dies ends the agent by a signal.
func (d *divided) dies(by syscall.Signal) {
	if d.agent == nil {
		return
	}
	if pid, err := multiuser.Child(d.agent); err == nil {
		_ = syscall.Kill(pid, by)
	}
	_ = d.agent.Wait()
	d.agent = nil
}

// kept is a share whose program holds memory until it is ended.
func (d *divided) kept(name string, args ...string) (end func()) {
	d.t.Helper()
	args = append(append([]string{"run", "--simgpu", "m", "--name", name}, args...), "--", d.bench(), "hold", "--bytes", "1Gi")
	cmd := d.inside(args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			_ = input.Close()
			_, _ = io.Copy(io.Discard, output)
			_ = cmd.Wait()
		}
		ended = true
	}
	d.t.Cleanup(end)
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		d.t.Fatalf("%s holds nothing: %v", name, err)
	}
	return end
}

// driver are the instances by the simulated driver's own record: their places, and whether they are used.
func (d *divided) driver() (all []string) {
	d.t.Helper()
	for i, g := range d.report().GPUs {
		if g.MIG == nil {
			continue
		}
		for _, one := range g.MIG.Instances {
			all = append(all, fmt.Sprintf("GPU %d: %s at %d, used %t", i, one.Profile, one.Start, one.Used >= gib))
		}
	}
	return all
}

func TestMIG(t *testing.T) {
	d := newDivided(t)
	d.apart()
	d.parts()
	d.proxied()
	d.turns()
	d.served()
	d.besides()
}

// apart: shares on instances of their own outlive the agent's death and leave nothing; what cannot be is refused
// with a reason.
func (d *divided) apart() {
	t := d.t
	first := d.kept("a", "--profile", "1g.18gb")
	second := d.kept("b", "--backend", "mig", "--memory", "20Gi", "--cores", "20")
	got := d.driver()
	if len(got) != 2 || slices.ContainsFunc(got, func(one string) bool { return !strings.HasSuffix(one, "used true") }) {
		t.Errorf("the driver has %q", got)
	}
	for want, args := range map[string][]string{
		"is in MIG mode, where every share is in a MIG instance": {"--gpu", "0", "--memory", "1Gi"},
		"has the MIG profile 1g.10gb":                            {"--profile", "1g.10gb"},
		"GPU 5 is not in MIG mode":                               {"--gpu", "5", "--profile", "1g.18gb"},
	} {
		if o := d.shares(append(args, "--", "true")...); o.status != 125 || !strings.Contains(o.err, want) {
			t.Errorf("%q: %+v, want %q", args, o, want)
		}
	}
	d.dies(syscall.SIGKILL)
	d.serve()
	if again := d.driver(); !slices.Equal(again, got) {
		t.Errorf("after the agent's death the driver has %q, before %q", again, got)
	}
	first()
	d.eventually("the first instance is gone", func() bool { return len(d.driver()) == 1 })
	second()
	d.eventually("both are gone", func() bool { return len(d.driver()) == 0 })
}

// proxied: a share of backend remote is a part of an instance beside one of backend slice, and its command reaches the GPU by
// its worker alone.
func (d *divided) proxied() {
	t := d.t
	part := func(backend string) []string {
		return []string{"--gpu", "0", "--profile", "2g.35gb", "--memory", "6Gi", "--backend", backend}
	}
	first, second := d.kept("a", part("remote")...), d.kept("b", part("slice")...)
	if got := d.driver(); len(got) != 1 {
		t.Errorf("the driver has %q", got)
	}
	o := d.shares(append(part("remote"), "--", d.bench(), "alloc", "--bytes", "1Gi", "--count", "20")...)
	if !strings.Contains(o.out, `"allocations":5,`) || !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("past the limit: %+v", o)
	}
	first()
	second()
	d.eventually("the instance is gone", func() bool { return len(d.driver()) == 0 })
}

// parts: memory of parts of one instance is limited within it, and it ends with the last part.
func (d *divided) parts() {
	t := d.t
	part := []string{"--profile", "2g.35gb", "--backend", "slice", "--memory", "12Gi"}
	first, second := d.kept("a", part...), d.kept("b", part...)
	if got := d.driver(); len(got) != 1 {
		t.Errorf("the driver has %q", got)
	}
	small := []string{"--profile", "2g.35gb", "--backend", "slice", "--memory", "4Gi", "--", d.bench(), "alloc"}
	if o := d.shares(append(small, "--bytes", "6Gi")...); o.status == 0 {
		t.Errorf("beyond the limit: %+v", o)
	}
	if o := d.shares(append(small, "--bytes", "2Gi")...); o.status != 0 {
		t.Errorf("within the limit: %+v", o)
	}
	first()
	second()
	d.eventually("the instance is gone", func() bool { return len(d.driver()) == 0 })
}

// turns: the MIG mode of a GPU is turned on and off while it has no shares.
func (d *divided) turns() {
	t := d.t
	set := func(mode string) outcome {
		return d.once(func() outcome { return d.does("gpu", "set", "2", "--mig", mode, "--simgpu", "m") })
	}
	if o := set("on"); o.status != 0 {
		t.Fatalf("on: %+v", o)
	}
	end := d.kept("a", "--gpu", "2", "--profile", "1g.18gb")
	if o := set("off"); o.status == 0 || !strings.Contains(o.err, "GPU 2 has shares") {
		t.Errorf("off, with a share: %+v", o)
	}
	end()
	d.eventually("the instance is gone", func() bool { return len(d.driver()) == 0 })
	if o := set("off"); o.status != 0 || d.report().GPUs[2].MIG.On {
		t.Errorf("off: %+v, %+v", o, d.report().GPUs[2].MIG)
	}
	d.kept("b", "--gpu", "2", "--memory", "2Gi")()
}
