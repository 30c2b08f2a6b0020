package simgpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// builtStore is a store of the test's own that works with the products of make.
func builtStore(t *testing.T) Store {
	t.Helper()
	return NewStore(t.TempDir(), installtest.Tree(t))
}

func load(t *testing.T, machine string, overrides ...string) *Machine {
	t.Helper()
	m, err := Load(machine, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func start(t *testing.T, store Store, name string, machine *Machine, seed string) *Instance {
	t.Helper()
	instance, err := store.Start(t.Context(), name, machine, seed)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

func report(t *testing.T, store Store, instance *Instance) *Report {
	t.Helper()
	r, err := store.Report(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnInstanceIsTheMachineOfItsFile(t *testing.T) {
	store := builtStore(t)
	machine := load(t, "a800x8", "gpu.memory=1Gi", "gpu.reserved=64Mi")
	r := report(t, store, start(t, store, "lab", machine, ""))
	if r.Machine != "a800x8" || r.Driver != machine.Driver.Version || r.CUDA != 12020 {
		t.Errorf("report is of %s with driver %s, CUDA %d", r.Machine, r.Driver, r.CUDA)
	}
	if len(r.GPUs) != 8 || r.Busy() {
		t.Fatalf("%d GPUs, busy %v; want 8 idle ones", len(r.GPUs), r.Busy())
	}
	seen := map[string]bool{}
	for i, gpu := range r.GPUs {
		if gpu.Index != i || gpu.Total != 1<<30 || gpu.Reserved != 64<<20 || gpu.Free != 960<<20 || gpu.Used != 0 {
			t.Errorf("GPU %d: %+v", i, gpu)
		}
		if seen[gpu.UUID] {
			t.Errorf("GPU %d has the UUID of another: %s", i, gpu.UUID)
		}
		seen[gpu.UUID] = true
	}
}

// What a machine file says is what the report says, whatever letters it has.
func TestNamesComeBackAsTheyWere(t *testing.T) {
	store := builtStore(t)
	for i, name := range []string{`A "quoted" \ name`, "Größe ™ 日本 🙂", "\u0080\u07ff\u0800\ud7ff\uffff\U00010000\U0010ffff"} {
		machine := load(t, "t4", "gpu.memory=128Mi", "gpu.reserved=2Mi", "gpu.context=4Mi")
		machine.GPU.Name = name
		if got := report(t, store, start(t, store, fmt.Sprint("n", i), machine, "")).GPUs[0].Name; got != name {
			t.Errorf("%q came back as %q", name, got)
		}
	}
	machine := load(t, "t4")
	machine.GPU.Name = "cut\x00here"
	if len(machine.Validate()) != 1 {
		t.Error("a name that the driver would cut is valid")
	}
}

func TestStartMayBeRepeated(t *testing.T) {
	store := builtStore(t)
	machine := load(t, "t4", "gpu.memory=128Mi", "gpu.reserved=2Mi", "gpu.context=4Mi")
	first := report(t, store, start(t, store, "lab", machine, ""))
	again := report(t, store, start(t, store, "lab", machine, ""))
	if first.GPUs[0].UUID != again.GPUs[0].UUID {
		t.Error("a repeated start made other GPUs")
	}
	if _, err := store.Start(t.Context(), "lab", load(t, "t4"), ""); !errors.Is(err, ErrDifferent) {
		t.Errorf("start of another machine under the same name: %v", err)
	}
	if _, err := store.Start(t.Context(), "lab", machine, "other"); !errors.Is(err, ErrDifferent) {
		t.Errorf("start with another seed under the same name: %v", err)
	}
	other := report(t, store, start(t, store, "other", machine, ""))
	if first.GPUs[0].UUID == other.GPUs[0].UUID {
		t.Error("two instances have the same GPU")
	}
	list, err := store.List()
	if err != nil || len(list) != 2 || list[0].Name != "lab" || list[1].Name != "other" {
		t.Errorf("List() = %v, %v", list, err)
	}
}

func TestStartsAtOnceMakeOneInstance(t *testing.T) {
	store := builtStore(t)
	machine := load(t, "t4", "gpu.memory=128Mi", "gpu.reserved=2Mi", "gpu.context=4Mi")
	const starters = 8
	seeds := make(chan string, starters)
	for range starters {
		go func() {
			instance, err := store.Start(context.Background(), "lab", machine, "")
			if err != nil {
				t.Error(err)
				instance = new(Instance)
			}
			seeds <- instance.Seed
		}()
	}
	first := <-seeds
	for range starters - 1 {
		if seed := <-seeds; seed != first {
			t.Errorf("one start made seed %s, another %s", first, seed)
		}
	}
	entries, err := os.ReadDir(store.Root)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestASeedMakesTheSameGPUs(t *testing.T) {
	store := builtStore(t)
	machine := load(t, "t4", "gpu.memory=128Mi", "gpu.reserved=2Mi", "gpu.context=4Mi")
	one := report(t, store, start(t, store, "one", machine, "7"))
	two := report(t, store, start(t, store, "two", machine, "7"))
	if one.GPUs[0].UUID != two.GPUs[0].UUID {
		t.Errorf("seed 7 gave %s and %s", one.GPUs[0].UUID, two.GPUs[0].UUID)
	}
}

func TestStopForgetsTheInstance(t *testing.T) {
	store := builtStore(t)
	instance := start(t, store, "lab", load(t, "t4"), "")
	if err := store.Stop(t.Context(), instance, false); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open("lab"); !errors.Is(err, ErrNoInstance) {
		t.Errorf("Open after Stop: %v", err)
	}
	entries, err := os.ReadDir(store.Root)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestDamagedInstancesAreNamed(t *testing.T) {
	store := builtStore(t)
	instance := start(t, store, "lab", load(t, "t4"), "")
	if err := os.Truncate(filepath.Join(instance.Dir, "state"), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Report(t.Context(), instance); err == nil {
		t.Error("a truncated state was reported on")
	}
	if err := store.Stop(t.Context(), instance, false); err == nil {
		t.Error("a truncated state was stopped without force")
	}
	if err := store.Stop(t.Context(), instance, true); err != nil {
		t.Errorf("stop with force: %v", err)
	}
}

func TestTheMachinesTimeSlicesAreSetAsNvidiaSmiDoes(t *testing.T) {
	store := builtStore(t)
	instance := start(t, store, "lab", load(t, "t4"), "")
	smi := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(instance.Dir, "nvidia-smi"), append([]string{"compute-policy"}, args...)...).Output()
		if err != nil {
			t.Fatalf("nvidia-smi compute-policy %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if got := report(t, store, instance).GPUs[0].TimeSlice; got != "default" {
		t.Errorf("time slice of a new machine is %q", got)
	}
	smi("-i", report(t, store, instance).GPUs[0].UUID, "--set-timeslice", "3")
	if got := report(t, store, instance).GPUs[0].TimeSlice; got != "long" {
		t.Errorf("time slice is %q after it was set to long", got)
	}
	if out := smi("--list"); !strings.Contains(out, "|   0   Timeslice       Long          |\n") {
		t.Errorf("the list does not have it:\n%s", out)
	}
	if err := store.Inject(t.Context(), instance, 0, Injection{Call: CallReset}); err != nil {
		t.Fatal(err)
	}
	if got := report(t, store, instance).GPUs[0].TimeSlice; got != "default" {
		t.Errorf("time slice is %q after a reset", got)
	}
}
