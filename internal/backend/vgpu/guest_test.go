package vgpu_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

const (
	small       = "nvidia-471"
	backed      = "A100-1-5C"
	foreignUUID = "99999999-2222-3333-4444-000000000001"
)

// mediatedGPU gives the driver a GPU that makes mediated devices itself.
func mediatedGPU(t *testing.T) guest.Function {
	t.Helper()
	guest.Parameter(t, "mediated", true)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	t.Cleanup(func() {
		for _, uuid := range mdevs() {
			_ = guest.Write("/sys/bus/mdev/devices/"+uuid+"/remove", "1")
		}
	})
	return gpu
}

// vendorGPU gives the driver a GPU with virtual functions that take types.
func vendorGPU(t *testing.T, address string, count int) (gpu guest.Function, functions []guest.Function) {
	t.Helper()
	gpu = guest.Function(address)
	gpu.Bind(t, "nvidia")
	functions = gpu.Enable(t, count)
	for _, f := range functions {
		f.Bind(t, "nvidia")
	}
	return gpu, functions
}

// mdevs are the mediated devices that there are.
func mdevs() (uuids []string) {
	entries, _ := os.ReadDir("/sys/bus/mdev/devices")
	for _, e := range entries {
		uuids = append(uuids, e.Name())
	}
	return uuids
}

// state is what sysfs says of all vGPUs of the guest, in lines.
func state(functions ...guest.Function) string {
	var lines []string
	for _, uuid := range mdevs() {
		kind, _ := os.Readlink("/sys/bus/mdev/devices/" + uuid + "/mdev_type")
		lines = append(lines, uuid+" "+filepath.Base(kind))
	}
	for _, f := range functions {
		lines = append(lines, strings.Join([]string{string(f), f.Read("nvidia/current_vgpu_type"), f.Read("nvidia/gpu_instance_id"), f.Read("sriov_numvfs"), f.Read("double/instances")}, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// hold opens the VFIO node of a group until release is called, as a virtual machine does.
func hold(t testing.TB, group string) (release func()) {
	t.Helper()
	file, err := os.OpenFile("/dev/vfio/"+group, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return func() { _ = file.Close() }
}

func TestMediatedDevices(t *testing.T) {
	guest.Require(t)
	gpu := mediatedGPU(t)
	if err := gpu.Write("mdev_supported_types/"+small+"/create", foreignUUID); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t)
	r := a.must(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: "A100-10C"})
	made := r.Has["one"]
	if len(mdevs()) != 2 || !slices.Contains(mdevs(), made.UUID) || made.Type != small || made.Name != "NVIDIA A100-10C" || !made.Whole {
		t.Fatalf("the agent has %+v, and there are %v", made, mdevs())
	}
	if again := a.must(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: small}); again.Has["one"] != made || len(mdevs()) != 2 {
		t.Errorf("asked again: %+v, and there are %v", again, mdevs())
	}
	if r, _ := a.ask(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: "nvidia-472"}); !r.Owned {
		t.Errorf("another type for the same owner: %+v", r)
	}
	if r, _ := a.ask(order{Do: "claim", Owner: "two", GPU: string(gpu), Type: "nvidia-474"}); !strings.Contains(r.Fault, "no vGPU of the type is left: nvidia-474; there are nvidia-471") {
		t.Errorf("the whole GPU beside others: %s", r.Fault)
	}
	for _, isBlind := range []bool{false, true} {
		release := hold(t, guest.Function("../../mdev/devices/"+made.UUID).Group())
		if r, _ := a.ask(order{Do: "release", Owner: "one", Blind: isBlind}); !r.Open || len(mdevs()) != 2 {
			t.Errorf("release of a device that is open, blind %t: %+v, and there are %v", isBlind, r, mdevs())
		}
		release()
	}
	a.must(order{Do: "release", Owner: "one"})
	if got := mdevs(); !slices.Equal(got, []string{foreignUUID}) {
		t.Errorf("after the release there are %v, want the other's", got)
	}
	a.must(order{Do: "release", Owner: "one"})
}

func TestTypes(t *testing.T) {
	guest.Require(t)
	gpu, functions := vendorGPU(t, machine.RootedNVMe, 2)
	a := newAgent(t)
	made := a.must(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: "472"}).Has["one"]
	f := guest.Function(made.Function)
	if f != functions[0] || f.Read("nvidia/current_vgpu_type") != "472" || f.Driver() != "nvidia" || f.Group() == "" {
		t.Fatalf("%+v\n%s", made, state(functions...))
	}
	// A virtual function that is named is nobody else's.
	if r, _ := a.ask(order{Do: "claim", Owner: "two", GPU: made.Function, Type: "472"}); !strings.Contains(r.Fault, "no vGPU of the type is left: \"472\": the GPU is full") {
		t.Errorf("two claims for one function: %s", r.Fault)
	}
	for _, isBlind := range []bool{false, true} {
		release := hold(t, f.Group())
		if r, _ := a.ask(order{Do: "release", Owner: "one", Blind: isBlind}); !r.Open || f.Read("nvidia/current_vgpu_type") != "472" {
			t.Errorf("release of a function that is open, blind %t: %+v, it has type %s", isBlind, r, f.Read("nvidia/current_vgpu_type"))
		}
		release()
	}
	a.must(order{Do: "release", Owner: "one"})
	if got := f.Read("nvidia/current_vgpu_type"); got != "0" {
		t.Errorf("after the release it has type %s", got)
	}
	// Another's type is left, and so is one that another gave to our function.
	made = a.must(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: "472"}).Has["one"]
	f = guest.Function(made.Function)
	for _, kind := range []string{"0", "471"} {
		if err := f.Write("nvidia/current_vgpu_type", kind); err != nil {
			t.Fatal(err)
		}
	}
	if r := a.must(order{Do: "release", Owner: "one"}); r.Left != 1 || f.Read("nvidia/current_vgpu_type") != "471" {
		t.Errorf("what another changed: %+v, it has type %s", r, f.Read("nvidia/current_vgpu_type"))
	}
	if r, _ := a.ask(order{Do: "claim", Owner: "two", GPU: string(f), Type: "471"}); r.Fault == "" {
		t.Errorf("another's function is given: %+v", r)
	}
	if err := f.Write("nvidia/current_vgpu_type", "0"); err != nil {
		t.Fatal(err)
	}
}

