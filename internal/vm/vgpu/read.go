package vgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs"
)

var (
	// ErrVanished says that a GPU or function is not there.
	ErrVanished = errors.New("the device is not there")
	// ErrLate says that the kernel does not answer about a file, as while a driver changes.
	ErrLate = errors.New("the kernel does not answer now")
)

// Read reads what a GPU offers from the root of a file system. Functions that vanish meanwhile are not there. Also the address of
// a virtual function may be given: then it is the only function.
func Read(root fs.FS, gpu pci.Address) (*GPU, error) {
	sys, err := fs.Sub(root, "sys")
	if err != nil {
		return nil, fmt.Errorf("read the vGPUs of %s: %w", gpu, err)
	}
	r := &reader{sys: sys, gpu: &GPU{Address: gpu}}
	if r.gpu.Folder, err = pci.Folder(sys, path.Join("bus/pci/devices", gpu.String())); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: no PCI device has address %s (`lspci -D` lists them)", ErrVanished, gpu)
		}
		return nil, fmt.Errorf("read the vGPUs of %s: %w", gpu, err)
	}
	r.gpu.Driver = r.target(r.gpu.Folder + "/driver")
	r.gpu.FunctionsTotal, r.gpu.FunctionsNow = count(r.line(r.gpu.Folder+"/sriov_totalvfs")), count(r.line(r.gpu.Folder+"/sriov_numvfs"))
	r.gpu.Probed = r.line(r.gpu.Folder + "/sriov_drivers_autoprobe")
	r.offering(r.function(gpu, r.gpu.Folder))
	for _, address := range r.virtual() {
		folder, err := pci.Folder(sys, path.Join("bus/pci/devices", address.String()))
		switch {
		case err == nil:
			f := r.function(address, folder)
			r.gpu.Virtual = append(r.gpu.Virtual, f)
			r.offering(f)
		case !errors.Is(err, fs.ErrNotExist):
			r.odd(path.Join("bus/pci/devices", address.String()))
		}
	}
	if r.late != "" {
		return nil, fmt.Errorf("read the vGPUs of %s: %w: %s", gpu, ErrLate, r.late)
	}
	return r.gpu, nil
}

// reader reads one GPU. Its paths are below /sys.
type reader struct {
	sys fs.FS
	gpu *GPU
	// late is a file that the file system has given up, because the kernel does not answer about it.
	late string
}

// largest is how much of a file counts, in bytes: the kernel's have a page at most.
const largest = 64 << 10

func (r *reader) text(name string) string {
	content, err := fs.ReadFile(r.sys, name)
	if sysfs.IsLate(err) && r.late == "" {
		r.late = name
	}
	if err != nil {
		return ""
	}
	return string(content[:min(len(content), largest)])
}

func (r *reader) line(name string) string { return strings.TrimSpace(r.text(name)) }

// target is the last part of what a link leads to.
func (r *reader) target(link string) string { return sysfs.Target(r.sys, link) }

// list names what is in a folder, sorted. There is nil where there is no folder.
func (r *reader) list(folder string) []string { return sysfs.Names(r.sys, folder) }

func (r *reader) odd(name string) {
	if len(r.gpu.Unread) < most {
		r.gpu.Unread = append(r.gpu.Unread, name)
	}
}

// virtual are the addresses of the virtual functions, by number.
func (r *reader) virtual() []pci.Address {
	type link struct {
		number  int
		address pci.Address
	}
	var links []link
	for _, name := range r.list(r.gpu.Folder) {
		text, is := strings.CutPrefix(name, "virtfn")
		if !is || len(links) == most {
			continue
		}
		number, err := strconv.ParseUint(text, 10, 16)
		address, wrong := pci.ParseAddress(r.target(path.Join(r.gpu.Folder, name)))
		if err != nil || wrong != nil {
			r.odd(path.Join(r.gpu.Folder, name))
			continue
		}
		links = append(links, link{int(number), address})
	}
	slices.SortFunc(links, func(a, b link) int { return a.number - b.number })
	addresses := make([]pci.Address, len(links))
	for i, l := range links {
		addresses[i] = l.address
	}
	return addresses
}

// offering keeps a function that offers vGPUs.
func (r *reader) offering(f Function) {
	if f.Interface != "" {
		r.gpu.Functions = append(r.gpu.Functions, f)
	}
}

// function reads a function. One that offers no vGPUs has no interface.
func (r *reader) function(address pci.Address, folder string) Function {
	f := Function{Address: address, Folder: folder, Driver: r.target(folder + "/driver"), Group: -1}
	if group, err := strconv.ParseUint(r.target(folder+"/iommu_group"), 10, 31); err == nil {
		f.Group = int(group)
	}
	if names := r.list(folder + "/mdev_supported_types"); names != nil {
		f.Interface = Mediated
		r.mediated(&f, folder+"/mdev_supported_types", names)
		return f
	}
	current := r.line(folder + "/nvidia/current_vgpu_type")
	switch {
	case isNumber(current):
		f.Current = current
	case current == "":
		return f
	case current != "0":
		r.odd(folder + "/nvidia/current_vgpu_type")
		return f
	}
	f.Interface = Vendor
	f.Types = Creatable(r.text(folder + "/nvidia/creatable_vgpu_types"))
	if instance := r.line(folder + "/nvidia/gpu_instance_id"); instance != "" && len(instance) <= 20 {
		f.Instance, f.HasInstance = instance, true
	}
	return f
}

// mediated reads the folder of types of mediated devices.
func (r *reader) mediated(f *Function, folder string, names []string) {
	for _, id := range names {
		if !typeName.MatchString(id) || len(f.Types) == most {
			r.odd(path.Join(folder, id))
			continue
		}
		at := path.Join(folder, id)
		t := Type{ID: id, Name: shown(r.text(at + "/name")), Free: count(r.text(at + "/available_instances"))}
		t.Most, t.MiB = described(r.text(at + "/description"))
		f.Types = append(f.Types, t)
		for _, uuid := range r.list(at + "/devices") {
			if !ValidUUID(uuid) {
				r.odd(path.Join(at, "devices", uuid))
				continue
			}
			if sysfs.There(r.sys, path.Join(at, "devices", uuid)) {
				f.Made = append(f.Made, Made{UUID: uuid, Type: id})
			}
		}
	}
	slices.SortFunc(f.Types, func(a, b Type) int { return compareID(a.ID, b.ID) })
}
