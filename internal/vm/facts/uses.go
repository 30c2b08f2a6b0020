package facts

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// owner is the PCI function that a link of sysfs leads to or below.
func (r *reader) owner(link string) (pci.Address, bool) {
	to, err := fs.ReadLink(r.root, link)
	if err != nil {
		return pci.Address{}, false
	}
	parts := strings.Split(to, "/")
	for _, part := range slices.Backward(parts) {
		if address, err := pci.ParseAddress(part); err == nil {
			return address, true
		}
	}
	return pci.Address{}, false
}

// use notes a use of a device.
func (r *reader) use(at pci.Address, use Use) {
	for i := range r.host.Devices {
		if d := &r.host.Devices[i]; d.Address == at && !slices.Contains(d.Uses, use) {
			d.Uses = append(d.Uses, use)
		}
	}
}

// disks notes which devices have disks that are mounted, used for swap, or perhaps in a pool of ZFS, which names none.
func (r *reader) disks() {
	inUse, pools := r.inUse()
	for _, name := range r.list("sys/class/block") {
		folder := "sys/class/block/" + name
		keys := []string{name, r.line(folder + "/dev")}
		if strings.HasPrefix(name, "dm-") { // mounts of Btrfs have its name below /dev/mapper alone
			keys = append(keys, r.line(folder+"/dm/name"))
		}
		at, used := "perhaps in a pool of ZFS", pools
		for _, key := range keys {
			if known, there := inUse[key]; there {
				at, used = known, true
				break
			}
		}
		if used {
			r.diskUse(name, name, at, map[string]bool{})
		}
	}
	r.raw()
}

// inUse tells where disks are mounted or that they are swap, by major:minor and by name, and whether there are pools of
// ZFS, which name no disk.
func (r *reader) inUse() (at map[string]string, pools bool) {
	mounts := r.text("proc/1/mountinfo")
	if mounts == "" {
		mounts = r.text("proc/self/mountinfo")
	}
	at = map[string]string{}
	for line := range strings.Lines(mounts) {
		number, place, source, pool := mountOf(line)
		pools = pools || pool
		for _, key := range []string{number, source} {
			if _, there := at[key]; !there && key != "" {
				at[key] = place
			}
		}
	}
	for line := range strings.Lines(r.text("proc/swaps")) {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, "/dev/") {
			at[path.Base(name)] = "swap"
		}
	}
	return at, pools
}

// mountOf reads a line of mountinfo: the device's number, where it is mounted, and its name if it has one below /dev.
func mountOf(line string) (number, at, source string, pool bool) {
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !found || len(fields) < 5 || len(rest) < 2 {
		return "", "", "", false
	}
	if strings.HasPrefix(rest[1], "/dev/") {
		source = path.Base(rest[1])
	}
	if number = fields[2]; strings.HasPrefix(number, "0:") {
		number = ""
	}
	return number, fields[4], source, rest[0] == "zfs"
}

// diskUse notes the use of a block device at the PCI function below it, through what it lies on. Each block device is seen once,
// so devices that lie on each other in a circle, or many on many, take no time.
func (r *reader) diskUse(name, block, at string, seen map[string]bool) {
	if seen[block] {
		return
	}
	seen[block] = true
	functions := r.functionsOf("sys/class/block/" + block)
	for _, address := range functions {
		r.use(address, Use{Kind: "disk", Name: name, At: at})
	}
	if len(functions) > 0 {
		return
	}
	for _, lower := range r.lowerBlocks(block) {
		r.diskUse(name, lower, at, seen)
	}
}

// routes notes which network cards the default routes lead through, also below a bond, a bridge or a VLAN.
func (r *reader) routes() {
	tables := map[string]func(fields []string) string{
		"route": func(f []string) string {
			if isDefault(f) {
				return f[0]
			}
			return ""
		},
		"ipv6_route": func(f []string) string {
			if len(f) == 10 && f[0] == strings.Repeat("0", 32) && f[1] == "00" && f[9] != "lo" {
				return f[9]
			}
			return ""
		},
	}
	r.connections()
	r.ties()
	hidden := ""
	for table, read := range tables {
		text := r.text("proc/1/net/" + table)
		if text == "" {
			text = r.text("proc/self/net/" + table)
		}
		for line := range strings.Lines(text) {
			if name := read(strings.Fields(line)); name != "" && name == path.Base(name) {
				if !r.routeUse(name) {
					hidden = max(hidden, name)
				}
			}
		}
	}
	if hidden != "" {
		r.hiddenRoute(hidden)
	}
	for i := range r.host.Devices {
		slices.SortFunc(r.host.Devices[i].Uses, func(a, b Use) int { return strings.Compare(a.Kind+a.Name+a.At, b.Kind+b.Name+b.At) })
	}
}

