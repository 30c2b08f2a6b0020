package preflight

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// part is a vGPU, with the claim of Divvy's for which it was made, nil for somebody else's.
type part struct {
	text  string
	claim *Claim
}

// vgpus are the vGPUs on a device and its virtual functions.
func (l look) vgpus() (found []part) {
	add := func(text, uuid string, function pci.Address) {
		p := part{text: text}
		for i := range l.ask.Own.Claims {
			if c := &l.ask.Own.Claims[i]; c.makes(uuid, function) {
				p.claim = c
				p.text += " (claim " + c.Name + ")"
				break
			}
		}
		found = append(found, p)
	}
	for _, d := range append(l.host.VirtualOf(l.device.Address), l.device) {
		if d.VGPU == nil {
			continue
		}
		for _, uuid := range d.VGPU.Mdevs {
			add("mediated device "+uuid, uuid, d.Address)
		}
		if d.VGPU.Current != "" {
			add("type "+d.VGPU.Current+" on "+d.Address.String(), "", d.Address)
		}
	}
	return found
}

func (l look) vgpu() []Finding {
	found := l.vgpus()
	if v := l.device.Virtual; len(found) == 0 || v && (len(l.device.VGPU.Mdevs) == 0 || len(l.claimed()) > 0) {
		return nil // a function with a type is given as it is
	}
	var texts []string
	var ours *Claim
	others := 0
	for _, p := range found {
		if len(texts) < 5 {
			texts = append(texts, p.text)
		}
		switch {
		case p.claim == nil:
			others++
		case ours == nil:
			ours = p.claim
		}
	}
	instead := "; or give a vGPU instead of the whole GPU"
	if l.device.Virtual {
		instead = "; or have a vGPU made on another function of " + l.device.Parent.String()
	}
	remedy, command := "end their virtual machines, and have who made them clear them"+instead, "nvidia-smi vgpu -q"
	if ours != nil {
		remedy, command = ours.release()
		if others > 0 {
			remedy += "; Divvy did not make the others, so who did clears them"
		}
		remedy = "claim " + ours.Name + ": " + remedy + instead
	}
	return one("vgpu.on", Fail, "vGPUs are on "+l.device.Address.String()+": "+strings.Join(texts, ", "), remedy, command)
}

// virtual tells of virtual functions. No command takes them away while somebody has one.
func (l look) virtual() []Finding {
	if len(l.vgpus()) > 0 {
		return nil
	}
	for _, d := range l.along() {
		if d.VFs > 0 {
			remedy, command := l.without(d)
			return one("sriov.on", Fail, fmt.Sprintf("%s has %s, of %d at most", d.Address, facts.Counted(d.VFs, "virtual function", "virtual functions"), d.VFsTotal), remedy, command)
		}
	}
	return nil
}

// without says how a device's virtual functions go.
func (l look) without(d facts.Device) (remedy, command string) {
	const instead = "; or give one of them instead of the whole device"
	ours := false
	for _, at := range l.ask.Own.Functions {
		ours = ours || at == d.Address
	}
	for _, f := range l.host.VirtualOf(d.Address) {
		if c := l.owner(f.Address); c != nil {
			remedy, command = c.release()
			return fmt.Sprintf("claim %s has %s: %s, then take them away", c.Name, f.Address, remedy) + instead, command
		}
		if what := onIt(f); what != "" {
			return fmt.Sprintf("%s is in use (%s): end that, then take them away", f.Address, what) + instead, "lspci -k -s " + f.Address.String()
		}
	}
	if ours {
		return "Divvy enabled them: take them away" + instead, fmt.Sprintf("divvy vm functions %s --count 0", d.Address)
	}
	return "take them away" + instead, fmt.Sprintf("echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs", d.Address)
}

func (l look) instances() []Finding {
	for _, d := range l.along() {
		if d.Instances > 0 {
			return one("mig.instances", Fail, fmt.Sprintf("%s has %s", d.Address, facts.Counted(d.Instances, "MIG instance", "MIG instances")), "take them away: they do not outlive the reset", "divvy gpu ls")
		}
	}
	return nil
}
