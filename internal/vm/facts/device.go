package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

const deviceFolder = "bus/pci/devices"

// devices reads every PCI function. One that vanishes meanwhile, or whose folder is not as the kernel makes it, is left out.
func (r *reader) devices() error {
	entries, err := fs.ReadDir(r.sys, deviceFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list PCI devices: %w", err)
	}
	for _, entry := range entries {
		found, err := pci.Read(r.sys, entry.Name())
		if err == nil {
			var folder string
			if folder, err = pci.Folder(r.sys, path.Join(deviceFolder, entry.Name())); err == nil {
				r.host.Devices = append(r.host.Devices, r.device(found, "sys/"+folder))
				continue
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			r.host.Unread = append(r.host.Unread, path.Join("sys", deviceFolder, entry.Name()))
		}
	}
	slices.SortFunc(r.host.Devices, func(a, b Device) int { return a.Address.Compare(b.Address) })
	for i := range r.host.Devices {
		r.driverTells(&r.host.Devices[i])
	}
	return nil
}

// device reads what lies in a function's folder, whose path is from the root.
func (r *reader) device(found pci.Device, at string) Device {
	d := Device{Device: found, Group: NoGroup, Driver: r.target(at + "/driver"), VFsTotal: int(r.number(at + "/sriov_totalvfs")), VFs: int(r.number(at + "/sriov_numvfs"))}
	if override := r.line(at + "/driver_override"); override != "(null)" {
		d.Override = override
	}
	if group, err := strconv.ParseUint(r.target(at+"/iommu_group"), 10, 31); err == nil {
		d.Group = int(group)
	}
	d.BARs = bars(r.text(at + "/resource"))
	d.BootDisplay = r.line(at+"/boot_vga") == "1"
	if found.Virtual {
		d.Parent, _ = pci.ParseAddress(r.target(at + "/physfn")) // the zero address is no parent
	}
	if d.IsPort() {
		d.Port = portOf(r.text(at + "/config"))
	} else {
		d.Resets, d.ResetKnown = r.resets(at)
	}
	r.vgpu(&d, at)
	return d
}

// resets reads the ways to reset a device. Kernels before 5.15 tell only whether there is one.
func (r *reader) resets(at string) (ways []string, known bool) {
	text, err := fs.ReadFile(r.root, at+"/reset_method")
	if err == nil {
		return strings.Fields(string(text)), true
	}
	if r.there(at + "/reset") {
		return []string{"unnamed"}, true
	}
	return nil, r.there(at + "/remove")
}

const (
	flagPorts  = 0x100
	flagMemory = 0x200
	flagWide   = 0x100000
	flagUnset  = 0x20000000
)

// bars reads the lines "START END FLAGS" of the first six regions.
func bars(resource string) []BAR {
	var found []BAR
	number := 0
	for line := range strings.Lines(resource) {
		fields := strings.Fields(line)
		if number >= 6 || len(fields) != 3 {
			break
		}
		start, end, flags := hex(fields[0]), hex(fields[1]), hex(fields[2])
		if flags&(flagPorts|flagMemory) != 0 && end > start && end-start < 1<<62 {
			found = append(found, BAR{
				Number: number, Size: end - start + 1, Memory: flags&flagMemory != 0, Wide: flags&flagWide != 0,
				Placed: flags&flagUnset == 0 && start != 0,
			})
		}
		number++
	}
	return found
}

// hex reads a hexadecimal number with or without 0x, 0 where it is none.
func hex(text string) uint64 {
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0
	}
	return value
}

// driverTells reads what NVIDIA's driver tells of a GPU below /proc: model, UUID, device node and MIG instances.
func (r *reader) driverTells(d *Device) {
	if d.Vendor != NVIDIA || !d.IsGPU() {
		return
	}
	text := r.text("proc/driver/nvidia/gpus/" + d.Address.String() + "/information")
	d.Model, d.UUID = field(text, "Model"), field(text, "GPU UUID")
	minor := field(text, "Device Minor")
	if _, err := strconv.ParseUint(minor, 10, 16); err != nil {
		return
	}
	d.Nodes = append(d.Nodes, "nvidia"+minor)
	instances := "proc/driver/nvidia/capabilities/gpu" + minor + "/mig"
	for _, name := range r.list(instances) {
		if strings.HasPrefix(name, "gi") && r.there(instances+"/"+name) {
			d.Instances++
		}
	}
}

// vgpu reads what NVIDIA's host driver offers on a function, by either of its interfaces.
func (r *reader) vgpu(d *Device, at string) {
	if types := r.list(at + "/mdev_supported_types"); types != nil {
		d.VGPU = &VGPU{Interface: "mdev"}
		for _, id := range types {
			t := at + "/mdev_supported_types/" + id
			made := slices.DeleteFunc(r.list(t+"/devices"), func(uuid string) bool { return !r.there(t + "/devices/" + uuid) })
			d.VGPU.Mdevs = append(d.VGPU.Mdevs, made...)
			d.VGPU.Types = append(d.VGPU.Types, VGPUType{
				ID: id, Name: r.line(t + "/name"), Available: int(r.number(t + "/available_instances")), Most: vgpu.MostOf(r.text(t + "/description")), Made: len(made),
			})
		}
		return
	}
	current := r.line(at + "/nvidia/current_vgpu_type")
	if current == "" {
		return
	}
	d.VGPU = &VGPU{Interface: "vendor-vfio"}
	if current != "0" {
		d.VGPU.Current = current
	}
	for _, t := range vgpu.Creatable(r.text(at + "/nvidia/creatable_vgpu_types")) {
		d.VGPU.Types = append(d.VGPU.Types, VGPUType{ID: t.ID, Name: t.Name, Available: -1})
	}
}
