package relay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Spec is what a relay is told, as one document, by the command line that starts it.
type Spec struct {
	// Hosts are names, as the user wrote them.
	Hosts []string  `json:"hosts"`
	Take  wire.Take `json:"take"`
	// WhenUsed takes the share when the first process uses a GPU, and gives it back after the last.
	WhenUsed bool `json:"whenUsed,omitempty"`
	// Dir is the folder of the share, and Socket where processes connect.
	Dir    string `json:"dir"`
	Socket string `json:"socket"`
	// Bundle is a file that proves to the one host who the client is, and Address where that is. The file is read for each
	// connection, because it may be renewed. Without it the user's own bundles are looked for.
	Bundle  string `json:"bundle,omitempty"`
	Address string `json:"address,omitempty"`
	// Everybody lets processes of every user connect: who reaches the socket may use the share.
	Everybody bool `json:"everybody,omitempty"`
	// Process is that of the command.
	Process process.ID `json:"process"`
}

// Answer is a line of what a relay says to the command line that started it. One field is set.
type Answer struct {
	// Tell is for people.
	Tell string `json:"tell,omitempty"`
	// Failed ends the relay.
	Failed string `json:"failed,omitempty"`
	// Ready says that processes can connect.
	Ready *Ready `json:"ready,omitempty"`
}

// Ready is what the command line needs to know of a share.
type Ready struct {
	// Host is empty where the share is taken later.
	Host string `json:"host,omitempty"`
	Name string `json:"name"`
	// GPUs is how many the command sees.
	GPUs int `json:"gpus"`
	// Lacks are the functions that the driver of a host which may serve has not.
	Lacks []string `json:"lacks,omitempty"`
}

// ReadSpec reads what a relay is told. What it does not know is an error.
func ReadSpec(r io.Reader) (Spec, error) {
	var s Spec
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("read what the relay is to do: %w", err)
	}
	return s, nil
}

// Listen reads what a relay says until it is ready or has failed. Its error has the relay's words.
func Listen(r io.Reader, tell func(string)) (*Ready, error) {
	d := json.NewDecoder(r)
	for {
		var a Answer
		switch err := d.Decode(&a); {
		case err != nil:
			return nil, fmt.Errorf("%w: it ended before the share was there", launch.ErrRelay)
		case a.Failed != "":
			return nil, &FailedError{a.Failed}
		case a.Ready != nil:
			return a.Ready, nil
		default:
			tell(strings.TrimSpace(a.Tell))
		}
	}
}

// FailedError is why a relay could not take a share, in words for people.
type FailedError struct{ Text string }

// Error implements error.
func (e *FailedError) Error() string { return e.Text }
