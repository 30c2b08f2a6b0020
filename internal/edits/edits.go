// Package edits is the one model of what is changed around a process so that
// it sees its shares: files bound over others, and environment variables.
// Backends plan edits; `divvy run`, CDI and NRI render them.
package edits

// Edits are applied in order: a bind may hide the source of a later one, so
// the driver's originals are bound to their new places before ours cover them.
type Edits struct {
	Binds []Bind `json:"binds,omitempty"`
	Env   []Env  `json:"env,omitempty"`
}

// Bind makes the file Source appear at Target, which exists. Both are absolute
// paths without symbolic links, as seen before any of the binds is made.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Env sets an environment variable.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Prepend puts Value and a colon before what the variable holds already,
	// as for LD_LIBRARY_PATH.
	Prepend bool `json:"prepend,omitempty"`
}
