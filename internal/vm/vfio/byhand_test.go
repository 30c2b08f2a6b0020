package vfio_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// card can have virtual functions.
var card = pci.Address{Bus: 0x5e}

// settledHost has a GPU whose override is its driver's own name, one of whose functions has no driver, and a card.
func settledHost() *facts.Host {
	h := host()
	h.Devices[0].Override, h.Devices[1].Driver = "nvidia", ""
	d := facts.Device{Group: 9, Driver: "mlx5_core", VFsTotal: 4}
	d.Address, d.Class = card, 0x020000
	h.Devices = append(h.Devices, d)
	return h
}

// booked is a book with entries that are bound as far as they are begun, on a machine whose files a shell has.
func booked(t *testing.T, kernel *vmtest.Kernel, entries ...vfio.Entry) (*vfio.Book, vmtest.Shell) {
	t.Helper()
	root, dir := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, vfio.FileName)
	must(t, checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save(entries))
	must(t, os.Mkdir(filepath.Join(dir, "vfio-receipts"), 0o700))
	for _, e := range entries {
		for _, s := range e.Plan.Steps[:e.Begun] {
			if s.Alike {
				must(t, os.WriteFile(filepath.Join(dir, "vfio-receipts", s.Device.String()+"-"+string(s.Kind)), nil, 0o600))
			}
		}
	}
	shell := vmtest.Shell{Root: root, Kernel: kernel}
	must(t, shell.Show())
	return open(t, vfio.Config{Path: path, Machine: vfio.Host{Root: root}}), shell
}

func lines(b *vfio.Book) (all []string) {
	for _, e := range b.ByHand() {
		all = append(all, e.Commands...)
	}
	return all
}

// After any number of steps the commands put back what there was first: no override that was not there, and one that was.
func TestByHandAfterAnyStep(t *testing.T) {
	enable, err := binding.EnableFunctions(&vgpu.GPU{Address: card, FunctionsTotal: 4, Driver: "mlx5_core", Probed: "1"}, 2)
	must(t, err)
	whole, err := binding.Passthrough(settledHost(), gpu)
	must(t, err)
	for name, plan := range map[string]binding.Plan{"whole": whole, "functions": enable} {
		for begun := range len(plan.Steps) + 1 {
			for _, made := range []int{begun, max(begun-1, 0)} { // the last one may not have been made
				kernel := vmtest.NewKernel(settledHost())
				before := kernel.Snapshot()
				for _, s := range plan.Steps[:made] {
					must(t, kernel.Do(s))
				}
				b, shell := booked(t, kernel, vfio.Entry{Owner: "ada", Plan: plan, Phase: vfio.Binding, Begun: begun})
				commands := lines(b)
				must(t, shell.Run(t.Context(), commands))
				if after := kernel.Snapshot(); after != before {
					t.Errorf("%s, %d of %d steps: %q left\n%s, want\n%s", name, made, len(plan.Steps), commands, after, before)
				}
				if made == len(plan.Steps) && name == "whole" && (kernel.Resets(gpu) != 1 || kernel.Resets(audio) != 1) {
					t.Errorf("resets: %d, %d", kernel.Resets(gpu), kernel.Resets(audio))
				}
			}
		}
	}
}

