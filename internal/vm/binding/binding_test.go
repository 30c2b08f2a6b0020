package binding_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

const root = "../../.."

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	at, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// law makes every prefix of a plan, undoes it in reverse, and compares. The whole plan leaves all members with vfio-pci, and
// nothing else changed.
func law(t *testing.T, host *facts.Host, plan binding.Plan) {
	t.Helper()
	for count := range len(plan.Steps) + 1 {
		kernel := vmtest.NewKernel(host)
		before := kernel.Snapshot()
		for _, s := range plan.Steps[:count] {
			if err := kernel.Do(s); err != nil {
				t.Fatalf("of %d steps: %v", count, err)
			}
		}
		if count == len(plan.Steps) {
			given(t, kernel, host, plan)
		}
		for _, s := range slices.Backward(plan.Steps[:count]) {
			if err := kernel.Undo(s); err != nil {
				t.Fatalf("undo of %d steps: %v", count, err)
			}
		}
		if after := kernel.Snapshot(); after != before {
			t.Fatalf("after %d steps and their undoing there is\n%s, want\n%s", count, after, before)
		}
	}
}

func given(t *testing.T, kernel *vmtest.Kernel, host *facts.Host, plan binding.Plan) {
	t.Helper()
	after := strings.Split(strings.TrimSpace(kernel.Snapshot()), "\n")
	before := strings.Split(strings.TrimSpace(vmtest.NewKernel(host).Snapshot()), "\n")
	for i, d := range host.Devices {
		if slices.Contains(plan.Members, d.Address) {
			if !strings.Contains(after[i], fmt.Sprintf("driver=%q", binding.Driver)) {
				t.Fatalf("%s is not given", after[i])
			}
		} else if after[i] != before[i] {
			t.Fatalf("%s is no member and changed: %s", before[i], after[i])
		}
	}
}

// refusals are those of the modelled hosts; the others' devices can be given.
var refusals = map[string]error{
	"firmware-off": binding.ErrNoGroup, "root-disk": binding.ErrUsed, "boot-display": binding.ErrDisplay,
	"vgpu": binding.ErrDivided, "held": binding.ErrHeld,
}

func TestModelledHosts(t *testing.T) {
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		t.Run(h.Name, func(t *testing.T) {
			host := vmtest.Model(t, root, h.Name)
			plan, err := binding.Passthrough(host, address(t, h.GPU))
			if want := refusals[h.Name]; !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
			if err == nil {
				law(t, host, plan)
			}
		})
	}
}

// Each device of each modelled host is planned for or refused, and what is planned holds the law.
func TestEveryDevice(t *testing.T) {
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		host := vmtest.Model(t, root, h.Name)
		for _, d := range host.Devices {
			for _, form := range []func() (binding.Plan, error){
				func() (binding.Plan, error) { return binding.Passthrough(host, d.Address) },
				func() (binding.Plan, error) { return binding.Function(host, d.Address) },
			} {
				plan, err := form()
				var refusal *binding.Refusal
				if err != nil && !errors.As(err, &refusal) {
					t.Errorf("%s of %s: %v is no refusal", d.Address, h.Name, err)
				}
				if err == nil {
					law(t, host, plan)
				}
			}
		}
	}
}

func TestRefusalsName(t *testing.T) {
	for name, want := range map[string]string{
		"root-disk": "give 0000:3e:00.0 to a virtual machine: 0000:17:00.0 is in the same group: the host uses it: nvme0n1p2 is mounted at /",
	} {
		host := vmtest.Model(t, root, name)
		for _, h := range vmtest.Hosts {
			if h.Name != name {
				continue
			}
			if _, err := binding.Passthrough(host, address(t, h.GPU)); err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			for i := range host.Devices {
				if len(host.Devices[i].Uses) > 0 {
					host.Devices[i].Uses = []facts.Use{{Kind: "route", Name: "ens1"}}
				}
			}
			_, routed, _ := strings.Cut(want, ": ")
			routed = strings.ReplaceAll(routed, "nvme0n1p2 is mounted at /", "the default route leads through ens1")
			if _, err := binding.Passthrough(host, address(t, h.GPU)); err == nil || !strings.HasSuffix(err.Error(), routed) {
				t.Errorf("%s: %v, want %s", name, err, routed)
			}
		}
	}
}

