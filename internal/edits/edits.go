// Package edits is the one model of what is changed around a process so that
// it sees its shares: files bound over others, mounts and device nodes of a
// container, and environment variables. Backends plan edits; `divvy run`, CDI
// and NRI render them.
package edits

// ShareDir is where a container finds its share: the pages, our libraries and,
// under another name, the driver's.
const ShareDir = "/run/divvy/share"

// Edits change a process of this host (Binds, Env) or a container that is yet
// to be made (Mounts, Devices, Hooks, Env). Binds are made in order: one may
// hide the source of a later one, so the driver's originals are bound to their
// new places before ours cover them.
type Edits struct {
	Binds   []Bind   `json:"binds,omitempty"`
	Mounts  []Mount  `json:"mounts,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Hooks   []Hook   `json:"hooks,omitempty"`
	Env     []Env    `json:"env,omitempty"`
}

// Bind makes the file Source appear at Target, which exists. Both are absolute
// paths without symbolic links, as seen before any of the binds is made.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Mount makes the host's file or directory Source appear in a container at
// Target, which the runtime makes where the image has none. Targets with fewer
// parts are mounted first.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Options are those of mount(8) that the OCI runtime specification names.
	Options []string `json:"options"`
}

// The options of mounts.
var (
	ReadOnly  = []string{"ro", "nosuid", "nodev", "bind"}
	ReadWrite = []string{"rw", "nosuid", "nodev", "noexec", "bind"}
)

// Device is a character device that a container gets and may use.
type Device struct {
	// Path is in the container, Source on the host.
	Path   string `json:"path"`
	Source string `json:"source"`
	Major  uint32 `json:"major"`
	Minor  uint32 `json:"minor"`
}

// Hook is a program of the host's that the runtime runs in the container's
// mount namespace before the container's root becomes its root, for what only
// the image tells (createContainer of the OCI runtime specification). Args
// begin with the program's name.
type Hook struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
}

// Env sets an environment variable.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Prepend puts Value and a colon before what the variable holds already,
	// as for LD_LIBRARY_PATH. A container's variables are only ever set.
	Prepend bool `json:"prepend,omitempty"`
}