// Virtual functions go away after the claims that have one came back, and while nobody uses another one.
func TestByHandOfFunctions(t *testing.T) {
	enable, err := binding.EnableFunctions(&vgpu.GPU{Address: card, FunctionsTotal: 4, Driver: "mlx5_core", Probed: "1"}, 2)
	must(t, err)
	kernel := vmtest.NewKernel(settledHost())
	before := kernel.Snapshot()
	for _, s := range enable.Steps {
		must(t, kernel.Do(s))
	}
	h := settledHost()
	var claimed []binding.Plan
	for n := 1; n <= 2; n++ {
		d := facts.Device{Group: 20 + n}
		d.Address, d.Virtual = vmtest.Virtual(card, n), true
		h.Devices = append(h.Devices, d)
		plan, err := binding.Function(h, d.Address)
		must(t, err)
		for _, s := range plan.Steps {
			must(t, kernel.Do(s))
		}
		claimed = append(claimed, plan)
	}
	entry := func(owner string, p binding.Plan) vfio.Entry {
		return vfio.Entry{Owner: owner, Plan: p, Phase: vfio.Bound, Begun: len(p.Steps)}
	}
	b, shell := booked(t, kernel, entry("one", claimed[0]), entry("functions", enable))
	during := kernel.Snapshot()
	err = shell.Run(t.Context(), lines(b))
	if err == nil || !strings.Contains(err.Error(), "virtfn1/driver -> ") {
		t.Errorf("while somebody has the second function: %v", err)
	}
	one := " driver=\"vfio-pci\" override=\"vfio-pci\"\n"
	if want := strings.Replace(during, claimed[0].Device.String()+one, claimed[0].Device.String()+" driver=\"\" override=\"\"\n", 1); kernel.Snapshot() != want {
		t.Errorf("there is\n%s, want\n%s", kernel.Snapshot(), want)
	}
	b, shell = booked(t, kernel, entry("functions", enable), entry("two", claimed[1]))
	must(t, shell.Run(t.Context(), lines(b)))
	if after := kernel.Snapshot(); after != before {
		t.Errorf("there is\n%s, want\n%s", after, before)
	}
}

// What somebody else changed is left and told.
func TestByHandLeavesWhatOthersChanged(t *testing.T) {
	plan, err := binding.Passthrough(settledHost(), gpu)
	must(t, err)
	kernel := vmtest.NewKernel(settledHost())
	for _, s := range plan.Steps {
		must(t, kernel.Do(s))
	}
	must(t, kernel.Write(binding.Write{Path: binding.DeviceFolder(gpu) + "/driver_override", Value: "pci-stub"}))
	b, shell := booked(t, kernel, vfio.Entry{Owner: "ada", Plan: plan, Phase: vfio.Bound, Begun: len(plan.Steps)})
	must(t, shell.Run(t.Context(), lines(b)))
	if !strings.Contains(kernel.Snapshot(), gpu.String()+` driver="" override="pci-stub"`) {
		t.Errorf("there is\n%s", kernel.Snapshot())
	}
	var left []string
	for _, f := range b.ByHand()[0].Left {
		left = append(left, f.What)
	}
	if !slices.Equal(left, []string{"driver_override", "driver"}) {
		t.Errorf("left are %v", left)
	}
}

// A type is cleared while the shell has the group's node open, and not where it cannot open that.
func TestByHandOfTypes(t *testing.T) {
	root, file, plan := typed(t)
	must(t, os.Symlink("../../../../kernel/iommu_groups/5", filepath.Join(root, "sys", binding.DeviceFolder(plan.Device), "iommu_group")))
	must(t, os.MkdirAll(filepath.Join(root, "sys/class/vfio/5"), 0o700))
	must(t, os.WriteFile(file, []byte("7\n"), 0o600))
	path := filepath.Join(root, vfio.FileName)
	must(t, checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save([]vfio.Entry{{Owner: "one", Plan: plan, Phase: vfio.Bound, Begun: 1}}))
	b := open(t, vfio.Config{Path: path, Machine: vfio.Host{Root: root}})
	if got := lines(b); len(got) != 0 {
		t.Errorf("without a receipt it is somebody else's: %q", got)
	}
	must(t, os.Mkdir(filepath.Join(root, "vfio-receipts"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "vfio-receipts", plan.Device.String()+"-type"), nil, 0o600))
	got := lines(b)
	if !slices.Equal(got, []string{"echo 0 3</dev/vfio/5 >/sys/bus/pci/devices/0000:01:00.1/nvidia/current_vgpu_type"}) {
		t.Fatalf("%q", got)
	}
	shell := vmtest.Shell{Root: root, Kernel: vmtest.NewKernel(&facts.Host{})}
	if err := shell.Line(t.Context(), got[0]); err == nil {
		t.Error("it was written without the node")
	}
	has(t, file, "7")
	must(t, os.MkdirAll(filepath.Join(root, "dev/vfio"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "dev/vfio/5"), nil, 0o600))
	must(t, shell.Line(t.Context(), got[0]))
	has(t, file, "0")
}

