// Package edits describes the changes that make a process see its shares: files
// bound over others, mounts and device nodes of a container, and environment
// variables. Backends plan edits; `divvy run`, CDI and NRI render them.
package edits

// ShareDir is the directory of a container's share: the pages, Divvy's libraries
// and, under other names, the driver's.
const ShareDir = "/run/divvy/share"

// ShareVariable has the name of the share in which a process is. It gives no right: `divvy show` reads it.
const ShareVariable = "DIVVY_SHARE"

// Edits change a process of this host (Binds, Env) or a container that will be
// made (Mounts, Devices, Hooks, Env). Binds are made in order. A bind may hide the
// source of a later one, so the driver's files are bound to their new names before
// Divvy's files cover them.
type Edits struct {
	Binds []Bind `json:"binds,omitempty"`
	// Contain has nothing that was left open for the process lead out of what Binds cover: descriptors of directories are those
	// of what their paths show, and those of what is hidden are closed.
	Contain bool     `json:"contain,omitempty"`
	Mounts  []Mount  `json:"mounts,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Hooks   []Hook   `json:"hooks,omitempty"`
	Env     []Env    `json:"env,omitempty"`
}

// Worker is the program that uses the GPU in the command's place, started before the command by whoever starts that. It
// ends with the command and what that started.
type Worker struct {
	Program string `json:"program"`
	// Socket is where the command's library finds it.
	Socket string `json:"socket"`
	// Edits are the program's own; those beside it are the command's.
	Edits Edits `json:"edits"`
}

// Bind makes the file or directory Source appear at Target, which must exist. Both are absolute
// paths without symbolic links, and name what they name after the binds before. Of a directory, what is mounted in it
// does not come along.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Tree brings along what is mounted in a directory, which is read-only then.
	Tree bool `json:"tree,omitempty"`
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

// Hook is a program of the host that the runtime runs in the container's mount
// namespace before it changes the root (createContainer in the OCI runtime
// specification). It does what depends on the image. Args begin with the program's
// name.
type Hook struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
	// Outside has it run in the runtime's own namespaces instead, when the container's are
	// made and before anything of it runs (createRuntime).
	Outside bool `json:"outside,omitempty"`
}

// Env sets an environment variable.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Prepend puts Value and a colon before the variable's present value, as for
	// LD_LIBRARY_PATH. In containers it has no effect: the variable is set.
	Prepend bool `json:"prepend,omitempty"`
}
