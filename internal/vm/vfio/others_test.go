package vfio_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// others is what somebody else does to a device that is given.
var others = map[string]struct {
	do func(t *testing.T, m *machine)
	// left is what is told, and after what driver and override the GPU has then.
	left  []vfio.Foreign
	after string
	// reset is whether the GPU is still Divvy's to reset.
	reset bool
}{
	"an override": {
		func(t *testing.T, m *machine) {
			t.Helper()
			must(t, m.Write(binding.Write{Path: binding.DeviceFolder(gpu) + "/driver_override", Value: "theirs\n"}))
		},
		[]vfio.Foreign{{Device: gpu, What: "driver_override", Found: "theirs"}, {Device: gpu, What: "driver", Before: "nvidia", Override: "theirs"}},
		`driver="" override="theirs"`,
		true,
	},
	"the driver is back": {
		func(t *testing.T, m *machine) {
			t.Helper()
			for _, w := range []binding.Write{
				{Path: "bus/pci/drivers/vfio-pci/unbind", Value: gpu.String()},
				{Path: binding.DeviceFolder(gpu) + "/driver_override", Value: "\n"},
				{Path: "bus/pci/drivers/nvidia/bind", Value: gpu.String()},
			} {
				must(t, m.Write(w))
			}
		},
		[]vfio.Foreign{{Device: gpu, What: "driver", Found: "nvidia"}},
		`driver="nvidia" override=""`,
		false,
	},
	"the driver is gone": {
		func(_ *testing.T, m *machine) { m.Unload("nvidia") },
		[]vfio.Foreign{{Device: gpu, What: "driver", Before: "nvidia"}},
		`driver="" override=""`,
		true,
	},
	"the device is gone": {
		func(_ *testing.T, m *machine) { m.Remove(gpu) },
		[]vfio.Foreign{{Device: gpu, What: "device", Found: "gone", Before: "there"}},
		"",
		false,
	},
}

// That a device has no driver afterwards is told with why, and with commands that give it one.
func TestDeviceWithoutADriverIsTold(t *testing.T) {
	for want, f := range map[string]vfio.Foreign{
		"0000:3d:00.0 has no driver now and was with nvidia: somebody else has set its driver_override to \"theirs\", which is left: for the driver, as root, " +
			"`echo > /sys/bus/pci/devices/0000:3d:00.0/driver_override && echo 0000:3d:00.0 > /sys/bus/pci/drivers_probe`": others["an override"].left[1],
		"0000:3d:00.0 has no driver now and was with nvidia, which is not loaded any more: load it, and as root `echo 0000:3d:00.0 > /sys/bus/pci/drivers_probe`": others["the driver is gone"].left[0],
		`driver of 0000:3d:00.0 is "nvidia" now and was "": somebody changed it, so it is left`:                                                                   others["the driver is back"].left[0],
	} {
		if f.String() != want {
			t.Errorf("%s, want %s", f, want)
		}
	}
}

// What somebody else changed is left and told; all else is put back, and the book is empty.
func TestOthersChangesAreLeft(t *testing.T) {
	for name, c := range others {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m})
			must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
			c.do(t, m)
			left, err := b.Release(t.Context(), "ada")
			if err != nil || !slices.Equal(left, c.left) {
				t.Errorf("left %v, %v; want %v", left, err, c.left)
			}
			after := m.Snapshot()
			if c.after != "" && !strings.Contains(after, gpu.String()+" "+c.after) || !strings.Contains(after, audio.String()+` driver="snd_hda_intel" override=""`) {
				t.Errorf("afterwards there is\n%s, want %s", after, c.after)
			}
			if len(b.Entries()) != 0 {
				t.Errorf("the book has %v", b.Entries())
			}
			if resets := m.Resets(gpu); (resets == 1) != c.reset || m.Resets(audio) != 1 {
				t.Errorf("the GPU was reset %d times, and its audio function %d times", resets, m.Resets(audio))
			}
		})
	}
}

// A device that is not as it was planned for is not bound, and nothing is changed.
func TestChangedSincePlanned(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(m *machine) error
		want error
	}{
		"an override": {func(m *machine) error {
			return m.Write(binding.Write{Path: binding.DeviceFolder(audio) + "/driver_override", Value: "theirs"})
		}, vfio.ErrChanged},
		"another driver": {func(m *machine) error {
			return m.Write(binding.Write{Path: "bus/pci/drivers/nvidia/unbind", Value: gpu.String()})
		}, vfio.ErrChanged},
		"gone":               {func(m *machine) error { m.Remove(audio); return nil }, vfio.ErrVanished},
		"no driver takes it": {func(m *machine) error { m.Unload(binding.Driver); return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m})
			plan := planned(t, gpu)
			must(t, c.do(m))
			before := m.Snapshot()
			if err := b.Bind(t.Context(), "ada", plan); err == nil || !errors.Is(err, c.want) && c.want != nil {
				t.Errorf("bound: %v, want %v", err, c.want)
			}
			if after := m.Snapshot(); after != before || len(b.Entries()) != 0 {
				t.Errorf("afterwards there is\n%s, want\n%s; the book has %v", after, before, b.Entries())
			}
		})
	}
}

