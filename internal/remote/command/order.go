package command

import "github.com/divvy-gpu/divvy/internal/remote/wire"

// order is what a server tells an attendant. The first one has Begin; of the others one field is set.
type order struct {
	Begin  *Begin `json:"begin,omitempty"`
	Signal int    `json:"signal,omitempty"`
}

// Begin is what an attendant runs.
type Begin struct {
	Directory wire.Directory `json:"directory"`
	// Args are the path of the program that becomes the command, and its arguments.
	Args []string `json:"args"`
	Env  []string `json:"env"`
	// Terminals are the streams that are one terminal. The others are the attendant's own.
	Terminals []int       `json:"terminals,omitempty"`
	Window    wire.Window `json:"window"`
}

// report is what an attendant tells. One field is set.
type report struct {
	Refused *wire.Refused `json:"refused,omitempty"`
	// Started comes with the terminal, where there is one.
	Started bool          `json:"started,omitempty"`
	Stopped *wire.Stopped `json:"stopped,omitempty"`
	Exited  *wire.Exited  `json:"exited,omitempty"`
}

// maxOrder bounds a message between server and attendant: a command line and an environment have a frame at most.
const maxOrder = wire.MaxMessage + 4096
