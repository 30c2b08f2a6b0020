package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// byHand is how a function comes back from vfio-pci without Divvy.
const byHand = "as root, once no virtual machine has it open, for each function: `echo ADDRESS > /sys/bus/pci/drivers/vfio-pci/unbind`, " +
	"`echo > /sys/bus/pci/devices/ADDRESS/driver_override`, `echo ADDRESS > /sys/bus/pci/drivers_probe`"

// deviceChecks tell of devices that the system agent gave to virtual machines, by its book in a directory: that it cannot be read,
// and which are left where no agent answers. Only root may read it. The machine's sysfs is below root.
func deviceChecks(dir, root string, served bool) []doctor.Check {
	book, err := vfio.Open(vfio.Config{Path: filepath.Join(dir, vfio.FileName)})
	switch {
	case errors.Is(err, checkpoint.ErrDamaged), errors.Is(err, checkpoint.ErrVersion):
		if os.Getuid() != 0 {
			return nil // another user's is told as damaged
		}
		return []doctor.Check{{
			ID: "vm.book", Name: "devices of virtual machines", Status: doctor.Warn,
			Found: "which devices virtual machines have is not known, so Divvy gives none and puts none back: " + err.Error(),
			Next: "start the agent with the version of Divvy that wrote the file; else end the virtual machines, put back what is on vfio-pci and was not before (" + byHand +
				"; `divvy vm preflight ADDRESS --for qemu` shows who has it), remove the file, and start the agent again. A restart of the host does all of this",
		}}
	case err != nil:
		return nil // another user's, whose agent tells
	}
	defer book.Close()
	var left []string
	for _, e := range book.Entries() {
		if !served {
			left = append(left, leftDevice(root, e))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []doctor.Check{{
		ID: "vm.left", Name: "devices of virtual machines", Status: doctor.Warn,
		Found: "no agent answers that puts back what one gave to virtual machines: " + strings.Join(left, "; "),
		Next:  "start the agent again, as root, and `divvy vm release` what is needed no more. Without Divvy, for what is on vfio-pci: " + byHand,
	}}
}

// ledgerChecks tell that an agent set the ledger of devices aside in a directory.
func ledgerChecks(dir string) []doctor.Check {
	aside, err := filepath.Glob(filepath.Join(dir, claims.FileName+".unreadable*"))
	if err != nil || len(aside) == 0 {
		return nil
	}
	return []doctor.Check{{
		ID: "vm.ledger", Name: "claims of virtual machines", Status: doctor.Warn,
		Found: "an agent could not read whose the devices of virtual machines are, and goes on without: " + strings.Join(aside, ", "),
		Next: "`divvy vm release` what `divvy vm ls` shows without its user, and claim it again; restart the host before a device goes to another user, " +
			"or a card with RDMA to a virtual machine. The line goes once the file is removed",
	}}
}

// limitedIn are the PCI functions on whose RDMA adapters containers had limits, by the system agent's ledger in a directory. Only root
// may read it.
func limitedIn(dir string) []pci.Address {
	ledger, err := claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName)})
	if err != nil {
		return nil // an agent tells
	}
	return ledger.Limited()
}

// leftDevice tells of an entry what became of its functions.
func leftDevice(root string, e vfio.Entry) string {
	claim := "claim " + text.Plain(e.Owner, 64) + ": "
	if e.Plan.Form == binding.FormVGPU && e.Plan.VGPU != nil {
		return fmt.Sprintf("%sa vGPU of type %s on %s", claim, text.Plain(e.Plan.VGPU.Type, 64), e.Plan.Device)
	}
	if e.Plan.Form == binding.FormFunctions {
		return fmt.Sprintf("the virtual functions of %s", e.Plan.Device)
	}
	var functions []string
	for _, s := range e.Plan.Steps {
		if s.Kind != binding.Probe {
			continue
		}
		now, err := os.Readlink(filepath.Join(root, "sys", binding.DeviceFolder(s.Device), "driver"))
		driver := "without a driver"
		if err == nil {
			driver = "on " + text.Plain(filepath.Base(now), 64)
		}
		before := "had no driver before"
		for _, first := range e.Plan.Steps {
			if first.Kind == binding.Unbind && first.Device == s.Device {
				before = "was on " + text.Plain(first.Before, 64) + " before"
			}
		}
		functions = append(functions, fmt.Sprintf("%s is %s and %s", s.Device, driver, before))
	}
	if len(functions) == 0 { // it was on vfio-pci before
		functions = []string{e.Plan.Device.String() + " is as it was"}
	}
	return claim + strings.Join(functions, ", ")
}
