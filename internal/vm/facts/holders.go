package facts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

const (
	// trace is the number of the capability that shows a process all others.
	trace = 19
	// firstNamespace is the number that the kernel gives the first namespace of processes.
	firstNamespace = "pid:[4026531836]"
)

// Held is who has nodes of devices open, and why there may be others.
type Held struct {
	Holders []Holder
	// Unseen are reasons, none where all processes are seen.
	Unseen []string
	// Cut were not looked through in time, so they may have nodes open too.
	Cut []Holder
}

// Opener is a process that has a device node open, which is named from /dev. Without a node, it is one that was not looked through in
// time.
type Opener struct {
	PID  int
	Node string
}

// watcher is the root of a machine that tells itself who has device nodes open, by whatever name, and why there may be others.
// Where it cannot, that is [errors.ErrUnsupported].
type watcher interface {
	Openers(nodes []string) (found []Opener, unseen []string, err error)
}

// Holders are the processes that have nodes of some functions open, each once. Of the machine nothing else is read, so it is
// told soon.
func Holders(root fs.FS, functions []pci.Address) (Held, error) {
	sys, err := fs.Sub(root, "sys")
	if err != nil {
		return Held{}, fmt.Errorf("find who holds devices: %w", err)
	}
	r := &reader{root: root, sys: sys, host: &Host{}}
	for _, at := range functions {
		d := Device{Group: NoGroup}
		if d.Device, err = pci.Read(sys, at.String()); err != nil {
			continue // it is gone, so nobody holds it
		}
		if group, err := strconv.ParseUint(r.target("sys/"+deviceFolder+"/"+at.String()+"/iommu_group"), 10, 31); err == nil {
			d.Group = int(group)
		}
		r.driverTells(&d)
		r.host.Devices = append(r.host.Devices, d)
	}
	r.holders()
	held := Held{Unseen: r.host.Blind, Cut: r.cut}
	for _, d := range r.host.Devices {
		for _, h := range d.Holders {
			if !slices.ContainsFunc(held.Holders, func(other Holder) bool { return other.PID == h.PID }) {
				held.Holders = append(held.Holders, h)
			}
		}
	}
	return held, nil
}

// Hidden says which processes do not stand below /proc at all.
func Hidden(root fs.FS) []string {
	return (&reader{root: root, host: &Host{}}).hidden()
}

// holders finds the device nodes of each device, and which processes have them open.
func (r *reader) holders() {
	r.nodes()
	at := map[string][]int{} // devices by node
	for i, d := range r.host.Devices {
		for _, node := range d.Nodes {
			at[node] = append(at[node], i)
		}
	}
	for _, o := range r.openers(slices.Sorted(maps.Keys(at))) {
		if o.Node == "" {
			r.cut = append(r.cut, r.holder(o.PID, ""))
		}
		for _, i := range at[o.Node] {
			r.hold(&r.host.Devices[i], o.PID, o.Node)
		}
	}
	r.host.Blind = append(r.host.Blind, r.hidden()...)
	for i := range r.host.Devices {
		d := &r.host.Devices[i]
		slices.SortFunc(d.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Node, b.Node)) })
	}
}

// openers are the processes that have device nodes open. A root that does not tell them, such as a recording, has links that name
// the nodes.
func (r *reader) openers(nodes []string) []Opener {
	if w, is := r.root.(watcher); is {
		if found, unseen, err := w.Openers(nodes); !errors.Is(err, errors.ErrUnsupported) {
			if err != nil {
				unseen = append(unseen, err.Error())
			}
			r.host.Blind = append(r.host.Blind, unseen...)
			return found
		}
	}
	var found []Opener
	closed := 0
	for _, name := range r.list("proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		folder := "proc/" + name + "/fd"
		entries, err := fs.ReadDir(r.root, folder)
		if errors.Is(err, fs.ErrPermission) {
			closed++
		}
		for _, entry := range entries {
			target, err := fs.ReadLink(r.root, folder+"/"+entry.Name())
			if node, is := strings.CutPrefix(target, "/dev/"); err == nil && is && slices.Contains(nodes, node) {
				found = append(found, Opener{pid, node})
			}
		}
	}
	if closed > 0 {
		r.host.Blind = append(r.host.Blind, "the open files of "+Counted(closed, "process", "processes")+" may not be read")
	}
	return found
}