// A mediated device is removed while the shell has its group's node open, by a book that can be read and by one that cannot.
func TestByHandOfMediatedDevices(t *testing.T) {
	const uuid = "5f0b7d4e-0f5c-4a3c-9c83-3c0e7a3f1d52"
	root := t.TempDir()
	plan := binding.UnbookedMediated(gpu, uuid, "nvidia-471")
	made := filepath.Join(root, "sys", binding.MediatedFolder(uuid))
	for _, folder := range []string{made, filepath.Join(root, "sys", binding.DeviceFolder(gpu)), filepath.Join(root, "sys/class/vfio/6")} {
		must(t, os.MkdirAll(folder, 0o700))
	}
	must(t, os.Symlink("../../../kernel/iommu_groups/6", filepath.Join(made, "iommu_group")))
	must(t, os.Symlink("../mdev_supported_types/nvidia-471", filepath.Join(made, "mdev_type")))
	path := filepath.Join(root, vfio.FileName)
	must(t, checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save([]vfio.Entry{{Owner: "one", Plan: plan, Phase: vfio.Bound, Begun: 1}}))
	c := vfio.Config{Path: path, Machine: vfio.Host{Root: root}}
	unbooked := vfio.Unbooked(c, []vfio.Entry{{Owner: "one", Plan: binding.UnbookedMediated(gpu, uuid, "")}})
	for name, b := range map[string]*vfio.Book{"book": open(t, c), "no book": unbooked} {
		if got := lines(b); !slices.Equal(got, []string{"echo 1 3</dev/vfio/6 >/sys/bus/mdev/devices/" + uuid + "/remove"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	must(t, os.RemoveAll(made))
	for name, b := range map[string]*vfio.Book{"book": open(t, c), "no book": unbooked} {
		if got := lines(b); len(got) != 0 {
			t.Errorf("%s, once it is gone: %q", name, got)
		}
	}
}

// Names that others chose are words for a shell and nothing more.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{"/dev/vfio/7": "/dev/vfio/7", "a b": "'a b'", "$(x)": "'$(x)'", "it's": "'it'\\''s'", "": "''"} {
		if got := vfio.Quoted(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

// What cannot be read, as while a device is stuck, is taken for what the book says: its command is there.
func TestByHandOfAStuckDevice(t *testing.T) {
	plan, err := binding.Passthrough(settledHost(), gpu)
	must(t, err)
	kernel := vmtest.NewKernel(settledHost())
	for _, s := range plan.Steps {
		must(t, kernel.Do(s))
	}
	entry := vfio.Entry{Owner: "ada", Plan: plan, Phase: vfio.Bound, Begun: len(plan.Steps)}
	b, shell := booked(t, kernel, entry)
	want := lines(b)
	path := filepath.Join(t.TempDir(), vfio.FileName)
	must(t, checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save([]vfio.Entry{entry}))
	b = open(t, vfio.Config{Path: path, Machine: vfio.Host{Root: shell.Root, Wait: time.Millisecond}})
	file := filepath.Join(shell.Root, "sys", binding.DeviceFolder(gpu), "driver_override")
	must(t, os.Remove(file))
	must(t, syscall.Mkfifo(file, 0o600))
	if got := lines(b); !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%q, want %q", got, want)
	}
	end, err := os.OpenFile(file, os.O_RDWR, 0) // whoever reads it wakes up
	must(t, err)
	must(t, end.Close())
}
