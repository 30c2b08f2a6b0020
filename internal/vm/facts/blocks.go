package facts

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs"
)

// prober is the root of a machine that tells whether somebody has a disk for himself alone, which is named from /dev. Of a recording
// that is not known.
type prober interface {
	Alone(node string) (taken bool, err error)
}

// nvmeSubsystems is where disks of NVMe lie that several controllers may reach.
const nvmeSubsystems = "sys/devices/virtual/nvme-subsystem/"

// functionsOf are the PCI functions that a block device or a part of it lies below, by its link. A disk of NVMe that several controllers
// reach lies below none; its subsystem names them.
func (r *reader) functionsOf(link string) (found []pci.Address) {
	if address, is := r.owner(link); is {
		return []pci.Address{address}
	}
	to, err := fs.ReadLink(r.root, link)
	below, is := strings.CutPrefix(path.Join(path.Dir(link), to), nvmeSubsystems)
	if err != nil || !is {
		return nil
	}
	name, _, _ := strings.Cut(below, "/")
	subsystem := nvmeSubsystems + name
	for _, name := range r.list(subsystem) {
		if address, is := r.owner(path.Join(subsystem, name)); is {
			found = append(found, address)
		}
	}
	return found
}

// lowerBlocks are the block devices that one lies on.
func (r *reader) lowerBlocks(block string) (lower []string) {
	link := "sys/class/block/" + block
	for _, name := range r.list(link + "/slaves") {
		if r.there(link + "/slaves/" + name) {
			lower = append(lower, name)
		}
	}
	if backing := r.backing(block); backing != "" {
		lower = append(lower, backing)
	}
	return lower
}

// backing is the block device on which a loop device lies, "" for none. Where it lies on a file, that file's disk is in use by its
// own mount. The kernel names a node of a container's from the mount that it lies in.
func (r *reader) backing(loop string) string {
	if !strings.HasPrefix(loop, "loop") {
		return ""
	}
	node := strings.TrimSuffix(r.line("sys/class/block/"+loop+"/loop/backing_file"), " (deleted)")
	name := path.Base(node)
	switch {
	case !strings.HasPrefix(node, "/dev/") && path.Dir(node) != "/":
		return ""
	case strings.HasPrefix(node, "/dev/mapper/"):
		for _, block := range r.list("sys/class/block") {
			if strings.HasPrefix(block, "dm-") && r.line("sys/class/block/"+block+"/dm/name") == name {
				return block
			}
		}
	}
	if !r.there("sys/class/block/" + name) {
		return ""
	}
	return name
}

// raw notes disks on which volumes, RAIDs or loop devices stand that are mounted nowhere, as those that virtual machines and Ceph use.
// A device of which a use is known already needs no second one.
func (r *reader) raw() {
	for _, name := range r.list("sys/class/block") {
		if holders := r.list("sys/class/block/" + name + "/holders"); len(holders) > 0 {
			r.unlessKnown(name, "below "+holders[0])
		}
	}
	for _, loop := range r.list("sys/class/block") {
		if lower := r.backing(loop); lower != "" && !r.usedBelow(loop) {
			r.diskUse(lower, lower, "below "+loop, map[string]bool{})
		}
	}
}

// unlessKnown notes the use of a disk at its PCI functions of which no use is known.
func (r *reader) unlessKnown(name, at string) {
	for _, address := range r.functionsOf("sys/class/block/" + name) {
		if d, _ := r.host.Find(address); len(d.Uses) == 0 {
			r.use(address, Use{Kind: "disk", Name: name, At: at})
		}
	}
}

// usedBelow tells whether the use of a block device is noted already.
func (r *reader) usedBelow(block string) bool {
	return slices.ContainsFunc(r.host.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Uses, func(u Use) bool { return u.Kind == "disk" && u.Name == block })
	})
}

// alone notes disks that somebody has for himself alone without that a mount, a volume or a process tells it: mounted in a container,
// or given to others by the kernel. Only disks are asked of which nothing else is known.
func (r *reader) alone() {
	p, is := r.root.(prober)
	if !is {
		return
	}
	for _, name := range r.list("sys/class/block") {
		link := "sys/class/block/" + name
		functions := r.functionsOf(link)
		known := slices.ContainsFunc(functions, func(at pci.Address) bool {
			d, _ := r.host.Find(at)
			return len(d.Uses)+len(d.Holders) > 0
		})
		node := devName(r.text(link + "/uevent"))
		if len(functions) == 0 || known || node == "" || r.there(link+"/partition") {
			continue // whoever has a part of a disk keeps others from having all of it
		}
		switch taken, err := p.Alone(node); {
		case taken:
			r.unlessKnown(name, "mounted or held where the host does not see it, as in a container")
		case sysfs.IsLate(err):
			r.host.Unread = append(r.host.Unread, "dev/"+node)
		}
	}
}

// devName is the name below /dev of a device with such a uevent, "" for none.
func devName(uevent string) string {
	for line := range strings.Lines(uevent) {
		if node, is := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); is && fs.ValidPath(node) {
			return node
		}
	}
	return ""
}
