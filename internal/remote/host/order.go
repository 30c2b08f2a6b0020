package host

import "github.com/divvy-gpu/divvy/internal/remote/wire"

// Spec is what a holder is to take.
type Spec struct {
	Take wire.Take `json:"take"`
	// Simgpu is the directory of the simulated machine, empty for the real one.
	Simgpu string `json:"simgpu,omitempty"`
	// Client and Address are who uses the share.
	Client  string `json:"client"`
	Address string `json:"address"`
}

// order is what a server says to a holder: first the spec, then what to dial.
type order struct {
	Spec *Spec `json:"spec,omitempty"`
	// Dial numbers a connection with a new worker, for the answer.
	Dial uint64 `json:"dial,omitempty"`
}

// answer is what a holder says. One field is set; a connection comes with Dialled, or Failed says why none does.
type answer struct {
	Queued  *wire.Queued  `json:"queued,omitempty"`
	Granted *wire.Granted `json:"granted,omitempty"`
	Refused *wire.Refused `json:"refused,omitempty"`
	Ended   *wire.Ended   `json:"ended,omitempty"`
	Dialled uint64        `json:"dialled,omitempty"`
	Failed  string        `json:"failed,omitempty"`
}

// maxOrder bounds a message between a server and a holder, in bytes.
const maxOrder = 128 << 10
