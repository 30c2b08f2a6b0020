package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// deviceChecks tell of devices that the system agent gave to virtual machines, by its book in a directory: that it cannot be read
// or is gone, and which are left where no agent answers. Only root may read it. The machine's sysfs is below root.
func deviceChecks(dir, root string, served bool) []doctor.Check {
	config := vfio.Config{Path: filepath.Join(dir, vfio.FileName), Machine: vfio.Host{Root: root, Wait: stuckTime}}
	book, err := vfio.Open(config)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged), errors.Is(err, checkpoint.ErrVersion):
		if os.Getuid() != 0 {
			return nil // another user's is told as damaged
		}
		return []doctor.Check{unreadableBook(config, root, err, "start the agent with the version of Divvy that wrote the file")}
	case err != nil:
		return nil // another user's, whose agent tells
	}
	defer book.Close()
	if gone := claims.Booked(config.Path, claimsIn(dir)); gone != nil {
		return []doctor.Check{unreadableBook(config, root, gone, "move the file back if somebody has it, while no agent runs, and start the agent again")}
	}
	if served {
		return nil
	}
	var left []string
	for _, e := range book.Entries() {
		left = append(left, leftDevice(root, e))
	}
	if len(left) == 0 {
		return nil
	}
	commands, kept := byHand(book, dir, claimsIn(dir))
	return []doctor.Check{{
		ID: "vm.left", Name: "devices of virtual machines", Status: doctor.Warn,
		Found: "no agent answers that puts back what one gave to virtual machines: " + strings.Join(left, "; ") + kept,
		Next: "start the agent again, as root, and `divvy vm release` what is needed no more. Without Divvy, while no agent runs and after the virtual machines have ended, " +
			"all of it comes back by these lines; of the claims a later agent then says that their device is gone, until they are released",
		Commands: commands,
	}}
}

// unreadableBook tells of a book that cannot be read, and how what is in it comes back: by what makes it readable, or else as far as other
// files tell of it.
func unreadableBook(c vfio.Config, root string, why error, first string) doctor.Check {
	dir := filepath.Dir(c.Path)
	all := claimsIn(dir)
	var given []vfio.Entry
	on := vfio.Given(root)
	for _, claim := range all {
		members := slices.DeleteFunc(slices.Clone(claim.Members), func(m pci.Address) bool { return !slices.Contains(on, m) })
		switch {
		case claim.Mediated != "":
			given = append(given, vfio.Entry{Owner: claim.Name, Plan: binding.UnbookedMediated(claim.Device, claim.Mediated, "")})
		case claim.Form != v1alpha1.BackendVGPU && len(members) > 0:
			given = append(given, vfio.Entry{Owner: claim.Name, Plan: binding.Unbooked(binding.Form(claim.Form), members)})
		}
		on = slices.DeleteFunc(on, claim.Has)
	}
	commands, _ := byHand(vfio.Unbooked(c, given), dir, all)
	check := doctor.Check{
		ID: "vm.book", Name: "devices of virtual machines", Status: doctor.Warn,
		Found: "which devices virtual machines have is not known, so Divvy gives none and puts none back: " + why.Error(),
		Next: first + ". Else end the virtual machines and run these lines, by which what Divvy can tell is its own comes back, " +
			"each function with the driver that takes it by itself and without an override; start the agent again, and `divvy vm release` each claim of which `divvy vm ls` then says that its device is gone. " +
			"A restart of the host does all of this",
		Commands: commands,
	}
	if len(on) > 0 {
		var names []string
		for _, at := range on {
			names = append(names, at.String())
		}
		check.Found += "; on vfio-pci, and of no claim: " + strings.Join(names, ", ")
		check.Next += ". What is of no claim may be another tool's, and no line touches it (`divvy vm preflight ADDRESS --for qemu` shows who has it). To put it back: " + anyByHand
	}
	return check
}

// anyByHand is how a function comes back from vfio-pci of which nothing is known.
const anyByHand = "`echo ADDRESS >/sys/bus/pci/drivers/vfio-pci/unbind`, `echo >/sys/bus/pci/devices/ADDRESS/driver_override`, `echo ADDRESS >/sys/bus/pci/drivers_probe`"

