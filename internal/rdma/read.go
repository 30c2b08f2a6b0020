package rdma

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Where the kernel tells of adapters, from the root.
const (
	adapterFolder = "sys/class/infiniband"
	verbsFolder   = "sys/class/infiniband_verbs"
	netFolder     = "sys/class/net"
)

// mostGIDs are the first entries of a port's table that are looked at. The kernel fills it from the beginning, and whether there
// is any is all that is asked.
const mostGIDs = 16

// mostPorts bounds the ports of one adapter that are read.
const mostPorts = 16

// Read takes a snapshot of the adapters of the machine whose root is given and of which host is told. What is missing, or
// vanishes, is not known.
func Read(root fs.FS, host *facts.Host) *Host {
	r := &reader{root: root, host: host}
	found := &Host{Mode: r.mode(), Manager: r.node("sys/class/misc/rdma_cm", "rdma_cm"), Limits: r.limits(), Locked: r.locked(), Peers: host.Modules["nvidia_peermem"].Loaded}
	r.gpuDriver(found)
	verbs := r.verbs()
	for _, name := range r.list(adapterFolder) {
		if a, ok := r.adapter(name); ok {
			a.Verbs = verbs[name]
			found.Adapters = append(found.Adapters, a)
		}
	}
	slices.SortFunc(found.Adapters, compare)
	return found
}

type reader struct {
	root fs.FS
	host *facts.Host
}

func (r *reader) line(name string) string {
	content, err := fs.ReadFile(r.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func (r *reader) list(folder string) []string { return sysfs.Names(r.root, folder) }

// there tells whether something has a name, so that a recording has it too.
func (r *reader) there(name string) bool { return sysfs.There(r.root, name) }

func (r *reader) mode() Mode {
	switch r.line("sys/module/ib_core/parameters/netns_mode") {
	case "Y":
		return ModeShared
	case "N":
		return ModeExclusive
	}
	return ModeUnknown
}

// node reads the number of a character device from its folder of sysfs.
func (r *reader) node(folder, name string) *Node {
	before, after, found := strings.Cut(r.line(folder+"/dev"), ":")
	major, badMajor := strconv.ParseUint(before, 10, 12)
	minor, badMinor := strconv.ParseUint(after, 10, 20)
	if !found || badMajor != nil || badMinor != nil {
		return nil
	}
	return &Node{name, uint32(major), uint32(minor)}
}

// verbs are the nodes by the names of their adapters. The kernel numbers them, whatever adapters are called.
func (r *reader) verbs() map[string]*Node {
	found := map[string]*Node{}
	for _, name := range r.list(verbsFolder) {
		digits, is := strings.CutPrefix(name, "uverbs")
		if _, err := strconv.ParseUint(digits, 10, 16); !is || err != nil {
			continue
		}
		r.there(verbsFolder + "/" + name)
		if node := r.node(verbsFolder+"/"+name, name); node != nil {
			found[r.line(verbsFolder+"/"+name+"/ibdev")] = node
		}
	}
	return found
}

// limits looks for the cgroup controller: in the second version's root, or with a hierarchy of the first one's.
func (r *reader) limits() facts.Answer {
	controllers := r.line("sys/fs/cgroup/cgroup.controllers")
	if slices.Contains(strings.Fields(controllers), "rdma") {
		return facts.Yes
	}
	table := r.line("proc/cgroups")
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "rdma" && f[1] != "0" && f[3] == "1" {
			return facts.Yes
		}
	}
	if controllers == "" && table == "" {
		return facts.Unknown
	}
	return facts.No
}

// locked reads the reader's limit, whatever its rights are: containers of the same runtime have the same.
func (r *reader) locked() int64 {
	for line := range strings.Lines(r.line("proc/self/limits")) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			continue
		}
		if fields[0] == "unlimited" {
			return facts.Unlimited
		}
		if value, err := strconv.ParseInt(fields[0], 10, 64); err == nil && value >= 0 {
			return value
		}
	}
	return -1
}

// gpuDriver reads which kernel modules NVIDIA's driver has. Its open ones say so in the line that has their version.
func (r *reader) gpuDriver(found *Host) {
	text, _, _ := strings.Cut(r.line("proc/driver/nvidia/version"), "\n")
	if !strings.HasPrefix(text, "NVRM version:") {
		return
	}
	found.OpenModule = strings.Contains(text, "Open Kernel Module")
	for word := range strings.FieldsSeq(text) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") && found.Driver == "" {
			found.Driver = word
		}
	}
}