func TestTakenAndOpen(t *testing.T) {
	m := newMachine()
	b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m})
	must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
	if err := b.Bind(t.Context(), "bob", planned(t, gpu)); !errors.Is(err, vfio.ErrTaken) || !strings.Contains(err.Error(), "ada has "+gpu.String()) {
		t.Errorf("given twice: %v", err)
	}
	m.hold(facts.Holder{PID: 4242, Name: "qemu-system-x86", Node: "vfio/7"})
	if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrOpen) || !strings.Contains(err.Error(), "process 4242 (qemu-system-x86) has /dev/vfio/7") {
		t.Errorf("released under a virtual machine: %v", err)
	}
	if entries := b.Entries(); len(entries) != 1 || entries[0].Phase != vfio.Bound {
		t.Errorf("the book has %+v", entries)
	}
	m.hold()
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) != 0 || len(b.Entries()) != 0 {
		t.Errorf("released: %v, %v; the book has %v", left, err, b.Entries())
	}
}

// A device that is stuck and wanted no more is put back once the write has ended.
func TestStuckIsUndone(t *testing.T) {
	m := newMachine()
	before := m.Snapshot()
	late, told := listener()
	b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m, Limits: hasty, Late: told})
	release := m.Hold(gpu)
	defer release()
	var stuck *vfio.StuckError
	if err := b.Bind(t.Context(), "ada", planned(t, gpu)); !errors.As(err, &stuck) {
		t.Fatalf("bound: %v", err)
	}
	if _, err := b.Release(t.Context(), "ada"); !errors.As(err, &stuck) {
		t.Fatalf("released: %v", err)
	}
	if err := b.Bind(t.Context(), "ada", planned(t, gpu)); !errors.Is(err, vfio.ErrReturning) || !errors.As(err, &stuck) {
		t.Errorf("bound again: %v", err)
	}
	release()
	if got := <-late; got.err != nil || got.there {
		t.Errorf("it came to %+v", got)
	}
	if after := m.Snapshot(); after != before || len(b.Entries()) != 0 {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}

// The process of an earlier agent that still makes a write is found by the book, and all is put back once it has ended.
func TestWriterIsFoundAgain(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", vfio.Command, "/") //nolint:noctx // it ends with its input
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	m, path := newMachine(), filepath.Join(t.TempDir(), vfio.FileName)
	before := m.Snapshot()
	m.writer, err = process.Find(cmd.Process.Pid)
	must(t, err)
	release := m.Hold(gpu)
	defer release()
	first := open(t, vfio.Config{Path: path, Machine: m, Limits: hasty})
	var stuck *vfio.StuckError
	if err := first.Bind(t.Context(), "ada", planned(t, gpu)); !errors.As(err, &stuck) {
		t.Fatalf("bound: %v", err)
	}
	first.Close()
	late, told := listener()
	next := open(t, vfio.Config{Path: path, Machine: m, Limits: hasty, Late: told})
	if _, err := next.Recover(t.Context()); !errors.As(err, &stuck) || !strings.Contains(err.Error(), "take "+gpu.String()+" from driver nvidia") {
		t.Fatalf("recovered: %v", err)
	}
	release()
	must(t, in.Close())
	must(t, cmd.Wait())
	if got := <-late; got.err != nil || got.there {
		t.Errorf("it came to %+v", got)
	}
	if after := m.Snapshot(); after != before || len(next.Entries()) != 0 {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}

// A book with more steps begun than its plan has is damaged.
func TestDamagedBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), vfio.FileName)
	file := checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1)
	must(t, file.Save([]vfio.Entry{{Owner: "ada", Plan: planned(t, gpu), Begun: 100}}))
	if _, err := vfio.Open(vfio.Config{Path: path, Machine: newMachine()}); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("%v, want %v", err, checkpoint.ErrDamaged)
	}
}

// A file that the kernel does not answer about is given up, and nobody else sleeps for it.
func TestFileThatIsNotAnswered(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "sys", binding.DeviceFolder(gpu))
	must(t, os.MkdirAll(folder, 0o700))
	pipe := filepath.Join(folder, "driver_override")
	must(t, exec.Command("mkfifo", pipe).Run()) //nolint:noctx,gosec // it ends at once
	must(t, os.WriteFile(filepath.Join(folder, "sriov_numvfs"), []byte("2\n"), 0o600))
	files := vfio.Files(root)
	name := "sys/" + binding.DeviceFolder(gpu)
	read := func(file string) error {
		f, err := files.Open(".")
		must(t, err)
		must(t, f.Close())
		_, err = files.(interface {
			ReadFile(name string) ([]byte, error)
		}).ReadFile(name + "/" + file)
		return err
	}
	for _, file := range []string{"driver_override", "sriov_numvfs"} {
		if err := read(file); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want %v", file, err, os.ErrDeadlineExceeded)
		}
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // whoever reads goes on
	must(t, err)
	must(t, writer.Close())
	for read("sriov_numvfs") != nil { // until that reader is gone
	}
}
