package kit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
	"github.com/divvy-gpu/divvy/test/vm/kit"
)

// QEMU itself judges the arguments that preflight prints for it: it takes all of them, and misses nothing but the device, which is
// on the recorded host. Where that has KVM, the same is asked without.
func TestArgumentsOfPreflight(t *testing.T) {
	root := installtest.Root(t)
	k, err := kit.Open(filepath.Join(root, ".cache/vm-kit"))
	if err != nil {
		installtest.Missing(t, "vm", err)
	}
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		host := vmtest.Model(t, root, h.Name)
		for _, device := range host.Devices {
			if device.Address.String() != h.GPU && device.Parent.String() != h.GPU {
				continue
			}
			report := preflight.NewReport(host, []facts.Device{device}, preflight.Question{For: preflight.QEMU, Memory: 1 << 30}, "test")
			if len(report.Notes) > 0 {
				continue // the host needs the device
			}
			snippet := report.Needs[len(report.Needs)-1]
			words := strings.Fields(strings.NewReplacer("\\\n", " ", "accel=kvm", "accel=tcg", "-cpu host,", "-cpu max,").Replace(snippet.Text))
			others, given := divided(words)
			if len(given) == 0 {
				t.Errorf("%s: no device for %s:\n%s", h.Name, device.Address, snippet.Text)
			}
			for _, one := range given {
				if said := asked(k, append(others, "-device", one)); !misses(said, one) {
					t.Errorf("%s: of %s QEMU says %s", h.Name, one, said)
				}
			}
		}
	}
}

// QEMU does not take what it does not know.
func TestQEMUJudges(t *testing.T) {
	k, err := kit.Open(filepath.Join(installtest.Root(t), ".cache/vm-kit"))
	if err != nil {
		installtest.Missing(t, "vm", err)
	}
	for _, device := range []string{"vfio-pci,hosts=0000:3d:00.0", "vfio-pci,host=0000:3d:00.0,bus=nowhere"} {
		if said := asked(k, []string{"-machine", "q35", "-device", device}); misses(said, device) {
			t.Errorf("%s is taken: %s", device, said)
		}
	}
}

// divided returns the arguments without devices of the host, and these.
func divided(words []string) (others, given []string) {
	for i := 0; i < len(words); i++ {
		if words[i] == "-device" && i+1 < len(words) && strings.HasPrefix(words[i+1], "vfio-pci,") {
			given = append(given, words[i+1])
			i++
			continue
		}
		others = append(others, words[i])
	}
	return others, given
}

// asked is what QEMU says before it ends. Its processor would not run.
func asked(k kit.Kit, arguments []string) string {
	said, _ := k.QEMU(append(append([]string{"-S", "-nodefaults", "-no-user-config", "-display", "none"}, k.Firmware()...), arguments...)...).CombinedOutput()
	return string(said)
}

// misses tells whether QEMU's only complaint is that a device of the host is not there.
func misses(said, device string) bool {
	path := device[strings.IndexAny(device, "=")+1:]
	path, _, _ = strings.Cut(path, ",")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	return strings.Contains(last, "No such file or directory") && strings.Contains(last, strings.TrimPrefix(path, "/sys/bus/pci/devices/"))
}
