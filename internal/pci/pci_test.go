package pci

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0000:3b:00.0":     "0000:3b:00.0",
		"00000000:3B:00.0": "0000:3b:00.0",
		"10000:e1:1f.7":    "10000:e1:1f.7",
	} {
		address, err := ParseAddress(text)
		if err != nil || address.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, address, err, want)
		}
	}
	for _, text := range []string{"", "3b:00.0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:00.00", "000000001:3b:00.0", "zzzz:3b:00.0", "0000:3b:+0.0"} {
		if _, err := ParseAddress(text); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v, want ErrAddress", text, err)
		}
	}
}

// tree is a sysfs with one function whose files are given.
func tree(target string, files map[string]string) fstest.MapFS {
	const folder = "devices/pci0000:00/0000:00:01.0/0000:01:00.0/"
	sys := fstest.MapFS{"bus/pci/devices/0000:01:00.0": {Data: []byte(target), Mode: 0o777 | 1<<27}}
	all := map[string]string{"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x20b5\n"}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		if content != "" {
			sys[folder+name] = &fstest.MapFile{Data: []byte(content)}
		}
	}
	return sys
}

const there = "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"

func TestScan(t *testing.T) {
	devices, err := Scan(tree(there, map[string]string{"numa_node": "-1\n", "max_link_width": "255\n"}))
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v, %v", devices, err)
	}
	d := devices[0]
	if d.NUMANode != Unknown || d.LinkWidth != 0 || d.HostBridge != "pci0000:00" || len(d.Bridges) != 1 ||
		d.Bridges[0].String() != "0000:00:01.0" || d.Class != 0x030200 || d.Vendor != 0x10de || d.ID != 0x20b5 {
		t.Errorf("%+v", d)
	}
	if none, err := Scan(fstest.MapFS{}); err != nil || len(none) != 0 {
		t.Errorf("a host without PCI: %v, %v", none, err)
	}
}

func TestScanFaultsNameTheFile(t *testing.T) {
	for name, test := range map[string]struct {
		target string
		files  map[string]string
		want   string
	}{
		"vendor missing":    {there, map[string]string{"vendor": ""}, "vendor"},
		"class too large":   {there, map[string]string{"class": "0x1000000"}, "class"},
		"numa node":         {there, map[string]string{"numa_node": "-2"}, "numa_node"},
		"numa node text":    {there, map[string]string{"numa_node": "all"}, "numa_node"},
		"link elsewhere":    {"../../../../etc", nil, "not into devices/"},
		"link to itself":    {"0000:01:00.0", nil, "not into devices/"},
		"another device":    {"../../../devices/pci0000:00/0000:00:01.0", nil, "does not belong to"},
		"the same way":      {"../../../devices/pci0000:00/0000:00:01.0/0000:00:01.0/0000:01:00.0", nil, "twice"},
		"not a PCI bridge":  {"../../../devices/pci0000:00/x/0000:01:00.0", nil, "not a PCI address"},
		"no host bridge":    {"../../../devices/0000:00:01.0/0000:01:00.0", nil, "does not belong to"},
		"name of something": {there, map[string]string{"subsystem_vendor": "yes"}, "subsystem_vendor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Scan(tree(test.target, test.files))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to name %q", err, test.want)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("0000:3b:00.0")
	f.Add("00000000:3B:1F.7")
	f.Fuzz(func(t *testing.T, text string) {
		address, err := ParseAddress(text)
		if err != nil {
			return
		}
		if again, err := ParseAddress(address.String()); err != nil || again != address {
			t.Errorf("%q is %v, which reads as %v, %v", text, address, again, err)
		}
	})
}
