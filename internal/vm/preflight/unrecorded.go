package preflight

// notRecorded is what is said of all that a recording of topology alone does not tell: neither that it is well nor that it is not.
const notRecorded = "unknown, not recorded"

// linuxAlone are the checks that say nothing where another system drives the devices.
var linuxAlone = map[ID]bool{"interrupts": true, "driver": true, "holder": true, "modules": true, "kvm": true, "memlock": true, "reset": true}

// unrecorded are the checks of the host in a recording that has the topology alone.
func (l look) unrecorded() []Finding {
	return append(l.untold("iommu", "interrupts", "modules", "kvm", "memlock"), one("unseen", Unknown, "the recording (divvy-host 1) has the topology of the machine alone",
		"record the machine anew, as root", "divvy topo --capture")...)
}

// unrecordedDevice are those of a device.
func (l look) unrecordedDevice() []Finding {
	all := l.untold("group", "driver", "holder", "display.boot", "vgpu.on", "sriov.on", "mig.instances", "bars", "reset", "companion")
	if len(l.switches()) > 0 {
		all = append(all, l.untold("nvswitch")...)
	}
	return all
}

func (l look) untold(ids ...ID) (found []Finding) {
	for _, id := range ids {
		if l.linux() || !linuxAlone[id] {
			found = append(found, one(id, Unknown, notRecorded, "", "")...)
		}
	}
	return found
}