// hiddenRoute notes a default route at every network card, because a bridge of Open vSwitch and a tunnel do not tell theirs.
func (r *reader) hiddenRoute(name string) {
	for _, card := range r.list("sys/class/net") {
		if address, found := r.owner("sys/class/net/" + card); found {
			r.use(address, Use{Kind: "route", Name: name})
		}
	}
}

// connections notes which network cards the host has an address or a route on, also below a bond, a bridge or a VLAN. What the kernel
// sets of itself where a device is up does not count. Network devices that lie on no card are of no interest.
func (r *reader) connections() {
	tables := map[string]func(fields []string) string{"route": routed, "if_inet6": addressed}
	for table, read := range tables {
		text := r.text("proc/1/net/" + table)
		if text == "" {
			text = r.text("proc/self/net/" + table)
		}
		for line := range strings.Lines(text) {
			if name := read(strings.Fields(line)); name != "" && name == path.Base(name) {
				for _, at := range r.cardsBelow(name, map[string]bool{}) {
					r.connect(at, name)
				}
			}
		}
	}
	for i := range r.host.Devices {
		slices.Sort(r.host.Devices[i].Connected)
	}
}

func (r *reader) connect(at pci.Address, name string) {
	for i := range r.host.Devices {
		if d := &r.host.Devices[i]; d.Address == at && !slices.Contains(d.Connected, name) {
			d.Connected = append(d.Connected, name)
		}
	}
}

// routed is the network device of a line of /proc/net/route. Of an IPv4 address there is a route to its network.
func routed(f []string) string {
	if len(f) < 8 || len(f[1]) != 8 || f[0] == "lo" {
		return ""
	}
	return f[0]
}

// linkLocal is the scope of addresses that the kernel gives each network device that is up.
const linkLocal = "20"

// addressed is the network device of a line of /proc/net/if_inet6.
func addressed(f []string) string {
	if len(f) != 6 || f[3] == linkLocal || f[5] == "lo" {
		return ""
	}
	return f[5]
}

// isDefault reports whether a line of /proc/net/route is of a default route. Two halves of all addresses are as good as all of
// them, and stand before them.
func isDefault(f []string) bool {
	return len(f) > 7 && (f[1] == "00000000" && (f[7] == "00000000" || f[7] == "00000080") || f[1] == "00000080" && f[7] == "00000080")
}

// routeUse notes the default route through a network device at the PCI functions below it, and reports whether there is one.
func (r *reader) routeUse(name string) (found bool) {
	cards := r.cardsBelow(name, map[string]bool{})
	for _, at := range cards {
		r.use(at, Use{Kind: "route", Name: name})
	}
	return len(cards) > 0
}

// cardsBelow are the PCI functions that a network device lies on. Each network device is seen once.
func (r *reader) cardsBelow(name string, seen map[string]bool) (cards []pci.Address) {
	if seen[name] {
		return nil
	}
	seen[name] = true
	link := "sys/class/net/" + name
	if at, found := r.owner(link); found {
		return []pci.Address{at}
	}
	for _, entry := range r.list(link) {
		if lower, is := strings.CutPrefix(entry, "lower_"); is && r.there(link+"/"+entry) {
			cards = append(cards, r.cardsBelow(lower, seen)...)
		}
	}
	return cards
}

func (r *reader) framebuffers() {
	for _, name := range r.list("sys/class/graphics") {
		digits, found := strings.CutPrefix(name, "fb")
		if !found || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue // fbcon is no framebuffer
		}
		link := "sys/class/graphics/" + name
		if !r.there(link) {
			continue
		}
		frame := Framebuffer{Name: name}
		if told := r.line(link + "/name"); told != "" {
			frame.Name += " (" + told + ")"
		}
		frame.Device, frame.OnPCI = r.owner(link)
		r.host.Framebuffers = append(r.host.Framebuffers, frame)
	}
}

// attached notes which USB devices are plugged into controllers. Hubs only pass others on.
func (r *reader) attached() {
	const hub = "09"
	for _, name := range r.list("sys/bus/usb/devices") {
		link := "sys/bus/usb/devices/" + name
		if strings.HasPrefix(name, "usb") || strings.Contains(name, ":") {
			continue // the controller's own hub; a part of a device
		}
		address, found := r.owner(link)
		if !found || r.line(link+"/bDeviceClass") == hub {
			continue
		}
		what := r.line(link+"/idVendor") + ":" + r.line(link+"/idProduct") // a recording has these alone
		if name := r.line(link + "/product"); name != "" {
			what = name
		}
		for i := range r.host.Devices {
			if d := &r.host.Devices[i]; d.Address == address {
				d.Attached = append(d.Attached, what)
			}
		}
	}
}
