package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// direct asks the library in this process.
type direct struct{ *nvml.Library }

func (d direct) Conditions(gpus []int) (all []nvml.Checkup) {
	for _, gpu := range gpus {
		c, err := d.Condition(gpu)
		all = append(all, nvml.Checkup{Condition: c, Err: err})
	}
	return all
}

// TestHealthOfSimulatedGPUs asks a real management library, whose GPUs the test makes fail.
func TestHealthOfSimulatedGPUs(t *testing.T) {
	tree := installtest.Tree(t)
	store := simgpu.NewStore(t.TempDir(), tree)
	t.Setenv(rundir.Variable, t.TempDir())
	machine, err := simgpu.Load("h100x8")
	if err != nil {
		t.Fatal(err)
	}
	instance, err := store.Start(t.Context(), "m", machine, "health")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Stop(context.WithoutCancel(t.Context()), instance, true); err != nil {
			t.Error(err)
		}
	})
	library, err := nvml.Open(filepath.Join(instance.Dir, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := library.Close(); err != nil {
			t.Error(err)
		}
	})
	listed, err := library.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Driver: direct{library}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, gpu := range listed {
		c.GPUs = append(c.GPUs, backend.GPU{Index: gpu.Index, UUID: gpu.UUID})
		if got := library.Architecture(gpu.Index); got != "hopper" {
			t.Errorf("GPU %d is %q", gpu.Index, got)
		}
		if brand, capability := library.Brand(gpu.Index), library.Capability(gpu.Index); brand != "Nvidia" || capability != "9.0" {
			t.Errorf("GPU %d is of brand %q with compute capability %q", gpu.Index, brand, capability)
		}
	}
	h := New(c)
	looks := func(n int) map[string]Fault {
		for range n {
			h.Look(t.Context())
		}
		faults, _ := h.Faults()
		return faults
	}
	inject := func(gpu int, call string, result uint32) {
		t.Helper()
		if err := store.Inject(t.Context(), instance, gpu, simgpu.Injection{Call: call, Result: result}); err != nil {
			t.Fatal(err)
		}
	}
	if got := looks(2); len(got) != 0 {
		t.Fatalf("healthy GPUs: %v", got)
	}
	const gpuIsLost = 15
	inject(2, "nvml", gpuIsLost)
	inject(5, simgpu.CallXid, 48)
	inject(6, simgpu.CallXid, 31)
	got := looks(1)
	if lost := got[listed[2].UUID]; len(got) != 2 || lost.Reason != "lost" || !lost.Lost || got[listed[5].UUID].Reason != "xid-48" {
		t.Errorf("a lost GPU and one with an error: %v", got)
	}
	if got := looks(recovery); len(got) != 1 {
		t.Errorf("after %d looks: %v", recovery, got)
	}
	if again, err := library.GPUs(); err != nil || len(again) != len(listed)-1 {
		t.Errorf("%d GPUs are listed beside the lost one: %v", len(again), err)
	}
	if answering, silent := library.Answering(); len(answering) != len(listed)-1 || silent != 1 {
		t.Errorf("%d GPUs answer beside the lost one, %d do not", len(answering), silent)
	}
	if err := errors.Join(store.Clear(t.Context(), instance, 2), library.Reopen()); err != nil {
		t.Fatal(err)
	}
	if got := looks(recovery); len(got) != 0 {
		t.Errorf("a GPU that came back: %v", got)
	}
}
