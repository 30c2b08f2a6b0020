package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install"
)

// refusedWithin is what total.c prints inside a share of 1 GiB: its size, and
// CUDA_ERROR_OUT_OF_MEMORY for twice that.
const refusedWithin = "1073741824 2"

// build compiles testdata/total.c.
func (h *host) build(name string, flags ...string) string {
	h.t.Helper()
	program := filepath.Join(h.t.TempDir(), name)
	args := append([]string{"-o", program, "testdata/total.c"}, flags...)
	if out, err := exec.Command("cc", append(args, "-ldl")...).CombinedOutput(); err != nil {
		h.t.Fatalf("cc: %v: %s", err, out)
	}
	return program
}

// A program finds its share in whatever way it looks for the driver.
func TestEveryWayToTheDriver(t *testing.T) {
	h := newHost(t).namespaces()
	drivers := filepath.Join(string(h.tree), "lib", "simgpu")
	linked := []string{"-DLINKED", "-L" + drivers, "-l:libcuda.so.1"}
	plain := h.build("plain")
	library := func(dir string) string { return filepath.Join(dir, "libcuda.so.1") }
	ways := map[string][]string{
		"by name":                       {plain},
		"without environment":           {"env", "-i", plain},
		"by the name for linking":       {plain, "libcuda.so"},
		"by absolute path":              {plain, library(drivers)},
		"by a link to it":               {plain, library(h.instance)},
		"LD_LIBRARY_PATH":               {"env", "LD_LIBRARY_PATH=" + drivers, plain},
		"LD_LIBRARY_PATH with links":    {"env", "LD_LIBRARY_PATH=" + h.instance, plain},
		"LD_PRELOAD":                    {"env", "LD_PRELOAD=" + library(drivers), plain},
		"LD_PRELOAD cleared":            {"env", "LD_PRELOAD=", plain},
		"linked":                        {h.build("linked", linked...)},
		"linked, RUNPATH":               {h.build("runpath", append(linked, "-Wl,--enable-new-dtags,-rpath,"+drivers)...)},
		"linked, RPATH":                 {h.build("rpath", append(linked, "-Wl,--disable-new-dtags,-rpath,"+h.instance)...)},
		"linked, RPATH, no environment": {"env", "-i", h.build("rpath-i", append(linked, "-Wl,--disable-new-dtags,-rpath,"+drivers)...)},
		"variables that Divvy reads": {"env", "DIVVY_SIMGPU=" + h.instance, "DIVVY_RUNDIR=/nowhere", "DIVVY_PREFIX=/nowhere",
			"DIVVY_MEMORY=64Gi", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0", plain},
		"from another folder and shell": {"sh", "-c", "cd / && exec env -i sh -c " + plain},
	}
	for name, command := range ways {
		t.Run(name, func(t *testing.T) {
			o := h.run(append([]string{"--memory", "1Gi", "--"}, command...)...)
			if o.status != 0 || o.out != refusedWithin {
				t.Errorf("exit status %d, %q, %s; want %q", o.status, o.out, o.err, refusedWithin)
			}
		})
	}
}

// With layer env only variables lead to the share; a process that leaves it is reported.
func TestLeavingTheEnvLayerIsReported(t *testing.T) {
	h := newHost(t)
	env := []string{"--layer", "env", "--memory", "1Gi", "--name", "leaver"}
	if o := h.run(append(env, "--", h.build("plain"))...); o.status != 0 || o.out != refusedWithin || o.err != "" {
		t.Errorf("inside: exit status %d, %q, %s", o.status, o.out, o.err)
	}
	s := h.hold(env, "env", "LD_LIBRARY_PATH="+h.instance, h.bench(), "hold", "--bytes", "2Gi")
	if !strings.Contains(s.first, "CUDA_SUCCESS") {
		t.Fatalf("with its own way to the driver: %s", s.first)
	}
	h.eventually("the process outside its share is reported", func() bool {
		for _, o := range h.list().Outside {
			if o.PID == s.cmd.Process.Pid && o.Used != nil && *o.Used >= 2*gib {
				return o.Tenant == "leaver"
			}
		}
		return false
	})
	h.eventually("an event tells of it", func() bool {
		return slices.ContainsFunc(h.list().Events, func(e control.Event) bool { return e.Kind == control.EventOutside })
	})
	if table := h.ok("ls"); !strings.Contains(table, "has left it") || !strings.Contains(table, "env") {
		t.Errorf("the table does not show it:\n%s", table)
	}
}

func TestChoiceOfLayer(t *testing.T) {
	h := newHost(t)
	// This divvy-enter fails as where namespaces are not allowed.
	forbidden := filepath.Join(t.TempDir(), "libexec", "divvy")
	if err := os.MkdirAll(forbidden, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ntest \"$1\" != --probe || { echo 'divvy: make a user and a mount namespace: not here' >&2; exit 125; }\nexec %s \"$@\"\n",
		h.tree.Program("divvy-enter"))
	if err := os.WriteFile(filepath.Join(forbidden, "divvy-enter"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"divvy-cover", "divvy-reap", "divvy-probe", "simgpuctl"} {
		if err := os.Symlink(h.tree.Program(name), filepath.Join(forbidden, name)); err != nil {
			t.Fatal(err)
		}
	}
	prefix := filepath.Dir(filepath.Dir(forbidden))
	for _, name := range []string{"lib", "bin"} {
		if err := os.Symlink(filepath.Join(string(h.tree), name), filepath.Join(prefix, name)); err != nil {
			t.Fatal(err)
		}
	}
	restricted := *h
	restricted.tree = install.Tree(prefix)
	o := restricted.run("--memory", "1Gi", "--", h.build("plain"))
	if o.status != 0 || o.out != refusedWithin || strings.Count(o.err, "namespaces are not allowed here") != 1 || !strings.Contains(o.err, "doctor") {
		t.Errorf("auto: exit status %d, %q, %s", o.status, o.out, o.err)
	}
	o = restricted.run("--layer", "namespace", "--", "true")
	if o.status != 125 || !strings.Contains(o.err, "not here") || !strings.Contains(o.err, "doctor") {
		t.Errorf("namespace: exit status %d, %s", o.status, o.err)
	}
}
