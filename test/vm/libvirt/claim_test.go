package libvirt

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// What a claim prints for libvirt is right in each form, and libvirt binds nothing of it again.
func TestClaim(t *testing.T) {
	judge := schema(t)
	const uuid = "11111111-2222-4333-8444-555555555555"
	virtual := func(host *facts.Host, t *testing.T) *facts.Device {
		t.Helper()
		for i := range host.Devices {
			if host.Devices[i].Virtual {
				return &host.Devices[i]
			}
		}
		t.Fatal("the host has no virtual function")
		return nil
	}
	for name, c := range map[string]struct {
		host string
		hand func(host *facts.Host, t *testing.T) preflight.Handover
		want string
		// devices is how many there are in the XML.
		devices int
	}{
		"a whole card with its companion": {"geforce", func(host *facts.Host, _ *testing.T) preflight.Handover {
			var members []pci.Address
			for _, d := range host.InGroup(13) {
				members = append(members, d.Address)
			}
			return preflight.Handover{Members: members}
		}, "type='pci' managed='no'", 2},
		"a virtual function": {"vgpu", func(host *facts.Host, t *testing.T) preflight.Handover {
			d := virtual(host, t)
			d.Driver, d.VGPU = "vfio-pci", nil
			return preflight.Handover{Members: []pci.Address{d.Address}}
		}, "type='pci' managed='no'", 1},
		"a mediated device": {"vgpu", func(host *facts.Host, t *testing.T) preflight.Handover {
			return preflight.Handover{Members: []pci.Address{virtual(host, t).Address}, Mediated: uuid, Path: "/sys/bus/mdev/devices/" + uuid}
		}, "type='mdev' model='vfio-pci'>\n  <source>\n    <address uuid='" + uuid + "'/>", 1},
		"a virtual function with a type": {"vgpu", func(host *facts.Host, t *testing.T) preflight.Handover {
			d := virtual(host, t)
			d.Driver, d.VGPU = "nvidia", &facts.VGPU{Interface: "vendor-vfio", Current: "471"}
			return preflight.Handover{Members: []pci.Address{d.Address}}
		}, "type='pci' managed='no'", 1},
	} {
		t.Run(name, func(t *testing.T) {
			host := vmtest.Model(t, installtest.Root(t), c.host)
			handed := preflight.Hand(host, c.hand(host, t), preflight.Question{For: preflight.Libvirt, Memory: 16 << 30})
			devices, beside := "", ""
			for _, snippet := range handed.Needs {
				if strings.HasPrefix(snippet.Title, "Below <devices>") {
					devices += snippet.Text
				} else {
					beside += snippet.Text
				}
			}
			if count := strings.Count(devices, "<hostdev "); count != c.devices || strings.Count(devices, c.want) != c.devices || len(handed.Arguments) > 0 {
				t.Errorf("%d devices, want %d with %s, and arguments %q:\n%s", count, c.devices, c.want, handed.Arguments, devices)
			}
			if err := judge(domain(devices, beside)); err != nil {
				t.Error(err)
			}
		})
	}
}