// hidden says which processes do not stand below /proc at all.
func (r *reader) hidden() (why []string) {
	if space, err := fs.ReadLink(r.root, "proc/self/ns/pid"); err == nil && space != firstNamespace {
		why = append(why, "processes of other containers and of the machine are not seen from a namespace of processes of its own")
	}
	hides := false
	for line := range strings.Lines(r.text("proc/self/mountinfo")) {
		at, does := procMount(line)
		hides = hides || does && at == "/proc"
	}
	if sees, known := Traces(r.text("proc/self/status")); hides && (!known || !sees) {
		why = append(why, "/proc is mounted with hidepid, which hides processes of other users")
	}
	return why
}

// Traces tells whether a process with such a status, as /proc has it, may see what all others have open.
func Traces(status string) (can, known bool) {
	caps, err := strconv.ParseUint(field(status, "CapEff"), 16, 64)
	return err == nil && caps>>trace&1 == 1, err == nil
}

// procMount reads a line of mountinfo of a mount of processes: where it is, and whether it hides those of other users.
func procMount(line string) (at string, hides bool) {
	before, after, _ := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if len(fields) < 5 || len(rest) < 3 || rest[0] != "proc" {
		return "", false
	}
	for option := range strings.SplitSeq(rest[2], ",") {
		if how, is := strings.CutPrefix(option, "hidepid="); is {
			hides = slices.Contains([]string{"2", "invisible", "4", "ptraceable"}, how)
		}
	}
	return fields[4], hides
}

func (r *reader) hold(d *Device, pid int, node string) {
	if slices.ContainsFunc(d.Holders, func(h Holder) bool { return h.PID == pid && h.Node == node }) {
		return
	}
	d.Holders = append(d.Holders, r.holder(pid, node))
}

func (r *reader) holder(pid int, node string) Holder {
	folder := "proc/" + strconv.Itoa(pid)
	return Holder{PID: pid, Name: r.line(folder + "/comm"), Node: node, Container: containerOf(r.text(folder + "/cgroup"))}
}

// containerOf finds the id of a container in a process's cgroups: 64 hexadecimal digits, of which runtimes show twelve.
func containerOf(groups string) string {
	const digits, shown = 64, 12
	for part := range strings.FieldsFuncSeq(groups, func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) }) {
		if len(part) == digits {
			return part[:shown]
		}
	}
	return ""
}

// nodes finds the device nodes of devices: those that sysfs lists, and that of the IOMMU group. NVIDIA's own are told below /proc.
func (r *reader) nodes() {
	of := map[pci.Address][]string{}
	for _, number := range r.list("sys/dev/char") {
		link := "sys/dev/char/" + number
		address, found := r.owner(link)
		if !found {
			continue
		}
		if node := devName(r.text(link + "/uevent")); node != "" {
			of[address] = append(of[address], node)
		}
	}
	for _, number := range r.list("sys/dev/block") { // whoever has a disk open raw, as Ceph and virtual machines do
		link := "sys/dev/block/" + number
		for _, address := range r.functionsOf(link) {
			if node := devName(r.text(link + "/uevent")); node != "" {
				of[address] = append(of[address], node)
			}
		}
	}
	for i := range r.host.Devices {
		d := &r.host.Devices[i]
		d.Nodes = append(d.Nodes, of[d.Address]...)
		if d.Group != NoGroup {
			d.Nodes = append(d.Nodes, "vfio/"+strconv.Itoa(d.Group))
		}
		slices.Sort(d.Nodes)
		d.Nodes = slices.Compact(d.Nodes)
	}
}
