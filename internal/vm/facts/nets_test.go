package facts

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// A card is in use whose network device is a part of another one, has one on it, or is in another network namespace, also without an
// address; and it is told how that ends where the host can end it.
func TestTies(t *testing.T) {
	const (
		netdev = diskFolder + "/net/eth0"
		link   = "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"
		head   = "Inter-|   Receive\n face |bytes\n"
		own    = "2    eth0            1     0     01005e000001\n2    eth0            1     0     333300000001\n2    eth0            2     0     0180c200000e\n"
		others = own + "2    eth0            2     0     333300000001\n"
		moved  = "its network device is in another network namespace, as a container's"
	)
	for name, test := range map[string]struct {
		files     map[string]string
		what, end string
	}{
		"a port":        {map[string]string{"sys/class/net/eth0": link, netdev + "/upper_vmbr1": "->x", netdev + "/master": "->../vmbr1"}, "network device eth0 is a part of vmbr1", "ip link set eth0 nomaster"},
		"of a switch":   {map[string]string{"sys/class/net/eth0": link, netdev + "/upper_ovs-system": "->x", netdev + "/master": "->../ovs-system"}, "network device eth0 is a part of ovs-system", "ovs-vsctl del-port eth0"},
		"a macvlan":     {map[string]string{"sys/class/net/eth0": link, netdev + "/upper_mac0": "->x"}, "network device mac0 lies on eth0", "ip link delete mac0"},
		"foreign names": {map[string]string{"sys/class/net/eth0": link, netdev + "/upper_a;b": "->x"}, "network device a;b lies on eth0", ""},
		"an address":    {map[string]string{"sys/class/net/eth0": link, netdev + "/upper_mac0": "->x", "proc/1/net/if_inet6": "20010db8000000000000000000000001 02 40 00 80     eth0\n"}, "network device eth0 has an address or a route", "ip address flush dev eth0 && ip link set eth0 down"},
		"a container's": {map[string]string{"sys/class/net/eth0": link, "proc/1/net/dev_mcast": others}, "network device eth0 has another one on it in another network namespace, as a container's macvlan", ""},
		"nothing on it": {map[string]string{"sys/class/net/eth0": link, netdev + "/mtu": "", "proc/self/net/dev_mcast": own, "proc/1/net/dev": head + "  eth0: 7\n"}, "", ""},
		"moved":         {map[string]string{diskFolder + "/net": "/", "sys/class/net/lo": "->../../devices/virtual/net/lo", "proc/1/net/dev": head + "    lo: 7 0\n"}, moved, ""},
		"moved, virtio": {map[string]string{diskFolder + "/virtio1/net": "/", "sys/class/net/lo": "->../../devices/virtual/net/lo", "proc/1/net/dev": head + "    lo: 7 0\n"}, moved, ""},
		"no network":    {map[string]string{"sys/class/net/lo": "->../../devices/virtual/net/lo", "proc/1/net/dev": head + "    lo: 7 0\n"}, "", ""},
		"another view":  {map[string]string{diskFolder + "/net": "/", "sys/class/net/lo": "->../../devices/virtual/net/lo", "proc/1/net/dev": head + "    lo: 7 0\n  eth0: 1\n"}, "", ""},
		"a container":   {map[string]string{diskFolder + "/net": "/", "sys/class/net/lo": "->../../devices/virtual/net/lo", "proc/1/net/dev": head + "    lo: 7 0\n", "proc/self/ns/pid": "->pid:[4026532000]"}, "", ""},
		"not known":     {map[string]string{diskFolder + "/net": "/", "sys/class/net/lo": "->../../devices/virtual/net/lo"}, "", ""},
	} {
		folders := map[string]bool{}
		for file, content := range test.files {
			if content == "/" {
				delete(test.files, file)
				folders[file] = true
			}
		}
		files := tree(test.files)
		for folder := range folders {
			files[folder] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		}
		h, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		if what, end := device(t, h, "0000:02:00.0").Network(); what != test.what || end != test.end {
			t.Errorf("%s: %q, %q, want %q, %q", name, what, end, test.what, test.end)
		}
	}
}

// Of what is counted a recording keeps nothing.
func TestKeptTies(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"proc/1/net/dev":       {"Inter-|   Receive\n face |bytes\n    lo: 712 9\n  eth0: 81 2\n", "lo:\neth0:\n"},
		"proc/1/net/dev_mcast": {"2    eth0            3     0     01005e000001\n2    eth0            1     0     0180c200000e\n", "0 eth0 2 0 01005e000001\n"},
		"sys/devices/virtual/block/loop0/loop/backing_file": {"/home/ada/secret.img\n", ""},
		"sys/devices/virtual/block/loop1/loop/backing_file": {"/dev/nvme0n1\n", "/dev/nvme0n1\n"},
	} {
		if kept, _ := Keep(name, c.content); kept != c.want {
			t.Errorf("%s: %q, want %q", name, kept, c.want)
		}
	}
}
