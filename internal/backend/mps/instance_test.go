package mps

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mps"
)

// instance is one of the GPU's, as backends know it.
var instance = backend.GPU{
	Index: 0, UUID: "MIG-89abcdef-4455-5677-8899-aabbccddeeff", Total: 10 * gib,
	Instance: backend.Instance{UUID: "MIG-89abcdef-4455-5677-8899-aabbccddeeff", Parent: gpu.UUID, Profile: "1g.10gb", Start: 3},
}

// A MIG instance has a daemon of its own, which sees it alone. No mode of its GPU is changed.
func TestDaemonOfAnInstance(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	t.Cleanup(func() { _ = made.Leave(t.Context(), instance) })
	if err := made.Enter(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	d, err := made.daemon(instance)
	if err != nil {
		t.Fatal(err)
	}
	if got := filepath.Base(filepath.Dir(d.Dirs.Pipe)); got != "MIG-89abcdef" {
		t.Errorf("it is at %s", d.Dirs.Pipe)
	}
	id, err := d.Find()
	if err != nil {
		t.Fatal(err)
	}
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/environ")
	if err != nil || !strings.Contains("\x00"+string(environment), "\x00CUDA_VISIBLE_DEVICES="+instance.UUID+"\x00") {
		t.Errorf("its environment is %q, %v", environment, err)
	}
	if err := made.Leave(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Find(); !errors.Is(err, mps.ErrAbsent) {
		t.Errorf("left: %v", err)
	}
	if len(b.book.done) != 0 {
		t.Errorf("modes: %v", b.book.done)
	}
	if got := where(instance); got != "MIG instance 1g.10gb at slice 3 of GPU 0" {
		t.Errorf("it is called %q", got)
	}
}

// What this agent runs is never ended as something that a user's own agent left, although root's had the same place.
func TestOwnDaemonIsNotInherited(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	if err := made.Enter(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
	id, err := b.daemon(made).Find()
	if err != nil {
		t.Fatal(err)
	}
	pipe := made.InheritedPipe(filepath.Join(filepath.Dir(b.options.Dir), "tenants"), gpu.UUID)
	if want := b.daemon(made).Dirs.Pipe; pipe != want {
		t.Fatalf("the pipe directory is %s, want %s", pipe, want)
	}
	if err := made.EndInherited(t.Context(), pipe, os.Geteuid()); err != nil || !id.Alive() {
		t.Errorf("%v; alive: %v", err, id.Alive())
	}
}