// adapter reads one. Its folder is …/ADDRESS/infiniband/NAME, or below devices/virtual.
func (r *reader) adapter(name string) (Adapter, bool) {
	link := adapterFolder + "/" + name
	target, err := fs.ReadLink(r.root, link)
	folder := path.Join(adapterFolder, target)
	if err != nil || path.IsAbs(target) || !strings.HasPrefix(folder, "sys/devices/") || path.Base(folder) != name {
		return Adapter{}, false
	}
	a := Adapter{Name: name, Ports: r.ports(folder + "/ports")}
	a.NoGUID = r.line(folder+"/node_guid") == "0000:0000:0000:0000"
	at, onPCI := lastAddress(folder)
	if parent := r.line(folder + "/parent"); isElement(parent) {
		a.Soft, a.Parent = true, parent
		at, onPCI = r.card(parent, map[string]bool{})
	}
	if d, known := r.host.Find(at); onPCI && known {
		r.place(&a, d)
	}
	return a, true
}

// place says of an adapter what is known of its function.
func (r *reader) place(a *Adapter, d facts.Device) {
	a.PCI, a.OnPCI, a.Uses, a.Driver = d.Device, true, r.uses(d), d.Driver
	a.Physical, a.VFs, a.VFsTotal = d.Parent, d.VFs, d.VFsTotal
	if isElement(d.Driver) {
		if target, err := fs.ReadLink(r.root, "sys/bus/pci/drivers/"+d.Driver+"/module"); err == nil {
			a.Module = path.Base(target)
		}
	}
	link, err := fs.ReadLink(r.root, "sys/bus/pci/devices/"+d.Address.String())
	folder := path.Join("sys/bus/pci/devices", link) + "/net"
	if err != nil || !strings.HasPrefix(folder, "sys/devices/") {
		return
	}
	for _, netdev := range r.list(folder) {
		if r.there(folder + "/" + netdev) {
			a.Netdevs = append(a.Netdevs, netdev)
		}
	}
	slices.Sort(a.Netdevs)
}

// uses are what the host does with all functions of a function's card, each use once, those of the function itself first.
func (r *reader) uses(of facts.Device) []facts.Use {
	card := func(d *facts.Device) pci.Address {
		if d.Virtual {
			return d.Parent
		}
		return d.Address
	}
	all := slices.Clone(of.Uses)
	for i := range r.host.Devices {
		d := &r.host.Devices[i]
		if card(d) != card(&of) {
			continue
		}
		for _, use := range d.Uses {
			if !slices.Contains(all, use) {
				all = append(all, use)
			}
		}
	}
	return all
}

// card is the PCI function below a network device, through what it lies on. Each is seen once.
func (r *reader) card(netdev string, seen map[string]bool) (pci.Address, bool) {
	if seen[netdev] {
		return pci.Address{}, false
	}
	seen[netdev] = true
	link := netFolder + "/" + netdev
	target, err := fs.ReadLink(r.root, link)
	if err != nil {
		return pci.Address{}, false
	}
	if at, found := lastAddress(target); found {
		return at, true
	}
	for _, entry := range r.list(link) {
		if lower, is := strings.CutPrefix(entry, "lower_"); is && r.there(link+"/"+entry) {
			if at, found := r.card(lower, seen); found {
				return at, true
			}
		}
	}
	return pci.Address{}, false
}

// lastAddress is the last part of a path that is the address of a PCI function.
func lastAddress(name string) (pci.Address, bool) {
	for _, part := range slices.Backward(strings.Split(name, "/")) {
		if at, err := pci.ParseAddress(part); err == nil {
			return at, true
		}
	}
	return pci.Address{}, false
}

// isElement reports whether a text that was read can be one part of a path.
func isElement(text string) bool {
	return text != "" && text != "." && text != ".." && !strings.ContainsAny(text, "/\x00")
}

func (r *reader) ports(folder string) []Port {
	var found []Port
	for _, name := range r.list(folder) {
		number, err := strconv.ParseUint(name, 10, 16)
		if err != nil || len(found) == mostPorts {
			continue
		}
		at := folder + "/" + name
		r.there(at)
		_, state, _ := strings.Cut(r.line(at+"/state"), ": ") // such as "4: ACTIVE"
		p := Port{Number: int(number), State: state, Mbps: mbps(r.line(at + "/rate")), GIDs: r.gids(at + "/gids")}
		switch r.line(at + "/link_layer") {
		case "Ethernet":
			p.Link = Ethernet
		case "InfiniBand":
			p.Link = InfiniBand
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b Port) int { return a.Number - b.Number })
	return found
}

// mbps reads "400 Gb/sec (4X NDR)", 0 where that is not what it is.
func mbps(text string) int {
	number, _, found := strings.Cut(text, " Gb/sec")
	value, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || value < 0 || value > 1e6 {
		return 0
	}
	return int(value * 1000)
}

func (r *reader) gids(folder string) (g GIDs) {
	for i := range mostGIDs {
		text := r.line(folder + "/" + strconv.Itoa(i))
		if text == "" {
			break
		}
		g.Known = true
		switch facts.GIDOf(text) {
		case facts.GIDLocal:
			g.Any++
		case facts.GIDRoutable:
			g.Any, g.Routable = g.Any+1, g.Routable+1
		}
	}
	return g
}
