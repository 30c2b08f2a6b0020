// Package doctor checks what Divvy needs of a machine, and says what to do about
// each fault. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// Status is the result of a check.
type Status string

// The outcomes.
const (
	OK Status = "ok"
	// Warn is a fault that `divvy run` can work with.
	Warn Status = "warn"
	// Fail is a fault with which `divvy run` would not work for this user, or in a share its programs do not.
	Fail Status = "fail"
)

// Check is one check and its result.
type Check struct {
	ID     ID     `json:"id"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what was seen.
	Found string `json:"found"`
	// Next says what to do. It is empty where nothing needs to be done.
	Next string `json:"next,omitempty"`
	// Commands are those of which Next speaks, lines for a shell of root's in this order.
	Commands []string `json:"commands,omitempty"`
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
	// Answers is true where GPUs answer, to an agent or to who asks the driver. Files that are missing are no fault
	// then, as in containers and in WSL.
	Answers bool
	// MachinesOnly is true where the system agent gives devices to virtual machines and serves no shares, which needs no driver.
	MachinesOnly bool
	// Elsewhere are other hosts that let this user in.
	Elsewhere []string
	// Limited are the PCI functions on whose RDMA adapters containers have or had limits.
	Limited []pci.Address
	// SwapMemory is how much host memory an agent here may use for swapped and suspended shares, 0 where none may.
	SwapMemory uint64
	// Served is true where a system agent answers, so that this user needs no run directory of their own.
	Served bool
}

// Run makes every check of the machine, in the order in which `divvy run` needs
// what is checked.
func (h Host) Run(ctx context.Context) []Check {
	checks := []Check{h.installation()}
	checks = append(checks, h.driver()...)
	checks = append(checks, h.namespaces(ctx), h.sharedMemory())
	checks = append(checks, h.rundirs()...)
	checks = append(checks, h.foreignDaemons()...)
	checks = append(checks, h.preloaded(os.Getenv("LD_PRELOAD"))...)
	cdi, shares := h.cdiChecks()
	checks = append(append(checks, h.runtimeChecks(ctx, shares)...), cdi...)
	checks = append(append(checks, h.leftMounts()...), h.cgroupChecks())
	return append(append(checks, h.movers()...), h.nics()...)
}

func (h Host) installation() Check {
	c := Check{ID: "installation", Name: "installation", Status: OK, Found: string(h.Tree)}
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

func (h Host) namespaces(ctx context.Context) Check {
	c := Check{ID: "namespaces", Name: "namespaces", Status: OK, Found: "allowed"}
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
