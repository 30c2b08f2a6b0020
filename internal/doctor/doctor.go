// Package doctor checks what Divvy needs of a machine, and says what to do about
// each fault. It changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/launch"
)

// Status is the result of a check.
type Status string

// The outcomes.
const (
	OK Status = "ok"
	// Warn is a fault that `divvy run` can work with.
	Warn Status = "warn"
	// Fail is a fault that `divvy run` cannot work with.
	Fail Status = "fail"
)

// Check is one check and its result.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what was seen.
	Found string `json:"found"`
	// Next says what to do. It is empty where nothing needs to be done.
	Next string `json:"next,omitempty"`
}

// Host is the machine to check.
type Host struct {
	// Root is put before the paths of the kernel's and the system's files.
	Root string
	Tree install.Tree
	// Rundir is the user's run directory.
	Rundir string
	// LibraryPath is LD_LIBRARY_PATH, split.
	LibraryPath []string
	// Simgpu is the directory of the simulated machine that the system agent serves,
	// empty for the real one.
	Simgpu string
}

// Run makes every check of the machine, in the order in which `divvy run` needs
// what is checked.
func (h Host) Run(ctx context.Context) []Check {
	checks := []Check{h.installation()}
	checks = append(checks, h.driver()...)
	checks = append(checks, h.namespaces(ctx), h.sharedMemory())
	return append(checks, h.rundirs()...)
}

func (h Host) installation() Check {
	c := Check{Name: "installation", Status: OK, Found: string(h.Tree)}
	files := []string{h.Tree.Program("divvy-enter"), h.Tree.Program("divvy-reap"), h.Tree.Program("divvy-probe")}
	for _, library := range driver.Libraries {
		files = append(files, h.Tree.Library(string(library)))
	}
	var missing []string
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		c.Status, c.Found = Fail, "missing: "+strings.Join(missing, ", ")
		c.Next = fmt.Sprintf("run `make`, or set %s to where Divvy is installed", install.Variable)
	}
	return c
}

// driver checks the driver's libraries, its kernel module and its device nodes.
func (h Host) driver() []Check {
	if h.Simgpu != "" {
		return []Check{h.simulated()}
	}
	found, err := driver.Finder{Root: h.Root, LibraryPath: h.LibraryPath}.Find()
	libraries := Check{Name: "driver libraries", Status: OK}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		libraries.Status, libraries.Found = Warn, "none: this machine has no NVIDIA driver"
		libraries.Next = "install the driver, or use a simulated GPU: divvy run --simgpu a100-80g -- COMMAND"
		return []Check{libraries}
	case err != nil:
		libraries.Status, libraries.Found = Fail, err.Error()
		return []Check{libraries}
	}
	var files []string
	for _, library := range driver.Libraries {
		files = append(files, found.Files[library]...)
	}
	libraries.Found = strings.Join(files, ", ")
	return []Check{libraries, h.module(found.Chosen[driver.CUDA]), h.devices()}
}

// simulated checks the simulated machine that stands in for this machine's GPUs.
func (h Host) simulated() Check {
	name := filepath.Base(h.Simgpu)
	c := Check{Name: "driver libraries", Status: OK, Found: fmt.Sprintf("the system agent serves the simulated machine %s, %s", name, h.Simgpu)}
	if _, err := (driver.Finder{Root: h.Root, Instance: h.Simgpu}).Find(); err != nil {
		c.Status, c.Found = Fail, err.Error()
		c.Next = fmt.Sprintf("as root, start the agent again: `divvy agent --simgpu %s` makes the machine", name)
	}
	return c
}

// module compares the version of the kernel module with that of the library, which
// is part of the file's name: both must be of one release.
func (h Host) module(library string) Check {
	c := Check{Name: "driver module", Status: OK}
	text, err := os.ReadFile(filepath.Join(h.Root, "/proc/driver/nvidia/version"))
	if err != nil {
		c.Status, c.Found = Fail, "not loaded: no /proc/driver/nvidia/version"
		c.Next = "load it with `modprobe nvidia`; inside a container or WSL this file may be absent though GPUs work"
		return c
	}
	c.Found, _, _ = strings.Cut(string(text), "\n")
	_, version, versioned := strings.Cut(filepath.Base(library), ".so.")
	if versioned && version != "1" && !strings.Contains(string(text), version) {
		c.Status = Warn
		c.Next = fmt.Sprintf("the library is %s: reboot or reload the module after a driver update", version)
	}
	return c
}

func (h Host) devices() Check {
	c := Check{Name: "devices", Status: OK}
	nodes, err := filepath.Glob(filepath.Join(h.Root, "/dev/nvidia[0-9]*"))
	if err != nil || len(nodes) == 0 {
		c.Status, c.Found = Fail, "no /dev/nvidia0"
		c.Next = "run `nvidia-modprobe -u -c 0`; for a container, start it with its GPUs (--gpus all)"
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
		c.Next = "give this user access to them (often the group video or render), or run `nvidia-modprobe -u`"
	}
	return c
}

func (h Host) namespaces(ctx context.Context) Check {
	c := Check{Name: "namespaces", Status: OK, Found: "allowed"}
	if err := launch.Enter(h.Tree.Program("divvy-enter")).Probe(ctx); err != nil {
		c.Status, c.Found = Warn, err.Error()
		c.Next = h.namespaceAdvice()
	}
	return c
}

// namespaceAdvice finds the setting that forbids namespaces, among those that
// distributions use.
func (h Host) namespaceAdvice() string {
	value := func(name string) string {
		text, err := os.ReadFile(filepath.Join(h.Root, "/proc/sys", name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	switch {
	case value("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return fmt.Sprintf("as root, give %s an AppArmor profile that allows userns, or run `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
			h.Tree.Program("divvy-enter"))
	case value("kernel/unprivileged_userns_clone") == "0":
		return "as root, run `sysctl kernel.unprivileged_userns_clone=1`"
	case value("user/max_user_namespaces") == "0":
		return "as root, run `sysctl user.max_user_namespaces=10000`"
	}
	return "a container's seccomp profile may forbid unshare(2): allow it there, or use --layer env"
}
