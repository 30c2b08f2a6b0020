package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// driver checks the driver's libraries, its kernel module and its device nodes.
func (h Host) driver() []Check {
	switch {
	case h.Simgpu != "":
		return []Check{h.simulated()}
	case h.MachinesOnly:
		return []Check{{
			ID: "driver.libraries", Name: "driver libraries", Status: OK,
			Found: "not needed: the system agent serves virtual machines alone (" + rundir.MachinesFlag + "), and `divvy run` gets nothing here",
		}}
	}
	found, err := driver.Finder{Root: h.Root, LibraryPath: h.LibraryPath}.Find()
	libraries := Check{ID: "driver.libraries", Name: "driver libraries", Status: OK}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		libraries.Status, libraries.Found = Fail, "none: this machine has no NVIDIA driver"
		var missing *driver.MissingError
		if errors.As(err, &missing) && len(missing.Aside) > 0 {
			libraries.Found += "; " + driver.Told(missing.Aside)
		}
		libraries.Next = "install the driver, " + h.elsewhere() + "or use a simulated GPU: divvy run --simgpu a100-80g -- COMMAND"
		return []Check{libraries}
	case err != nil:
		libraries.Status, libraries.Found = Fail, err.Error()
		return []Check{libraries}
	}
	libraries.Found = strings.Join(used(found), ", ")
	checks := []Check{libraries}
	checks = append(checks, left(found)...)
	checks = append(checks, h.compat(found)...)
	checks = append(checks, h.unknown(found)...)
	checks = append(checks, h.module(), h.devices())
	return append(checks, h.unlimited()...)
}

// elsewhere is what to do without a GPU where other hosts let this user in, for a list of such things.
func (h Host) elsewhere() string {
	if len(h.Elsewhere) == 0 {
		return ""
	}
	return fmt.Sprintf("use a GPU of another host (`divvy run --remote %s -- COMMAND`, or --on in place of --remote for what needs the CUDA runtime), ", h.Elsewhere[0])
}

