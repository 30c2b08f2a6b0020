package facts

import (
	"reflect"
	"testing"
)

// Cards are found on which the host has an address or a route, also through what lies on them. What the kernel sets of itself, and
// network devices without a card, do not count.
func TestConnected(t *testing.T) {
	const (
		card  = "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"
		route = "\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
		head  = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	)
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a route":          {map[string]string{"proc/1/net/route": head + "eth0" + route}, []string{"eth0"}},
		"an IPv6 address":  {map[string]string{"proc/1/net/if_inet6": "20010db8000000000000000000000001 02 40 00 80     eth0\n"}, []string{"eth0"}},
		"of its own":       {map[string]string{"proc/self/net/route": "eth0" + route + "docker0" + route}, []string{"eth0"}},
		"of the kernel":    {map[string]string{"proc/1/net/if_inet6": "fe800000000000000000000000000001 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n"}, nil},
		"of no card":       {map[string]string{"proc/1/net/route": "docker0" + route, "proc/1/net/if_inet6": "20010db8000000000000000000000001 05 40 00 80  docker0\n"}, nil},
		"a foreign name":   {map[string]string{"proc/1/net/route": "a/eth0" + route}, nil},
		"above it, twice":  {map[string]string{"proc/1/net/route": "vlan7" + route + "vlan7" + route + "bond0" + route, "sys/class/net/vlan7": "->../../devices/virtual/net/vlan7", "sys/devices/virtual/net/vlan7/lower_bond0": "->../bond0", "sys/class/net/bond0": "->../../devices/virtual/net/bond0", "sys/devices/virtual/net/bond0/lower_eth0": "->x"}, []string{"bond0", "vlan7"}},
		"lines cut short":  {map[string]string{"proc/1/net/route": "eth0\t0000000A\n", "proc/1/net/if_inet6": "eth0\n"}, nil},
		"on a bus besides": {map[string]string{"proc/1/net/route": "eth1" + route, "sys/class/net/eth1": "->../../devices/pci0000:00/0000:00:02.0/net/eth1"}, nil},
	} {
		test.files["sys/class/net/eth0"] = card
		test.files["sys/class/net/docker0"] = "->../../devices/virtual/net/docker0"
		test.files["sys/devices/virtual/net/docker0/mtu"] = "1500\n"
		if got := device(t, read(t, test.files), "0000:02:00.0").Connected; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
