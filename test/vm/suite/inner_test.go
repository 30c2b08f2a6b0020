package suite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// enough lets a VM lock its memory and what its devices need.
const enough = 256 << 20

// sees starts a VM with one device and returns what it shows of it, as vendor:device in hexadecimal.
func sees(t *testing.T, device string) (*guest.VM, guest.Device) {
	t.Helper()
	vm, err := guest.StartVM(t, enough, device+",id=given,bus=pcie.0,addr=9")
	if err != nil {
		t.Fatal(err)
	}
	devices, err := vm.Devices()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(devices, func(d guest.Device) bool { return d.Name == "given" })
	if at < 0 {
		t.Fatalf("the VM has %v, not the device that it was given", devices)
	}
	return vm, devices[at]
}

func open(t *testing.T, group string) {
	t.Helper()
	if err := guest.OpenGroup(group); err != nil {
		t.Fatal(err)
	}
}

// A VM of the plain user sees each of the four forms with the right ids.
func TestVMSeesWhatItIsGiven(t *testing.T) {
	guest.Require(t)
	forms := []struct {
		name  string
		given func(t *testing.T)
	}{
		{"physical function", physicalFunction}, {"virtual function", virtualFunction},
		{"mediated device", mediatedDevice}, {"typed virtual function", typedVirtualFunction},
	}
	var seen []string
	for _, form := range forms {
		if t.Run(form.name, form.given) {
			seen = append(seen, form.name)
		}
	}
	figure.Tell(t, figure.Figure{
		ID: "vm.guest", Values: []float64{float64(len(seen))},
		Note: fmt.Sprintf("of %d: %s; a QEMU inside the guest, run by a plain user, shows its ids", len(forms), strings.Join(seen, ", ")),
	})
}

func physicalFunction(t *testing.T) {
	t.Helper()
	nvme := guest.Function(machine.RootedNVMe)
	nvme.Bind(t, "vfio-pci")
	open(t, nvme.Group())
	if _, d := sees(t, "vfio-pci,host="+string(nvme)); d.ID.Vendor != 0x1b36 || d.ID.Device != 0x10 {
		t.Errorf("the VM sees %x:%x, want 1b36:10", d.ID.Vendor, d.ID.Device)
	}
}

func virtualFunction(t *testing.T) {
	t.Helper()
	virtual := guest.Function(machine.RootedCard).Enable(t, 1)[0]
	virtual.Bind(t, "vfio-pci")
	open(t, virtual.Group())
	if _, d := sees(t, "vfio-pci,host="+string(virtual)); d.ID.Vendor != 0x8086 || d.ID.Device != 0x10ca {
		t.Errorf("the VM sees %x:%x, want 8086:10ca", d.ID.Vendor, d.ID.Device)
	}
}

func mediatedDevice(t *testing.T) {
	t.Helper()
	guest.Parameter(t, "mediated", true)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	if err := gpu.Write("mdev_supported_types/nvidia-471/create", first); err != nil {
		t.Fatal(err)
	}
	open(t, guest.Function("../../mdev/devices/"+first).Group())
	if _, d := sees(t, "vfio-pci,sysfsdev=/sys/bus/mdev/devices/"+first); d.ID.Vendor != 0x10de || d.ID.Device != 0x20b0 {
		t.Errorf("the VM sees %x:%x, want 10de:20b0", d.ID.Vendor, d.ID.Device)
	}
}

// A virtual function of the vendor's stays with the vendor's driver, and opens only once it has a type.
func typedVirtualFunction(t *testing.T) {
	t.Helper()
	gpu := guest.Function(machine.RootedNVMe)
	gpu.Bind(t, "nvidia")
	virtual := gpu.Enable(t, 1)[0]
	virtual.Bind(t, "nvidia")
	open(t, virtual.Group())
	device := "vfio-pci,host=" + string(virtual)
	if _, err := guest.StartVM(t, enough, device); err == nil || !strings.Contains(err.Error(), "No such device") {
		t.Errorf("without a type: %v, want that there is no such device", err)
	}
	if err := virtual.Write("nvidia/current_vgpu_type", "472"); err != nil {
		t.Fatal(err)
	}
	vm, d := sees(t, device)
	if d.ID.Vendor != 0x1b36 || d.ID.Device != 0x10 {
		t.Errorf("the VM sees %x:%x, want 1b36:10", d.ID.Vendor, d.ID.Device)
	}
	if err := virtual.Write("nvidia/current_vgpu_type", "0"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("clearing the type under a VM: %v, want EBUSY", err)
	}
	vm.Stop()
	if err := virtual.Write("nvidia/current_vgpu_type", "0"); err != nil {
		t.Errorf("clearing the type after the VM: %v", err)
	}
}

func TestVMIsRefused(t *testing.T) {
	guest.Require(t)
	t.Run("group in use", func(t *testing.T) {
		card := guest.Function(machine.SwitchedCard)
		virtual := card.Enable(t, 1)[0]
		virtual.Bind(t, "vfio-pci")
		open(t, virtual.Group())
		if _, err := guest.StartVM(t, enough, "vfio-pci,host="+string(virtual)); err == nil || !strings.Contains(err.Error(), "not viable") {
			t.Errorf("%v, want that the group is not viable", err)
		}
	})
	t.Run("locked memory", func(t *testing.T) {
		nvme := guest.Function(machine.RootedNVMe)
		nvme.Bind(t, "vfio-pci")
		open(t, nvme.Group())
		if _, err := guest.StartVM(t, 64<<10, "vfio-pci,host="+string(nvme)); err == nil || !strings.Contains(err.Error(), "Cannot allocate memory") {
			t.Errorf("%v, want that memory cannot be allocated", err)
		}
	})
}
