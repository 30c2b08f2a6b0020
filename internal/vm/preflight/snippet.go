package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Snippet is text that a platform needs.
type Snippet struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// needs is what a platform needs to give the devices to one virtual machine.
func needs(host *facts.Host, devices []facts.Device, ask Question) []Snippet {
	var given []facts.Device
	for _, d := range devices {
		given = append(given, look{host: host, device: d, ask: ask}.goesWith()...)
	}
	w := writer{host: host, devices: devices, given: given, ask: ask}
	switch ask.For {
	case QEMU:
		return append(append(append(w.claim(), w.bind(withoutDivvy)...), w.hiding()...), w.qemu())
	case Libvirt:
		return append(w.claim(), w.libvirt()...)
	case Proxmox:
		return []Snippet{w.proxmox()}
	case OpenStack:
		return append(w.bind(""), w.openStack()...)
	case KubeVirt:
		return append(w.byClaim(), w.permitted()...)
	case Xen:
		return w.xen()
	default:
		return w.esxi()
	}
}

// writer writes snippets. Given are the devices with the other functions of their cards.
type writer struct {
	host           *facts.Host
	devices, given []facts.Device
	ask            Question
	// ready is what was made ready for the virtual machine, nil where the platform or a person does that.
	ready *Handover
	// part is true where a vGPU of the devices is given.
	part bool
}

// alongWith is a device with the functions of its card that go with it, itself first.
func alongWith(host *facts.Host, d facts.Device) []facts.Device {
	all := []facts.Device{d}
	if d.Virtual {
		return all
	}
	for _, other := range host.Devices {
		if other.Address != d.Address && facts.SameSlot(other.Address, d.Address) && !other.Virtual && !other.IsBridge() {
			all = append(all, other)
		}
	}
	return all
}

// vendor tells whether a function goes by NVIDIA's vendor VFIO, and so stays on its driver.
func vendor(d facts.Device) bool { return d.VGPU != nil && d.VGPU.Interface == "vendor-vfio" }

// withoutDivvy begins the titles of what nobody needs who claims a device.
const withoutDivvy = "Without Divvy's agent: "

// claim hands the devices over by Divvy.
func (w writer) claim() []Snippet {
	var b strings.Builder
	for _, d := range w.devices {
		form, at := w.offered(d)
		switch form {
		case formVGPU:
			form += ":TYPE"
		case "vf":
			at = d.Address
		}
		fmt.Fprintf(&b, "divvy vm claim --pci %s --form %s --user USER", at, form)
		if w.ask.Memory > 0 {
			fmt.Fprintf(&b, " --memory %si", w.amount())
		}
		if w.ask.For == Libvirt {
			b.WriteString(" --for libvirt")
		}
		b.WriteString("\n")
	}
	if w.part {
		return []Snippet{{"By Divvy, as root: a claim has a vGPU made of a TYPE above until `divvy vm release`, and prints what the virtual machine needs", b.String()}}
	}
	return []Snippet{{"By Divvy, as root: a claim takes the device from the host until `divvy vm release`, and prints what the virtual machine needs", b.String()}}
}

// bind gives the devices to vfio-pci, where the platform expects them there.
func (w writer) bind(title string) []Snippet {
	var addresses []string
	for _, d := range w.given {
		if !vendor(d) && d.Driver != "vfio-pci" {
			addresses = append(addresses, d.Address.String())
		}
	}
	if len(addresses) == 0 && w.owners() == "" {
		return nil
	}
	if title == "" {
		title = "As root, before the virtual machine starts"
	} else {
		title += "as root, before the virtual machine starts"
	}
	if len(addresses) == 0 {
		return []Snippet{{title, w.owners()}}
	}
	return []Snippet{{title, fmt.Sprintf(`modprobe vfio-pci
for f in %s; do
    echo vfio-pci > /sys/bus/pci/devices/$f/driver_override
    [ ! -e /sys/bus/pci/devices/$f/driver ] || echo $f > /sys/bus/pci/devices/$f/driver/unbind
    echo $f > /sys/bus/pci/drivers_probe
done
`, strings.Join(addresses, " ")) + w.owners()}}
}

