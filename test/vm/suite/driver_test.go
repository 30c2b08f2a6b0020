package suite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

const (
	first  = "11111111-2222-3333-4444-000000000001"
	second = "11111111-2222-3333-4444-000000000002"
	third  = "11111111-2222-3333-4444-000000000003"
)

func TestNode(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	t.Run("bound", func(t *testing.T) {
		gpu.Bind(t, "nvidia")
		if nodes := guest.Nodes(); len(nodes) != 1 || nodes[0] != "/dev/nvidia0" {
			t.Errorf("there are the nodes %v, want /dev/nvidia0", nodes)
		}
	})
	if nodes := guest.Nodes(); len(nodes) != 0 {
		t.Errorf("there are the nodes %v of no GPU", nodes)
	}
	if driver := gpu.Driver(); driver != "" {
		t.Errorf("the GPU is bound to %s, want nothing", driver)
	}
}

// While somebody has the node open, whoever unbinds sleeps, and no signal wakes it.
func TestOpenNodeHoldsTheDriver(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	holder, err := os.Open("/dev/nvidia0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	write := exec.Command("/proc/self/exe") //nolint:noctx // it ends when the holder does
	write.Env = append(os.Environ(), unbinding+"="+string(gpu))
	if err := write.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	guest.WaitFor(t, "the write sleeps beyond signals", func() bool { return state(write.Process.Pid) == "D" })
	if err := write.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- write.Wait() }()
	guest.WaitFor(t, "SIGKILL has reached the write", func() bool { return isKilled(write.Process.Pid) })
	select {
	case err := <-ended:
		t.Errorf("the write ended while the node was open: %v", err)
	default:
	}
	if got := state(write.Process.Pid); got != "D" {
		t.Errorf("after SIGKILL the write has state %q, want D", got)
	}
	// The kernel takes the link away before it asks the driver to let go.
	if got := gpu.Driver(); got != "" {
		t.Errorf("meanwhile the GPU is shown as bound to %q, want nothing", got)
	}
	if nodes := guest.Nodes(); len(nodes) != 1 {
		t.Errorf("meanwhile there are the nodes %v, want the one that is open", nodes)
	}
	_ = holder.Close()
	<-ended
	if nodes := guest.Nodes(); len(nodes) != 0 {
		t.Errorf("once its node was closed there are the nodes %v, want none", nodes)
	}
}

// state returns the letter of a process's state: of its thread that sleeps beyond signals, if there is one.
func state(pid int) string {
	found := ""
	stats, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/stat"))
	for _, path := range stats {
		text, _ := os.ReadFile(path) //nolint:gosec // of a process of this test
		if at := strings.LastIndexByte(string(text), ')'); at >= 0 && len(text) > at+2 {
			if letter := string(text[at+2]); found != "D" {
				found = letter
			}
		}
	}
	return found
}

