package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
)

const minorThree = "Model: \t\t NVIDIA A100\nIRQ:   \t\t 47\nDevice Minor: \t 3\nGPU Excluded:\t No\n"

// write makes a text file below the root.
func (h host) write(path, text string) {
	h.t.Helper()
	full := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// device makes a character device below the root; only root may.
func (h host) device(path string, major, minor uint32) {
	h.t.Helper()
	full := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	err := unix.Mknod(full, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor)))
	if errors.Is(err, unix.EPERM) {
		h.t.Skip("device nodes cannot be made here: ", err)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// driven is a host with a driver as a distribution installs it, seen as an agent
// in a container sees it: absolute links mean the host's root.
func driven(t *testing.T) host {
	h := newHost(t)
	const dir = "usr/lib/x86_64-linux-gnu/nvidia/current/"
	h.object(dir+"libcuda.so.550.54.14", "libcuda.so.1")
	h.object(dir+"libnvidia-ml.so.550.54.14", "libnvidia-ml.so.1")
	h.object(dir+"libnvidia-ptxjitcompiler.so.550.54.14", "libnvidia-ptxjitcompiler.so.1")
	h.object(dir+"libnvidia-gpucomp.so.550.54.14", "libnvidia-gpucomp.so.550.54.14")
	h.object(dir+"libnvidia-nvvm.so.550.54.14", "libnvidia-nvvm.so.4")
	h.write(dir+"libnvidia-broken.so.550.54.14", "no object")
	h.write("usr/bin/nvidia-smi", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(h.root, "usr/bin/nvidia-smi"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.link("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.14", "usr/lib/x86_64-linux-gnu/libcuda.so.1")
	h.link("/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.54.14", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
	h.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", minorThree)
	return h
}

func TestSurroundingsOfADriver(t *testing.T) {
	h := driven(t)
	for minor, node := range []string{"nvidia0", "nvidia1", "nvidia2", "nvidia3"} {
		h.device("dev/"+node, 195, uint32(minor))
	}
	h.device("dev/nvidiactl", 195, 255)
	h.device("dev/nvidia-uvm", 510, 0)
	finder := Finder{Root: h.root}
	found, err := finder.Find()
	if err != nil {
		t.Fatal(err)
	}
	if got := finder.Host(found.Chosen[CUDA]); got != "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.14" {
		t.Errorf("the host's libcuda is %s", got)
	}
	devices, err := finder.Devices([]string{"00000000:3B:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := finder.Files(found, "550.54.14")
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, d := range devices {
		nodes = append(nodes, d.Path)
		if d.Source != d.Path || d.Path == "/dev/nvidia3" && (d.Major != 195 || d.Minor != 3) {
			t.Errorf("device %+v", d)
		}
	}
	slices.Sort(nodes)
	if want := []string{"/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidiactl"}; !slices.Equal(nodes, want) {
		t.Errorf("device nodes %v, want %v", nodes, want)
	}
	sources := map[string]string{}
	for _, m := range files {
		if sources[m.Target] != "" || !slices.Equal(m.Options, edits.ReadOnly) {
			t.Errorf("mount %+v", m)
		}
		sources[m.Target] = m.Source
	}
	const dir = "/usr/lib/x86_64-linux-gnu/nvidia/current/"
	want := map[string]string{"/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi"}
	for _, folder := range Folders() {
		want[folder+"/libnvidia-ptxjitcompiler.so.1"] = dir + "libnvidia-ptxjitcompiler.so.550.54.14"
		want[folder+"/libnvidia-gpucomp.so.550.54.14"] = dir + "libnvidia-gpucomp.so.550.54.14"
		want[folder+"/libnvidia-nvvm.so.4"] = dir + "libnvidia-nvvm.so.550.54.14"
	}
	for target, source := range want {
		if sources[target] != source {
			t.Errorf("%s is %q, want %q", target, sources[target], source)
		}
		delete(sources, target)
	}
	if len(sources) > 0 {
		t.Errorf("mounted besides: %v", sources)
	}
}

func TestSurroundingsSayWhatIsMissing(t *testing.T) {
	h := driven(t)
	h.device("dev/nvidiactl", 195, 255)
	h.device("dev/nvidia-uvm", 510, 0)
	for _, pci := range []string{"00000000:5E:00.0", "00000000:3B:00.0", "../../../etc"} {
		// The first GPU is not there, the second has no node.
		if d, err := (Finder{Root: h.root}).Devices([]string{pci}); !errors.Is(err, ErrNoDevice) {
			t.Errorf("%s: %+v, %v; want ErrNoDevice", pci, d, err)
		}
	}
	if d, err := (Finder{Root: h.root}).Devices(nil); err != nil || len(d) != 2 {
		t.Errorf("no GPU: %+v, %v", d, err)
	}
	h.write("dev/nvidia3", "a file")
	if d, err := (Finder{Root: h.root}).Devices([]string{"00000000:3B:00.0"}); !errors.Is(err, ErrNoDevice) {
		t.Errorf("a file for a device: %+v, %v", d, err)
	}
	if err := os.Remove(filepath.Join(h.root, "dev/nvidia-uvm")); err != nil {
		t.Fatal(err)
	}
	if d, err := (Finder{Root: h.root}).Devices(nil); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "nvidia-modprobe") {
		t.Errorf("without the module for memory: %+v, %v", d, err)
	}
	if files, err := (Finder{Root: h.root}).Files(&Driver{}, "999.9"); err == nil {
		t.Errorf("a driver of another version: %+v", files)
	}
}

func TestSurroundingsOfASimulatedMachine(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"state", "exports", "memory-0", "memory-1", "agent.sock", "instance.json", "nvidia-smi", "nvidia-cuda-mps-control"} {
		h.write("sim/"+name, "")
	}
	dir := filepath.Join(h.root, "sim")
	files, err := Finder{Instance: dir}.Files(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	devices, err := Finder{Instance: dir}.Devices([]string{"00000000:3B:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range files {
		tool := m.Target == "/usr/bin/nvidia-smi" && slices.Equal(m.Options, edits.ReadOnly)
		if filepath.Dir(m.Source) != dir || m.Source != m.Target && !tool {
			t.Errorf("mount %+v", m)
		}
		got = append(got, filepath.Base(m.Target))
	}
	if want := []string{"memory-0", "memory-1", "state", "exports", "nvidia-smi"}; !slices.Equal(got, want) || len(devices) > 0 {
		t.Errorf("%v, %v; want %v", got, devices, want)
	}
	if err := os.Remove(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	if files, err := (Finder{Instance: dir}).Files(nil, ""); err == nil {
		t.Errorf("without a state: %+v", files)
	}
}

func TestResolveBelowARoot(t *testing.T) {
	h := newHost(t)
	h.write("opt/real/lib.so.5", "")
	h.link("/opt/real", "opt/current")
	h.link("../opt/current/lib.so.5", "opt/relative")
	h.link("/opt/loop", "opt/loop")
	h.link("../../../../../opt/current/../real/lib.so.5", "opt/out")
	h.link("/etc/passwd", "opt/outside")
	f := Finder{Root: h.root}
	want := filepath.Join(h.root, "opt/real/lib.so.5")
	for _, path := range []string{"opt/real/lib.so.5", "opt/current/lib.so.5", "opt/relative", "opt/out"} {
		if got, err := f.resolve(filepath.Join(h.root, path)); err != nil || got != want {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	for _, path := range []string{"opt/loop", "opt/outside", "opt/nothing"} {
		if got, err := f.resolve(filepath.Join(h.root, path)); err == nil {
			t.Errorf("%s: %s", path, got)
		}
	}
	if f.Host(want) != "/opt/real/lib.so.5" || f.Host(h.root) != "/" || f.Host("/elsewhere") != "/elsewhere" || f.Host(h.root+"x") != h.root+"x" {
		t.Error("a host's path is not the one below the root")
	}
}
