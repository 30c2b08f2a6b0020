package facts

import (
	"io/fs"
	"slices"
	"strings"
)

// Tie is what joins a network device of a card to others that the host or a container uses.
type Tie struct {
	// Name is the network device's, "" for one that is in another network namespace.
	Name string
	// Upper is what it is a part of, or what lies on it; "" for what another network namespace has.
	Upper string
	// Part is true where it is a part of the upper one, as a port is of a bridge.
	Part bool
}

// ties notes what lies on network devices of cards, also without an address. Sysfs shows no tie over two network namespaces.
func (r *reader) ties() {
	if space, err := fs.ReadLink(r.root, "proc/self/ns/pid"); err != nil || space != firstNamespace {
		return // which network namespaces are others is not known
	}
	shared := r.sharedBelow()
	for _, name := range r.list("sys/class/net") {
		link := "sys/class/net/" + name
		at, found := r.owner(link)
		if !found {
			continue
		}
		var ties []Tie
		master := r.target(link + "/master")
		for _, entry := range r.list(link) {
			if upper, is := strings.CutPrefix(entry, "upper_"); is && r.there(link+"/"+entry) {
				ties = append(ties, Tie{Name: name, Upper: upper, Part: upper == master})
			}
		}
		if len(ties) == 0 && shared[name] {
			ties = append(ties, Tie{Name: name})
		}
		for i := range r.host.Devices {
			if d := &r.host.Devices[i]; d.Address == at {
				d.Ties = append(d.Ties, ties...)
			}
		}
	}
	if !r.seesNetwork() {
		return
	}
	for i := range r.host.Devices {
		if d := &r.host.Devices[i]; r.moved("sys/" + deviceFolder + "/" + d.Address.String()) {
			d.Ties = append(d.Ties, Tie{})
		}
	}
}

// moved tells whether the network device of a function is in another network namespace: then the folder for such is there, and
// nothing is to be seen in it. Of virtio it lies below the function's own device.
func (r *reader) moved(function string) bool {
	for _, folder := range append(r.ofVirtio(function), function) {
		// Each name is asked for: a recording keeps those alone.
		seen := func(name string) bool { return r.there(folder + "/net/" + name) }
		if r.there(folder+"/net") && !slices.ContainsFunc(r.list(folder+"/net"), seen) {
			return true
		}
	}
	return false
}

func (r *reader) ofVirtio(function string) (folders []string) {
	for _, name := range r.list(function) {
		if strings.HasPrefix(name, "virtio") {
			folders = append(folders, function+"/"+name)
		}
	}
	return folders
}

// network is a table of the first process's network, or else of the reader's.
func (r *reader) network(table string) string {
	if text := r.text("proc/1/net/" + table); text != "" {
		return text
	}
	return r.text("proc/self/net/" + table)
}

// seesNetwork tells whether sysfs shows the network devices of the host, and not those of a container.
func (r *reader) seesNetwork() bool {
	seen := r.list("sys/class/net")
	known := false
	for line := range strings.Lines(r.network("dev")) {
		name, _, is := strings.Cut(strings.TrimSpace(line), ":")
		if !is {
			continue // the head
		}
		if known = slices.Contains(seen, name); !known {
			return false
		}
	}
	return known
}

// sharedBelow are the network devices to whose traffic to all others also listen that lie on them, as a container's macvlan and ipvlan
// do. What lies on another one passes its addresses on to that, which counts them. One that is down passes none.
func (r *reader) sharedBelow() map[string]bool {
	shared := map[string]bool{}
	for line := range strings.Lines(r.network("dev_mcast")) {
		if name := sharedIn(line); name != "" {
			shared[name] = true
		}
	}
	return shared
}

// sharedIn is the network device of a line "NUMBER NAME COUNT ... ADDRESS" of /proc/net/dev_mcast of which more than one listen to all
// hosts.
func sharedIn(line string) string {
	f := strings.Fields(line)
	if len(f) != 5 || !slices.Contains([]string{"01005e000001", "333300000001"}, f[4]) || f[2] == "0" || f[2] == "1" {
		return ""
	}
	return f[1]
}

// keptShared is that something lies on a network device.
func keptShared(line string) string {
	if name := sharedIn(line); name != "" {
		return "0 " + name + " 2 0 01005e000001"
	}
	return ""
}

// keptName is a network device's name without what it counted.
func keptName(line string) string {
	name, _, is := strings.Cut(strings.TrimSpace(line), ":")
	if !is {
		return ""
	}
	return name + ":"
}

// tied says what a tie is, and the command that ends it where there is one and a shell takes the names as they are.
func (t Tie) tied() (what, end string) {
	switch {
	case t.Name == "":
		return "its network device is in another network namespace, as a container's", ""
	case t.Upper == "":
		return "network device " + t.Name + " has another one on it in another network namespace, as a container's macvlan", ""
	case t.Part:
		what, end = "network device "+t.Name+" is a part of "+t.Upper, "ip link set "+t.Name+" nomaster"
		if t.Upper == "ovs-system" {
			end = "ovs-vsctl del-port " + t.Name
		}
	default:
		what, end = "network device "+t.Upper+" lies on "+t.Name, "ip link delete "+t.Upper
	}
	if strings.Trim(t.Name+t.Upper, plainName) != "" {
		end = ""
	}
	return what, end
}