// A refusal names a command that runs as it is printed.
func TestRefusalNamesACommandThatRuns(t *testing.T) {
	_, err := binding.Passthrough(vmtest.Model(t, root, "firmware-off"), address(t, "0000:3d:00.0"))
	if want := "`divvy vm preflight 0000:3d:00.0 --for qemu` says why"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// cards is a host with a card in group 7, one beside it with a driver, one in group 8, and a bridge in group 7.
func cards(change func(*facts.Host)) *facts.Host {
	host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}}
	for bus, group := range []int{7, 7, 8, 7, facts.NoGroup} {
		d := facts.Device{Group: group, Driver: "mlx5_core"}
		d.Address, d.Class = pci.Address{Bus: uint8(bus)}, 0x020000 //nolint:gosec // below 5
		host.Devices = append(host.Devices, d)
	}
	host.Devices[3].Class = 0x060400
	change(host)
	return host
}

// What is named to go with a device has to be a part of its group that can go.
func TestNamedBesides(t *testing.T) {
	for name, c := range map[string]struct {
		also pci.Address
		why  error
		says string
	}{
		"in the group":       {pci.Address{Bus: 1}, nil, ""},
		"the device itself":  {pci.Address{}, binding.ErrShared, "0000:01:00.0 is in the same group"},
		"missing":            {pci.Address{Bus: 9}, binding.ErrNoDevice, "give 0000:00:00.0 to a virtual machine: 0000:09:00.0 cannot go with it: there is no such PCI function"},
		"a missing function": {pci.Address{Bus: 1, Function: 7}, binding.ErrNoDevice, "0000:01:00.7 cannot go with it"},
		"of another group":   {pci.Address{Bus: 2}, binding.ErrApart, "0000:02:00.0 cannot go with it: it is not in the same group: it is in IOMMU group 8, and 0000:00:00.0 in group 7: claim it by itself"},
		"of no group":        {pci.Address{Bus: 4}, binding.ErrApart, "it is in no IOMMU group"},
		"a bridge":           {pci.Address{Bus: 3}, binding.ErrBridge, "0000:03:00.0 is in the same group: it is a bridge"},
	} {
		plan, err := binding.Passthrough(cards(func(*facts.Host) {}), pci.Address{}, c.also)
		if !errors.Is(err, c.why) || c.why != nil && !strings.Contains(err.Error(), c.says) || c.why == nil && len(plan.Members) != 2 {
			t.Errorf("%s: %v, %v, want %v with %q", name, plan.Members, err, c.why, c.says)
		}
	}
}