// used are the driver's files that programs are led to, the chosen ones first.
func used(found *driver.Driver) []string {
	var files []string
	for _, library := range driver.Libraries {
		files = append(files, found.Chosen[library])
	}
	for _, library := range driver.Libraries {
		for _, file := range found.Files[library] {
			aside := slices.ContainsFunc(found.Aside, func(f *driver.Fault) bool { return f.Path == file })
			if !aside && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// left tells which files with the libraries' names are not used, and why. Those of other processors
// are on many machines and not worth a word.
func left(found *driver.Driver) []Check {
	var told []*driver.Fault
	c := Check{ID: "driver.others", Name: "other libraries", Status: OK}
	for _, fault := range found.Aside {
		if fault.Usual() || fault.Compat() {
			continue
		}
		told = append(told, fault)
		if fault.Damaged() {
			c.Status, c.Next = Warn, "remove what is damaged: programs that are led to it cannot start"
		}
	}
	if len(told) == 0 {
		return nil
	}
	c.Found = "not used: " + driver.Told(told)
	return []Check{c}
}

// compat tells of forward-compatibility libraries to which programs are led before the driver's.
func (h Host) compat(found *driver.Driver) []Check {
	var asked, there []string
	for _, fault := range found.Aside {
		switch {
		case !fault.Compat():
		case fault.Asked:
			asked = append(asked, fault.Path)
		default:
			there = append(there, fault.Path)
		}
	}
	c := Check{ID: "driver.compat", Name: "forward compatibility", Status: OK}
	switch {
	case len(asked) > 0:
		c.Status, c.Found = Warn, "LD_LIBRARY_PATH leads to forward-compatibility libraries ("+strings.Join(asked, ", ")+"): shares have the driver's in their place, programs outside shares have these"
		c.Next = "take " + filepath.Dir(asked[0]) + " out of LD_LIBRARY_PATH"
	case len(there) > 0:
		c.Found = "libraries for hosts with an older driver are there and not used in shares: " + strings.Join(there, ", ")
	default:
		return nil
	}
	return []Check{c}
}

// fewNames are as many of a new driver's functions as are named.
const fewNames = 5

// unknown tells of the functions of a driver that is newer than this Divvy.
func (h Host) unknown(found *driver.Driver) []Check {
	var unknown []string
	for _, library := range driver.Libraries {
		drivers, err := driver.Names(found.Chosen[library])
		if err != nil {
			return []Check{{ID: "driver.functions", Name: "driver functions", Status: Fail, Found: err.Error()}}
		}
		ours, err := driver.Names(h.Tree.Library(string(library)))
		if err != nil {
			return nil // the installation's check tells
		}
		unknown = append(unknown, driver.Unknown(drivers, ours)...)
	}
	if len(unknown) == 0 {
		return nil
	}
	names := strings.Join(unknown[:min(len(unknown), fewNames)], ", ")
	if len(unknown) > fewNames {
		names += ", …"
	}
	return []Check{{ID: "driver.functions", Name: "driver functions", Status: OK, Found: fmt.Sprintf(
		"the driver is newer than this Divvy: %d of its functions go to it unchanged (%s). Memory that they take is in the agent's figures alone", len(unknown), names)}}
}

// simulated checks the simulated machine that stands in for this machine's GPUs.
func (h Host) simulated() Check {
	name := filepath.Base(h.Simgpu)
	c := Check{ID: "driver.libraries", Name: "driver libraries", Status: OK, Found: fmt.Sprintf("the system agent serves the simulated machine %s, %s", name, h.Simgpu)}
	if _, err := (driver.Finder{Root: h.Root, Instance: h.Simgpu}).Find(); err != nil {
		c.Status, c.Found = Fail, err.Error()
		c.Next = fmt.Sprintf("as root, start the agent again: `divvy agent --simgpu %s` makes the machine", name)
		if rundir.HasUnit() {
			c.Next = "as root, start the agent again: `systemctl restart divvy-agent` makes the machine"
		}
	}
	return c
}

// module checks that the kernel's module is loaded. That it is of the libraries' release, their search
// has checked.
func (h Host) module() Check {
	c := Check{ID: "driver.module", Name: "driver module", Status: OK}
	text, err := os.ReadFile(filepath.Join(h.Root, "/proc/driver/nvidia/version"))
	if err != nil {
		if h.Answers {
			c.Found = "no /proc/driver/nvidia/version; GPUs answer all the same"
			return c
		}
		c.Status, c.Found = Fail, "not loaded: no /proc/driver/nvidia/version"
		c.Next = "load it with `modprobe nvidia`; inside a container or WSL this file may be absent though GPUs work"
		return c
	}
	c.Found, _, _ = strings.Cut(string(text), "\n")
	return c
}

func (h Host) devices() Check {
	c := Check{ID: "driver.devices", Name: "devices", Status: OK}
	nodes, err := filepath.Glob(filepath.Join(h.Root, "/dev/nvidia[0-9]*"))
	if err != nil || len(nodes) == 0 {
		if h.Answers {
			c.Found = "no /dev/nvidia0; GPUs answer all the same"
			return c
		}
		c.Status, c.Found = Fail, "no /dev/nvidia0"
		c.Next = "run `nvidia-modprobe -u -c 0`; for a container, start it with its GPUs (--gpus all)"
		if other := strings.TrimSuffix(h.elsewhere(), ", "); other != "" {
			c.Next += "; without a GPU " + other
		}
		return c
	}
	nodes = append(nodes, filepath.Join(h.Root, "/dev/nvidiactl"), filepath.Join(h.Root, "/dev/nvidia-uvm"))
	var closed []string
	for _, node := range nodes {
		if unix.Access(node, unix.R_OK|unix.W_OK) != nil {
			closed = append(closed, node)
		}
	}
	c.Found = fmt.Sprintf("%d GPUs", len(nodes)-2)
	if len(closed) > 0 {
		c.Status, c.Found = Fail, "cannot be opened: "+strings.Join(closed, ", ")
		if h.Answers {
			c.Status = Warn // whether others serve, the variables' check says
		}
		c.Next = "give this user access to them (often the group video or render), or run `nvidia-modprobe -u`"
	}
	return c
}