func TestBackedTypes(t *testing.T) {
	guest.Require(t)
	gpu, functions := vendorGPU(t, machine.RootedNVMe, 2)
	before := state(append(functions, gpu)...)
	a := newAgent(t)
	for i, owner := range []string{"one", "two"} {
		made := a.must(order{Do: "claim", Owner: owner, GPU: string(gpu), Type: backed}).Has[owner]
		f := guest.Function(made.Function)
		if f.Read("nvidia/current_vgpu_type") != "475" || f.Read("nvidia/gpu_instance_id") != []string{"0", "1"}[i] {
			t.Fatalf("%+v\n%s", made, state(append(functions, gpu)...))
		}
	}
	if r, _ := a.ask(order{Do: "claim", Owner: "three", GPU: string(gpu), Type: backed}); !strings.Contains(r.Fault, "no vGPU of the type is left") || gpu.Read("double/instances") != "3" {
		t.Errorf("a third one on two functions: %s; instances %s", r.Fault, gpu.Read("double/instances"))
	}
	a.must(order{Do: "release", Owner: "one"})
	a.must(order{Do: "release", Owner: "two"})
	if after := state(append(functions, gpu)...); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}

func TestVirtualFunctions(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	if err := gpu.Write("sriov_drivers_autoprobe", "0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gpu.Write("sriov_drivers_autoprobe", "1") })
	t.Cleanup(func() { _ = gpu.Write("sriov_numvfs", "0") })
	a := newAgent(t)
	fault := func(want string, o order) {
		t.Helper()
		o.GPU = string(gpu)
		if r, _ := a.ask(o); !strings.Contains(r.Fault, want) || want == "" && r.Fault != "" {
			t.Errorf("%s %d: %q, want %q", o.Do, o.Count, r.Fault, want)
		}
	}
	t.Run("refused", func(t *testing.T) {
		guest.Parameter(t, "refuse_functions", true)
		fault("enable 2 virtual functions of 0000:81:00.0: input/output error", order{Do: "enable", Count: 2})
		if got := gpu.Read("sriov_numvfs"); got != "0" {
			t.Errorf("there are %s", got)
		}
	})
	fault("it can have 1 to 2, not 3", order{Do: "enable", Count: 3})
	fault("", order{Do: "enable", Count: 2})
	fault("it has 2, and their number changes only from 0", order{Do: "enable", Count: 1})
	f := gpu.Virtual()[0]
	t.Run("used", func(t *testing.T) {
		f.Bind(t, "nvidia")
		if err := f.Write("nvidia/current_vgpu_type", "471"); err != nil {
			t.Fatal(err)
		}
		fault("virtual functions are in use: 0000:81:00.1 has a vGPU", order{Do: "disable"})
		if err := f.Write("nvidia/current_vgpu_type", "0"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("given", func(t *testing.T) {
		f.Bind(t, "vfio-pci")
		fault("virtual functions are in use: 0000:81:00.1 is with vfio-pci", order{Do: "disable"})
	})
	fault("", order{Do: "disable"})
	if got := gpu.Read("sriov_numvfs"); got != "0" {
		t.Errorf("afterwards there are %s", got)
	}
	// Those that somebody else enabled stay.
	if err := gpu.Write("sriov_numvfs", "1"); err != nil {
		t.Fatal(err)
	}
	fault("their number changes only from 0", order{Do: "enable", Count: 2})
	fault("it was not Divvy that enabled its virtual functions", order{Do: "disable"})
	if got := gpu.Read("sriov_numvfs"); got != "1" {
		t.Errorf("of another's function there are %s left", got)
	}
}

// Functions of a card that makes no vGPUs get no driver of the host's, and go to a virtual machine all the same. However the agent
// is killed, drivers get functions afterwards as before.
func TestVirtualFunctionsWithoutDriver(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	state := func() string {
		return card.Read("sriov_numvfs") + " " + card.Read("sriov_drivers_autoprobe")
	}
	if got := state(); got != "0 1" {
		t.Fatalf("there are functions and drivers %q", got)
	}
	t.Cleanup(func() { _, _ = card.Write("sriov_numvfs", "0"), card.Write("sriov_drivers_autoprobe", "1") })
	a := newAgent(t)
	a.must(order{Do: "enable", GPU: string(card), Count: 2})
	functions := card.Virtual()
	if got := state(); got != "2 0" || len(functions) != 2 || functions[0].Driver()+functions[1].Driver() != "" {
		t.Fatalf("there are functions and drivers %q, %v", got, functions)
	}
	t.Run("given", func(t *testing.T) {
		functions[0].Bind(t, "vfio-pci")
		if r, _ := a.ask(order{Do: "disable", GPU: string(card)}); !strings.Contains(r.Fault, "is with vfio-pci") {
			t.Errorf("functions of which one is given: %q", r.Fault)
		}
	})
	a.must(order{Do: "disable", GPU: string(card)})
	if got := state(); got != "0 1" {
		t.Fatalf("afterwards there are functions and drivers %q", got)
	}
	crash(t, "virtual functions without a driver", order{Do: "enable", GPU: string(card), Count: 1}, order{Do: "disable", GPU: string(card)}, state)
}

// A device that vanishes under its owner is crossed out when it is released.
func TestVanishes(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	functions := gpu.Enable(t, 1)
	functions[0].Bind(t, "nvidia")
	a := newAgent(t)
	a.must(order{Do: "claim", Owner: "one", GPU: string(gpu), Type: "471"})
	if err := gpu.Write("sriov_numvfs", "0"); err != nil {
		t.Fatal(err)
	}
	if r := a.must(order{Do: "release", Owner: "one"}); r.Left == 0 || len(r.Has) != 0 {
		t.Errorf("%+v", r)
	}
	if r, _ := a.ask(order{Do: "claim", Owner: "one", GPU: string(functions[0]), Type: "471"}); !strings.Contains(r.Fault, "the device is not there") {
		t.Errorf("a function that is gone: %s", r.Fault)
	}
}

// An agent that is killed at any step leaves what the next one puts right: the vGPU is there and in the book, or all is as it was.
func TestCrash(t *testing.T) {
	guest.Require(t)
	for _, form := range []struct {
		name, kind string
		mediated   bool
	}{{"mdev", small, true}, {"VF type", "471", false}, {"instance and VF", backed, false}} {
		t.Run(form.name, func(t *testing.T) {
			var gpu guest.Function
			var functions []guest.Function
			if form.mediated {
				gpu = mediatedGPU(t)
			} else {
				gpu, functions = vendorGPU(t, machine.RootedNVMe, 1)
			}
			functions = append(functions, gpu)
			crash(t, form.name, order{Do: "claim", Owner: "one", GPU: string(gpu), Type: form.kind}, order{Do: "release", Owner: "one"}, func() string { return state(functions...) })
		})
	}
	t.Run("virtual functions", func(t *testing.T) {
		gpu := guest.Function(machine.RootedNVMe)
		gpu.Bind(t, "nvidia")
		_ = gpu.Write("sriov_drivers_autoprobe", "0")
		t.Cleanup(func() { _ = gpu.Write("sriov_drivers_autoprobe", "1") })
		crash(t, "virtual functions", order{Do: "enable", GPU: string(gpu), Count: 1}, order{Do: "disable", GPU: string(gpu)}, func() string { return state(gpu) })
	})
}

// crash kills an agent at each step of making and of taking away.
func crash(t *testing.T, form string, make, take order, state func() string) {
	t.Helper()
	before, killed, wrong := state(), 0, 0
	a := newAgent(t)
	amiss := func(o order, when string) {
		if after := state(); after != before {
			wrong++
			t.Errorf("killed at step %d of %s, %s there is\n%s, want\n%s", o.Die, o.Do, when, after, before)
		}
	}
	for _, o := range []order{make, take} {
		for o.Die = 1; !t.Failed(); o.Die++ {
			if o.Do == take.Do {
				a.must(make)
			}
			if _, lives := a.ask(o); lives {
				a.must(take)
				break
			}
			killed++
			r := a.restart()
			if r.Entries == 0 {
				amiss(o, "after the next start")
			}
			if h, has := r.Has[make.Owner]; has && h.Type == "" {
				wrong++
				t.Errorf("killed at step %d of %s, after the next start the owner has %+v, which is no vGPU", o.Die, o.Do, h)
			}
			a.must(take)
			amiss(o, "after the release")
		}
	}
	figure.Tell(t, figure.Figure{
		ID: "vm.crash", Case: form, Values: []float64{float64(wrong)},
		Note: fmt.Sprintf("of %d steps at which the agent was killed", killed),
	})
	if killed < 8 {
		t.Errorf("it was killed at %d steps only", killed)
	}
}
