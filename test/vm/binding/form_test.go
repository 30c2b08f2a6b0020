package binding

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// roundsOf is how often a group is bound and put back: 100 times where a figure is wanted.
func roundsOf() int {
	if os.Getenv("DIVVY_LONG") == "vm" {
		return 100
	}
	return 5
}

func TestBindAndBack(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	before := snapshot(t)
	b := open(t, fileName(t), nil)
	rounds := roundsOf()
	took := make([]float64, rounds)
	for i := range rounds {
		begun := time.Now()
		must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
		for _, f := range []guest.Function{machine.Accelerator, machine.Companion} {
			if f.Driver() != binding.Driver {
				t.Fatalf("%s is on %q", f, f.Driver())
			}
		}
		left, err := b.Release(t.Context(), "ada")
		if err != nil || len(left) > 0 {
			t.Fatalf("released: %v, %v", left, err)
		}
		took[i] = time.Since(begun).Seconds()
	}
	if after := snapshot(t); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
	slices.Sort(took)
	if rounds < 100 {
		return // no figure
	}
	figure.Tell(t, figure.Figure{
		ID: "vm.bind_s", Values: []float64{took[rounds*99/100-1]},
		Note: fmt.Sprintf("p99 of %d rounds of planning, binding a group of two functions and putting it back; the median is %.2f s", rounds, took[rounds/2]),
	})
}

// A group is refused by name: with a disk that is mounted, and with other cards that were not named.
func TestGroupIsRefused(t *testing.T) {
	guest.Require(t)
	before := snapshot(t)
	if _, err := plan(machine.SwitchedCard); !errors.Is(err, binding.ErrShared) || !strings.Contains(err.Error(), machine.SwitchedNVMe) {
		t.Errorf("beside a disk: %v", err)
	}
	disks, err := filepath.Glob("/dev/nvme*n1")
	if err != nil || len(disks) != 1 {
		t.Fatalf("the guest has the disks %v, want one", disks)
	}
	at := t.TempDir()
	must(t, unix.Mount(disks[0], at, "romfs", unix.MS_RDONLY, ""))
	defer func() { must(t, unix.Unmount(at, 0)) }()
	for _, device := range []guest.Function{machine.SwitchedCard, machine.SwitchedNVMe} {
		_, err := plan(device)
		if want := filepath.Base(disks[0]) + " is mounted at " + at; !errors.Is(err, binding.ErrUsed) || !strings.Contains(err.Error(), machine.SwitchedNVMe) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s in a group with a mounted disk: %v", device, err)
		}
	}
	if after := snapshot(t); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}

// A virtual function is given alone; a VM has it open, so it is not taken away, and afterwards it comes back.
func TestVirtualFunction(t *testing.T) {
	guest.Require(t)
	virtual := guest.Function(machine.RootedCard).Enable(t, 1)[0]
	before := snapshot(t)
	b := open(t, fileName(t), nil)
	if _, err := plan(machine.RootedCard); !errors.Is(err, binding.ErrDivided) {
		t.Errorf("a card with virtual functions: %v", err)
	}
	p := planned(t, virtual)
	if p.Form != binding.FormFunction || len(p.Members) != 1 {
		t.Errorf("it is planned as %+v", p)
	}
	must(t, b.Bind(t.Context(), "ada", p))
	must(t, guest.OpenGroup(virtual.Group()))
	vm, err := guest.StartVM(t, 256<<20, "vfio-pci,host="+string(virtual))
	must(t, err)
	if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrOpen) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", vm.Pid())) {
		t.Errorf("released under a VM: %v", err)
	}
	if virtual.Driver() != binding.Driver {
		t.Errorf("it was taken away from a VM")
	}
	vm.Stop()
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) > 0 {
		t.Errorf("released: %v, %v", left, err)
	}
	if after := snapshot(t); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}

// sightless is a machine whose processes are not seen, as from a container.
type sightless struct{ vfio.Host }

func (sightless) Holders([]pci.Address) (facts.Held, error) { return facts.Held{}, nil }
func (sightless) Openers(string) (facts.Held, error)        { return facts.Held{}, nil }
func (sightless) Node(string) string                        { return "" }

// A VM whose process is not seen keeps its function: the kernel tells that its group is open.
func TestVMThatIsNotSeen(t *testing.T) {
	guest.Require(t)
	virtual := guest.Function(machine.RootedCard).Enable(t, 1)[0]
	before := snapshot(t)
	b, err := vfio.Open(vfio.Config{
		Path: fileName(t), Limits: limits, Machine: sightless{vfio.Host{Root: "/", Program: "/proc/self/exe", Args: []string{vfio.Command}}},
	})
	must(t, err)
	t.Cleanup(b.Close)
	must(t, b.Bind(t.Context(), "ada", planned(t, virtual)))
	must(t, guest.OpenGroup(virtual.Group()))
	vm, err := guest.StartVM(t, 256<<20, "vfio-pci,host="+string(virtual))
	must(t, err)
	if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrOpen) || !strings.Contains(err.Error(), "not seen from here") {
		t.Errorf("released under a VM: %v", err)
	}
	if entries := b.Entries(); virtual.Driver() != binding.Driver || len(entries) != 1 || entries[0].Phase != vfio.Bound {
		t.Errorf("it is on %q, and the book has %+v", virtual.Driver(), entries)
	}
	vm.Stop()
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) > 0 {
		t.Errorf("released: %v, %v", left, err)
	}
	if after := snapshot(t); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
}