// isKilled tells whether a process has SIGKILL before it: bit 8 of the signals that wait for all of its threads, or for
// the one that sleeps.
func isKilled(pid int) bool {
	statuses, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/status"))
	for _, path := range statuses {
		text, _ := os.ReadFile(path) //nolint:gosec // of a process of this test
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			waiting, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if (name == "SigPnd" || name == "ShdPnd") && err == nil && waiting&(1<<(syscall.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// counts returns how many vGPUs of each type mdev still offers below a function.
func counts(gpu guest.Function) map[string]string {
	left := map[string]string{}
	types, _ := filepath.Glob(gpu.Path("mdev_supported_types/*"))
	for _, path := range types {
		left[filepath.Base(path)] = gpu.Read("mdev_supported_types/" + filepath.Base(path) + "/available_instances")
	}
	return left
}

func TestMediatedTypes(t *testing.T) {
	guest.Require(t)
	guest.Parameter(t, "mediated", true)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	create := func(kind, uuid string) error { return gpu.Write("mdev_supported_types/"+kind+"/create", uuid) }
	remove := func(uuid string) error { return guest.Write("/sys/bus/mdev/devices/"+uuid+"/remove", "1") }
	expect := func(when, want string) {
		t.Helper()
		c := counts(gpu)
		if got := strings.Join([]string{c["nvidia-470"], c["nvidia-471"], c["nvidia-472"], c["nvidia-474"]}, " "); len(c) != 4 || got != want {
			t.Errorf("%s: %v are left, want %s", when, c, want)
		}
	}
	for file, want := range map[string]string{
		"name": "NVIDIA A100-20C", "device_api": "vfio-pci",
		"description": "num_heads=1, frl_config=60, framebuffer=20480M, max_resolution=4096x2160, max_instance=2",
	} {
		if got := gpu.Read("mdev_supported_types/nvidia-472/" + file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	expect("at first", "5 4 2 1")
	if err := create("nvidia-472", first); err != nil {
		t.Fatal(err)
	}
	expect("one of size 20", "0 0 1 0")
	if err := create("nvidia-472", first); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("the same UUID again: %v, want EEXIST", err)
	}
	if err := create("nvidia-471", third); err == nil {
		t.Error("a vGPU of another size can be made")
	}
	if err := create("nvidia-472", second); err != nil {
		t.Fatal(err)
	}
	expect("full", "0 0 0 0")
	if err := create("nvidia-472", third); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("one more than fits: %v, want ENOSPC", err)
	}
	if err := errors.Join(remove(first), remove(second)); err != nil {
		t.Fatal(err)
	}
	expect("empty again", "5 4 2 1")
	guest.Parameter(t, "mixed", true)
	if err := errors.Join(create("nvidia-472", first), create("nvidia-471", second)); err != nil {
		t.Fatal(err)
	}
	expect("sizes 20 and 10", "1 1 0 0")
}

func TestMediatedVirtualFunctions(t *testing.T) {
	guest.Require(t)
	guest.Parameter(t, "mediated", true)
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	if c := counts(gpu); len(c) != 0 {
		t.Errorf("a GPU with virtual functions offers %v itself", c)
	}
	functions := gpu.Enable(t, 2)
	for _, f := range functions {
		f.Bind(t, "nvidia")
		if c := counts(f); c["nvidia-471"] != "1" {
			t.Errorf("%s has %v left, want one of each", f, c)
		}
	}
	if err := functions[0].Write("mdev_supported_types/nvidia-472/create", first); err != nil {
		t.Fatal(err)
	}
	if c := counts(functions[0]); c["nvidia-472"] != "0" {
		t.Errorf("a function that has a vGPU has %v left", c)
	}
	if c := counts(functions[1]); c["nvidia-472"] != "1" || c["nvidia-471"] != "0" {
		t.Errorf("beside a vGPU of size 20 the other function has %v left, want one of that size alone", c)
	}
}

// creatable returns the ids that a virtual function offers.
func creatable(f guest.Function) string {
	var ids []string
	for _, line := range strings.Split(f.Read("nvidia/creatable_vgpu_types"), "\n")[1:] {
		ids = append(ids, strings.Fields(line)[0])
	}
	return strings.Join(ids, " ")
}

func TestVirtualFunctionTypes(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	functions := gpu.Enable(t, 2)
	for _, f := range functions {
		f.Bind(t, "nvidia")
		if got := f.Read("nvidia/current_vgpu_type"); got != "0" {
			t.Errorf("%s has type %s at first", f, got)
		}
	}
	set := func(i int, file, value string) error { return functions[i].Write("nvidia/"+file, value) }
	if got := creatable(functions[0]); got != "470 471 472 474" {
		t.Errorf("at first there are %q", got)
	}
	if err := set(0, "current_vgpu_type", "999"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a type that is none: %v, want EINVAL", err)
	}
	if err := set(0, "current_vgpu_type", "474"); err != nil {
		t.Fatal(err)
	}
	if got := creatable(functions[1]); got != "" {
		t.Errorf("beside a vGPU of the whole GPU there are %q", got)
	}
	if err := set(0, "current_vgpu_type", "474"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second type: %v, want EBUSY", err)
	}
	if err := set(1, "current_vgpu_type", "470"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than there is: %v, want ENOSPC", err)
	}
	if err := errors.Join(set(0, "current_vgpu_type", "0"), set(0, "current_vgpu_type", "472")); err != nil {
		t.Fatal(err)
	}
	if got := creatable(functions[1]); got != "472" {
		t.Errorf("beside a vGPU of size 20 there are %q, want that size alone", got)
	}
	if err := set(0, "current_vgpu_type", "0"); err != nil {
		t.Fatal(err)
	}
	// A GPU instance backs one function, and no vGPU stands beside it.
	if err := errors.Join(gpu.Write("double/instances", "6"), set(0, "gpu_instance_id", "1"), set(1, "gpu_instance_id", "1")); err != nil {
		t.Fatal(err)
	}
	if got := creatable(functions[0]); got != "475" {
		t.Errorf("with an instance there are %q, want its own", got)
	}
	if err := set(0, "current_vgpu_type", "475"); err != nil {
		t.Fatal(err)
	}
	if err := set(1, "current_vgpu_type", "475"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an instance that is taken: %v, want ENOSPC", err)
	}
	if err := gpu.Write("double/instances", "4"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("an instance goes from under its function: %v, want EBUSY", err)
	}
}

func TestRefusedVirtualFunctions(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	guest.Parameter(t, "refuse_functions", true)
	if err := gpu.Write("sriov_numvfs", "1"); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v, want EIO", err)
	}
}
