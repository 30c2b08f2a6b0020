package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// order is what a server tells an attendant. The first one is empty, and a file comes with it that has a [Begin].
type order struct {
	Signal int `json:"signal,omitempty"`
}

// Begin is what an attendant runs.
type Begin struct {
	Directory wire.Directory `json:"directory"`
	// Args are the path of the program that becomes the command, and its arguments.
	Args wire.Exact `json:"args"`
	Env  wire.Exact `json:"env"`
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

// maxOrder bounds a message between server and attendant: a packet that every kernel takes.
const maxOrder = 64 << 10

// mostBegin bounds what an attendant is to run: it has come in one message, beside what this host adds.
const mostBegin = 2 * wire.MaxMessage

// tell says what to run. It goes in a file, because a command line and an environment may be longer than a packet, whose
// length the kernel bounds (net.core.wmem_max).
func (b *Begin) tell(to *line.Line) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write what to run: %w", err)
	}
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("write what to run: %w", err)
	}
	file := os.NewFile(uintptr(fd), "command")
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return fmt.Errorf("write what to run: %w", err)
	}
	return to.Say(order{}, file)
}

// hearBegin reads what to run.
func hearBegin(from *line.Line) (*Begin, error) {
	file, err := from.HearWith(&order{})
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, errors.New("attend a command: the server told none")
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, 0, mostBegin))
	if err != nil {
		return nil, fmt.Errorf("read what to run: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	b := &Begin{}
	if err := decoder.Decode(b); err != nil {
		return nil, fmt.Errorf("read what to run: %w", err)
	}
	return b, nil
}
