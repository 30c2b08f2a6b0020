package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// errUnopened marks a backend that gives nobody a GPU without a share.
var errUnopened = errors.New("GPUs are given by shares alone here")

// Open returns what a container needs to use GPUs, by UUID, without a share: to monitor them. The ledger does not know of
// it, so it takes nothing from anybody, and no limit holds there. GPUs that this machine has lost are left out, unless
// none is left.
func (a *Agent) Open(_ context.Context, uuids []string) (edits.Edits, error) {
	opener, ok := a.config.Backends.Of("").(backend.Opener)
	if !ok {
		return edits.Edits{}, errUnopened
	}
	var gpus []backend.GPU
	for _, uuid := range uuids {
		if gpu := a.gpu(uuid); gpu.Index >= 0 {
			gpus = append(gpus, gpu)
		}
	}
	if len(gpus) == 0 {
		return edits.Edits{}, &alloc.Refusal{Reason: alloc.ReasonUnknown, Text: fmt.Sprintf("no GPU of %s is on this machine", strings.Join(uuids, ", "))}
	}
	return opener.Open(gpus)
}

// NoteOpen is told which claims of the cluster have GPUs without a share, by UUID of the GPU, for listings.
func (a *Agent) NoteOpen(claims map[string][]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = maps.Clone(claims)
}
