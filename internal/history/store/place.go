package store

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/rundir"
)

// System is the folder of the history of the agent that serves every user. It outlives the machine's next start, which the
// run directory does not.
const System = "/var/lib/divvy/history"

// ownRoot is that of an agent which root has for itself.
const ownRoot = "/var/lib/divvy/own"

// Off is the variable by which a user has their own agent keep no history: its value is [OffValue].
const (
	Off      = "DIVVY_HISTORY"
	OffValue = "off"
)

// Place is the folder of the history of the agent with a run directory, "" where nobody can tell one. That of an agent for a
// simulated machine, and of one with a run directory of its own choice, is there.
func Place(dir string, simulated bool) string {
	state := os.Getenv("XDG_STATE_HOME")
	switch {
	case simulated || os.Getenv(rundir.Variable) != "":
		return filepath.Join(dir, "history")
	case dir == rundir.System:
		return System
	case os.Getuid() == 0:
		return ownRoot
	case filepath.IsAbs(state):
	case filepath.IsAbs(os.Getenv("HOME")):
		state = filepath.Join(os.Getenv("HOME"), ".local", "state")
	default:
		return ""
	}
	return filepath.Join(state, "divvy", "history", Node())
}

// Node is the machine's name. Machines may share a user's home.
func Node() string {
	name, err := os.Hostname()
	if err != nil || filepath.Base(name) != name {
		name = ""
	}
	return cmp.Or(name, "localhost")
}