// owners gives the nodes of the groups to who runs QEMU; other platforms see to that themselves.
func (w writer) owners() string {
	var lines []string
	for _, d := range w.given {
		if line := fmt.Sprintf("chown USER /dev/vfio/%d\n", d.Group); w.ask.For == QEMU && d.Group != facts.NoGroup && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// windowMiB is the 64-bit window that a guest's firmware must be told to have, 0 where it finds room by itself.
func (w writer) windowMiB() uint64 {
	var sum uint64
	for _, d := range w.given {
		sum += wide(d)
	}
	if sum < 1<<35 {
		return 0
	}
	return 2 * sum >> 20
}

func (w writer) libvirt() []Snippet {
	var b strings.Builder
	if w.ready != nil && w.ready.Mediated != "" {
		return []Snippet{{"Below <devices> of the domain", fmt.Sprintf(`<hostdev mode='subsystem' type='mdev' model='vfio-pci'>
  <source>
    <address uuid='%s'/>
  </source>
</hostdev>
`, w.ready.Mediated)}}
	}
	for _, d := range w.given {
		managed := "yes"
		if vendor(d) || w.ready != nil {
			managed = "no" // it stays on its driver, or was bound already
		}
		fmt.Fprintf(&b, `<hostdev mode='subsystem' type='pci' managed='%s'>
  <source>
    <address domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/>
  </source>
</hostdev>
`, managed, d.Address.Domain, d.Address.Bus, d.Address.Device, d.Address.Function)
	}
	title := "Below <devices> of the domain"
	if w.ready == nil {
		title += ", without Divvy's agent"
	}
	all := []Snippet{{title, b.String()}}
	if mib := w.windowMiB(); mib > 0 {
		all = append(all, Snippet{"In the domain, for the device's large regions", fmt.Sprintf(`<cpu mode='host-passthrough'>
  <maxphysaddr mode='passthrough'/>
</cpu>
<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <qemu:arg value='-fw_cfg'/>
  <qemu:arg value='name=opt/ovmf/X-PciMmio64Mb,string=%d'/>
</qemu:commandline>
`, mib)})
	}
	for _, d := range w.devices {
		if hides(d) {
			return append(all, Snippet{"In the domain, for drivers of GeForce cards before 465 alone", `<features>
  <hyperv><vendor_id state='on' value='none'/></hyperv>
  <kvm><hidden state='on'/></kvm>
</features>
`})
		}
	}
	return all
}

// hiding is what QEMU is told instead where the guest's driver is an old one.
func (w writer) hiding() []Snippet {
	if cpu, is := strings.CutPrefix(w.cpu(), "host,"); is && slices.ContainsFunc(w.devices, hides) {
		return []Snippet{{"Instead of that -cpu, for drivers of GeForce cards before 465 alone", "-cpu host," + cpu + ",kvm=off,hv-vendor-id=none\n"}}
	}
	return nil
}

// hides tells whether old drivers of a card do not start under a hypervisor.
func hides(d facts.Device) bool {
	return len(look{device: d}.hidden()) > 0
}

func (w writer) proxmox() Snippet {
	var b strings.Builder
	b.WriteString("qm set VMID --machine q35 --bios ovmf --cpu host\n")
	for i, d := range w.devices {
		address := d.Address.String()
		if whole := alongWith(w.host, d); !d.Virtual && len(look{host: w.host, device: d, ask: w.ask}.goesWith()) == len(whole) {
			address, _, _ = strings.Cut(address, ".") // all functions of the card
		}
		fmt.Fprintf(&b, "qm set VMID --hostpci%d %s,pcie=1\n", i, address)
	}
	return Snippet{"On the Proxmox host", b.String()}
}

func (w writer) openStack() []Snippet {
	var specs strings.Builder
	aliases := map[string]bool{}
	specs.WriteString("[pci]\n")
	for _, d := range w.given {
		fmt.Fprintf(&specs, "device_spec = {\"address\": \"%s\"}\n", d.Address)
	}
	for _, d := range w.devices {
		kind := "type-PCI"
		switch {
		case d.Virtual:
			kind = "type-VF"
		case d.VFsTotal > 0:
			kind = "type-PF"
		}
		alias := fmt.Sprintf("alias = {\"vendor_id\": \"%04x\", \"product_id\": \"%04x\", \"device_type\": \"%s\", \"name\": \"gpu\"}\n", d.Vendor, d.ID, kind)
		if !aliases[alias] {
			aliases[alias] = true
			specs.WriteString(alias)
		}
	}
	return []Snippet{
		{"In nova.conf; the alias also where the API runs", specs.String()},
		{"For the flavour", fmt.Sprintf("openstack flavor set FLAVOR --property pci_passthrough:alias=gpu:%d\n", len(w.devices))},
	}
}

func (w writer) xen() []Snippet {
	var add, list strings.Builder
	for i, d := range w.given {
		fmt.Fprintf(&add, "xl pci-assignable-add %s\n", d.Address)
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "'%s'", d.Address)
	}
	return []Snippet{{"In domain 0", add.String()}, {"In the guest's configuration", "pci = [ " + list.String() + " ]\n"}}
}

func (w writer) esxi() []Snippet {
	var b strings.Builder
	for _, d := range w.given {
		fmt.Fprintf(&b, "esxcli hardware pci pcipassthru set -d=%s -e=true\n", d.Address)
	}
	all := []Snippet{{"In the shell of ESXi", b.String()}}
	if mib := w.windowMiB(); mib > 0 {
		all = append(all, Snippet{"Settings of the virtual machine", fmt.Sprintf("pciPassthru.use64bitMMIO = \"TRUE\"\npciPassthru.64bitMMIOSizeGB = \"%d\"\n", mib>>10)})
	}
	return all
}
