package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// Plan is everything that is to be made for a tenant, as a value that can be
// printed and compared.
type Plan struct {
	// Dir is the directory in which the backend keeps what it makes for the tenant,
	// empty for a backend that keeps nothing in files.
	Dir   string      `json:"dir"`
	Steps []Step      `json:"steps"`
	Edits edits.Edits `json:"edits"`
	// Worker runs beside the tenant's command; nil where the command uses the GPU itself.
	Worker *edits.Worker `json:"worker,omitempty"`
}

// Step is one thing to make. Both methods may be called any number of times.
type Step interface {
	Apply() error
	Undo() error
}

// Apply carries out the steps of a plan in order and undoes them if one fails.
func (p *Plan) Apply(ctx context.Context) error {
	for _, step := range p.Steps {
		err := ctx.Err()
		if err == nil {
			err = step.Apply()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("prepare tenant: %w", err), p.Undo())
		}
	}
	return nil
}

// Undo undoes all steps, the last first, and goes on after an error.
func (p *Plan) Undo() error {
	var faults []error
	for i := len(p.Steps) - 1; i >= 0; i-- {
		if err := p.Steps[i].Undo(); err != nil {
			faults = append(faults, fmt.Errorf("undo: %w", err))
		}
	}
	return errors.Join(faults...)
}