// A card by which the host is on a network is refused by name, with what takes it down, in whichever form it is asked for.
func TestConnectedCard(t *testing.T) {
	const down = "network device ens5, vlan7 has an address or a route: where the host does not need it, take it down first, as root: `ip address flush dev ens5 && ip link set ens5 down`"
	for name, c := range map[string]struct {
		on   int
		form func(*facts.Host) (binding.Plan, error)
		name string
		says string
	}{
		"itself": {0, func(h *facts.Host) (binding.Plan, error) {
			return binding.Passthrough(h, pci.Address{}, pci.Address{Bus: 1})
		}, "ens5", "machine: the host uses it: " + down},
		"one beside it": {1, func(h *facts.Host) (binding.Plan, error) {
			return binding.Passthrough(h, pci.Address{}, pci.Address{Bus: 1})
		}, "ens5", "0000:01:00.0 is in the same group: the host uses it: " + down},
		"a function": {2, func(h *facts.Host) (binding.Plan, error) { return binding.Function(h, pci.Address{Bus: 2}) }, "ens5", "machine: the host uses it: " + down},
		"a hostile name": {0, func(h *facts.Host) (binding.Plan, error) {
			return binding.Passthrough(h, pci.Address{}, pci.Address{Bus: 1})
		}, "a;reboot", "network device a;reboot, vlan7 has an address or a route: where the host does not need it, take it down first"},
	} {
		_, err := c.form(cards(func(h *facts.Host) {
			h.Devices[2].Virtual = true
			h.Devices[c.on].Connected = []string{c.name, "vlan7"}
		}))
		if !errors.Is(err, binding.ErrUsed) || !strings.HasSuffix(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
}

// What others had set of a device is told, and is so again afterwards.
func TestNotes(t *testing.T) {
	host := cards(func(h *facts.Host) {
		h.Devices[0].Override = "mlx5_core"
		h.Devices[1].Driver, h.Devices[1].Override = binding.Driver, binding.Driver
		h.Devices[2].Driver = ""
	})
	for bus, want := range map[uint8][]string{
		0: {`somebody else has set driver_override of 0000:00:00.0 to "mlx5_core": the release sets it so again`,
			"0000:01:00.0 was with vfio-pci already, by somebody else: that is left, and it stays there after the release"},
		2: {"0000:02:00.0 had no driver: it has none after the release either"},
	} {
		plan, err := binding.Passthrough(host, pci.Address{Bus: bus})
		if err != nil || !slices.Equal(plan.Notes, want) {
			t.Errorf("%q, %v, want %q", plan.Notes, err, want)
		}
		law(t, host, plan)
	}
	if plan, err := binding.Passthrough(cards(func(*facts.Host) {}), pci.Address{Bus: 2}); err != nil || len(plan.Notes) > 0 {
		t.Errorf("of a usual device %q is told, %v", plan.Notes, err)
	}
}

// Where another tool says which driver alone may have a device, the refusal says how that ends.
func TestRefusalOfAnOverride(t *testing.T) {
	_, err := binding.Passthrough(cards(func(h *facts.Host) { h.Devices[2].Override = "pci-stub" }), pci.Address{Bus: 2})
	const want = "it is pci-stub: end that tool's use of the device, then clear it, as root: `echo > /sys/bus/pci/devices/0000:02:00.0/driver_override`"
	if !errors.Is(err, binding.ErrOverride) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// random is a host with groups of functions in all states of drivers and overrides.
func random(r *rand.Rand) *facts.Host {
	host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}}
	drivers := []string{"", "nvidia", "snd_hda_intel", "xhci_hcd", "mlx5_core", "vfio-pci", "pci-stub"}
	for slot := range 1 + r.IntN(6) {
		group := r.IntN(3)
		for function := range 1 + r.IntN(3) {
			d := facts.Device{Group: group, Driver: drivers[r.IntN(len(drivers))]}
			d.Address = pci.Address{Bus: uint8(slot), Function: uint8(function)}
			d.Class = []uint32{0x030200, 0x040300, 0x0c0330, 0x060400}[r.IntN(4)]
			switch r.IntN(8) {
			case 0:
				d.Override = d.Driver
			case 1:
				d.Override = drivers[r.IntN(len(drivers))]
			case 2:
				d.Resets = []string{"flr"}
			case 3:
				d.Virtual = true
			case 4:
				d.Uses = []facts.Use{{Kind: "disk", Name: "sda", At: "/"}}
			case 5:
				d.VFs = r.IntN(2)
			}
			host.Devices = append(host.Devices, d)
		}
	}
	return host
}

// Over random groups the law holds for whatever is planned, and nothing is planned that takes from the host what it uses,
// what is divided, or another card's driver that was not named.
func TestRandomGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 2)) //nolint:gosec // the same hosts each time
	planned := 0
	for range 3000 {
		host := random(r)
		d := host.Devices[r.IntN(len(host.Devices))]
		other := host.Devices[r.IntN(len(host.Devices))].Address
		form, named := binding.Function, []pci.Address{}
		if !d.Virtual {
			if r.IntN(2) == 0 {
				named = append(named, other)
			}
			form = func(h *facts.Host, at pci.Address) (binding.Plan, error) { return binding.Passthrough(h, at, named...) }
		}
		plan, err := form(host, d.Address)
		if err != nil {
			continue
		}
		planned++
		law(t, host, plan)
		for _, at := range plan.Members {
			m, _ := host.Find(at)
			mine := facts.SameSlot(at, d.Address) || len(named) > 0 && facts.SameSlot(at, other)
			if len(m.Uses) > 0 || m.VFs > 0 || m.IsBridge() || m.Group != d.Group || !mine && m.Driver != "" && m.Driver != binding.Driver {
				t.Fatalf("%s is given with %s: %+v", d.Address, at, m)
			}
		}
	}
	if planned < 300 {
		t.Errorf("only %d hosts of 3000 had a plan", planned)
	}
}

