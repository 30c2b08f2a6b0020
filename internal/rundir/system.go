package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// markFile is the mark of a system agent in its run directory. It outlives a crash, so
// that nobody else grants what the system agent has granted. It lies in memory like
// the shares and ends with the machine, as they do.
const markFile = "system-agent"

// What an administrator has for a system agent that outlives the machine's restart.
var (
	// configFile is the system agent's configuration.
	configFile = "/etc/divvy/agent.yaml"
	// units are the links by which systemd starts it.
	units = "/etc/systemd/system/*.wants/divvy-agent.service"
	// unitFolders are where systemd looks for its units.
	unitFolders = []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	// systemd exists while it is the machine's init.
	systemd = "/run/systemd/system"
)

// Mark is what a system agent tells everybody, also after its end.
type Mark struct {
	// Agent is its process.
	Agent process.ID `json:"agent"`
	// Tenants is the directory of its tenants' directories.
	Tenants string `json:"tenants"`
	// Simgpu is the directory of the simulated machine that it serves, empty for the
	// real one.
	Simgpu string `json:"simgpu,omitempty"`
	// MachinesOnly is true for one that gives devices to virtual machines and serves no shares.
	MachinesOnly bool `json:"machinesOnly,omitempty"`
	// SwapMemory is how much host memory its command line gave to swapped and suspended shares, in bytes.
	SwapMemory uint64 `json:"swapMemory,omitempty"`
	// Seen is when it last said that it lives; it does every [MarkInterval].
	Seen time.Time `json:"-"`
}

// MarkInterval is how often a system agent renews its mark.
const MarkInterval = 5 * time.Second

// unitName is the service that starts the system agent.
const unitName = "divvy-agent"

// HasUnit reports whether systemd has a unit for the machine's system agent.
func HasUnit() bool {
	if _, err := os.Stat(systemd); err != nil {
		return false
	}
	return slices.ContainsFunc(unitFolders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, unitName+".service"))
		return err == nil
	})
}

// Start is how root starts the machine's system agent, for a sentence: a command in backquotes and what belongs to it. Machine is the
// simulated machine that it is to serve, "" for what it is told elsewhere to serve.
func Start(machine string) string {
	switch unit := HasUnit(); {
	case unit && machine != "":
		return "`systemctl restart " + unitName + "` " + UnitFlags("--simgpu "+machine)
	case unit:
		return "`systemctl start " + unitName + "`"
	case machine != "":
		return "`divvy agent --simgpu " + machine + "`"
	}
	return "`divvy agent`"
}

// UnitFlags is where the unit's agent gets flags from, for a sentence that tells how it is started.
func UnitFlags(flags string) string {
	return fmt.Sprintf("with `DIVVY_AGENT_FLAGS=%q` in /etc/default/%s", flags, unitName)
}

// ForMachines says how the system agent is started where it serves virtual machines alone.
func ForMachines() string {
	if HasUnit() {
		return UnitFlags(MachinesFlag)
	}
	return "with " + MachinesFlag
}

// MachinesFlag is the flag of an agent that gives devices to virtual machines and serves no shares.
const MachinesFlag = "--vm-only"

// AsRoot is how an administrator starts it, for a reader who cannot.
func AsRoot() string {
	if HasUnit() {
		return Start("")
	}
	return Start("") + " as root"
}

// Configured is why a system agent is configured, and what the last one told.
type Configured struct {
	// By is the file that says so.
	By string
	// Mark is nil where no system agent has run since the machine started.
	Mark *Mark
	// Unit is true where systemd starts it.
	Unit bool
}

// ConfiguredSystem reports whether a system agent is configured whose run directory is
// dir: by its mark or, on the machine itself, by its configuration or its unit.
func ConfiguredSystem(dir string) (c Configured, ok bool) {
	path := filepath.Join(dir, markFile)
	c.Mark = readMark(path)
	if c.Mark != nil {
		c.By = path
	}
	if dir != System {
		return c, c.By != ""
	}
	if found, err := filepath.Glob(units); err == nil && len(found) > 0 {
		c.By = found[0]
	}
	if _, err := os.Stat(configFile); err == nil {
		c.By = configFile
	}
	c.Unit = HasUnit()
	return c, c.By != ""
}

// readMark returns nil for a file that is not there, is not root's, or is not the
// user's own where the run directory was moved.
func readMark(path string) *Mark {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	m := &Mark{Seen: info.ModTime()}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, m) != nil {
		// That it is there counts: what it says is for people.
		return &Mark{Seen: info.ModTime()}
	}
	return m
}

// WriteMark leaves a system agent's mark in its run directory.
func WriteMark(dir string, m Mark) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("mark system agent: %w", err)
	}
	path := filepath.Join(dir, markFile)
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mark system agent: %w", err)
	}
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("mark system agent: %w", err)
	}
	if err := os.Chmod(temporary, 0o644); err != nil { // whatever the umask
		return fmt.Errorf("mark system agent: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("mark system agent: %w", err)
	}
	return nil
}

// RenewMark says that the system agent lives.
func RenewMark(dir string, now time.Time) error {
	if err := os.Chtimes(filepath.Join(dir, markFile), now, now); err != nil {
		return fmt.Errorf("renew the system agent's mark: %w", err)
	}
	return nil
}

// RemoveMark takes a mark away. That there is none is no error.
func RemoveMark(dir string) error {
	if err := os.Remove(filepath.Join(dir, markFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the system agent's mark: %w", err)
	}
	return nil
}