// byHand are the lines by which a book's devices come back without Divvy, and what they leave as somebody else made it. The nodes of
// claims are given back first: that of a virtual function is the next tenant's too.
func byHand(book *vfio.Book, dir string, all []claims.Claim) (lines []string, kept string) {
	for _, c := range all {
		for i, before := range c.Before[:min(len(c.Before), len(c.Nodes))] {
			lines = append(lines, nodeByHand(vfio.Quoted(c.Nodes[i]), c.UID, before))
		}
	}
	for _, e := range book.ByHand() {
		lines = append(lines, e.Commands...)
		for _, f := range e.Left {
			kept += "; " + text.Plain(f.String(), 256)
		}
	}
	for i := range lines {
		lines[i] += " &&"
	}
	return append(lines, vfio.Emptied(dir)), kept
}

// nodeByHand gives a node back that is still a user's, without the access list that they may have set. Where no program takes that away,
// nobody has the node by it or by its group: the bits of the group are the list's mask.
func nodeByHand(node string, uid int, before claims.Ownership) string {
	const group = 0o070
	listless, masked := ":", "chmod g= "+node
	if before.Mode != 0 {
		listless, masked = fmt.Sprintf("chmod %o %s", before.Mode, node), fmt.Sprintf("chmod %o %s", before.Mode&^group, node)
	}
	give := fmt.Sprintf("chown %d:%d %s && if setfacl -b %[3]s 2>/dev/null; then %s; else %s; fi", before.UID, before.GID, node, listless, masked)
	return fmt.Sprintf("if [ \"$(stat -c %%u %s 2>/dev/null)\" = %d ]; then %s; fi", node, uid, give)
}

// claimsIn are the claims of the system agent's ledger in a directory, none where it cannot be read.
func claimsIn(dir string) []claims.Claim {
	ledger, err := claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName)})
	if err != nil {
		return nil // an agent tells
	}
	all, _ := ledger.List()
	return all
}

// stuckTime is how long a file of a device may take to be read. Some cannot be read while the device is stuck.
const stuckTime = 250 * time.Millisecond

// ledgerChecks tell that an agent set the ledger of devices aside in a directory, or that it was removed.
func ledgerChecks(dir string) []doctor.Check {
	check := doctor.Check{
		ID: "vm.ledger", Name: "claims of virtual machines", Status: doctor.Warn,
		Next: "`divvy vm release` what `divvy vm ls` shows without its user, and claim it again; restart the host before a device goes to another user, " +
			"or a card with RDMA to a virtual machine",
	}
	if aside, err := filepath.Glob(filepath.Join(dir, claims.FileName+".unreadable*")); err == nil && len(aside) > 0 {
		check.Found = "an agent could not read whose the devices of virtual machines are, and goes on without: " + strings.Join(aside, ", ")
		check.Next += ". The line goes once the file is removed"
		return []doctor.Check{check}
	}
	if lost := unclaimed(dir); len(lost) > 0 {
		check.Found = "it is not known any more whose these devices are, as after " + filepath.Join(dir, claims.FileName) + " was removed: " + strings.Join(lost, ", ")
		return []doctor.Check{check}
	}
	return nil
}

// unclaimed are the devices that virtual machines have by the book in a directory and by no claim there. Only root may read them.
func unclaimed(dir string) (lost []string) {
	all := claimsIn(dir) // a claim is written down before its device, and crossed out after it
	book, err := vfio.Open(vfio.Config{Path: filepath.Join(dir, vfio.FileName)})
	if err != nil {
		return nil // another check tells
	}
	defer book.Close()
	all = append(all, claimsIn(dir)...)
	for _, e := range book.Entries() {
		known := slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Name == e.Owner })
		if !known && v1alpha1.Backend(e.Plan.Form).ForMachines() {
			lost = append(lost, fmt.Sprintf("%s (%s)", e.Plan.Device, text.Plain(e.Owner, 64)))
		}
	}
	return lost
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