// A plan names the functions that nothing resets, and resets those that can be reset alone.
func TestUnreset(t *testing.T) {
	function := func(number uint8, ways ...string) facts.Device {
		d := facts.Device{Group: 7, Driver: "nvidia", ResetKnown: true, Resets: ways}
		d.Address, d.Bridges = pci.Address{Bus: 1, Function: number}, []pci.Address{{Device: 1}}
		return d
	}
	stays := function(2)
	stays.Group, stays.Driver = 9, "xhci_hcd"
	for name, c := range map[string]struct {
		devices []facts.Device
		unreset []pci.Address
		resets  int
	}{
		"each alone":            {[]facts.Device{function(0, "flr"), function(1, "pm")}, nil, 2},
		"the whole card":        {[]facts.Device{function(0), function(1)}, nil, 0},
		"a part of it":          {[]facts.Device{function(0, "flr"), function(1), stays}, []pci.Address{{Bus: 1, Function: 1}}, 1},
		"another one's its own": {[]facts.Device{function(0), function(1, "flr"), stays}, []pci.Address{{Bus: 1}}, 1},
	} {
		host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}, Devices: c.devices}
		plan, err := binding.Passthrough(host, pci.Address{Bus: 1})
		if err != nil {
			t.Fatal(err)
		}
		resets := 0
		for _, s := range plan.Steps {
			if s.Kind == binding.Reset {
				resets++
			}
		}
		if !slices.Equal(plan.Unreset, c.unreset) || resets != c.resets {
			t.Errorf("%s: %v are not reset, and %d are; want %v and %d", name, plan.Unreset, resets, c.unreset, c.resets)
		}
	}
}

// Where interrupts are not remapped vfio refuses every group, so no plan is made, unless vfio was told to take it.
func TestNotRemapped(t *testing.T) {
	gpu := address(t, "0000:3d:00.0")
	host := vmtest.Model(t, root, "a100")
	host.IOMMU.Remapping, host.Parameters = facts.No, []string{"intremap=off"}
	_, err := binding.Passthrough(host, gpu)
	if !errors.Is(err, binding.ErrRemap) || !strings.Contains(err.Error(), facts.NotRemapped) || !strings.Contains(err.Error(), "take intremap=off out") {
		t.Errorf("a whole card: %v", err)
	}
	function := facts.Device{Group: 99}
	function.Address, function.Virtual, function.Parent = address(t, "0000:3d:00.4"), true, gpu
	host.Devices = append(host.Devices, function)
	slices.SortFunc(host.Devices, func(a, b facts.Device) int { return a.Address.Compare(b.Address) })
	if _, err := binding.Function(host, function.Address); !errors.Is(err, binding.ErrRemap) {
		t.Errorf("a virtual function: %v", err)
	}
	host.IOMMU.UnsafeInterrupts = true
	if _, err := binding.Function(host, function.Address); err != nil {
		t.Errorf("with allow_unsafe_interrupts: %v", err)
	}
}
