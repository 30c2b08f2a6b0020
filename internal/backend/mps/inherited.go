package mps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/mps"
)

// inheritedDir has the daemons of a user's own agent, beside the directory of its tenants.
const inheritedDir = "mps"

// InheritedPipe is where the daemon of a user's own agent serves a GPU. tenants is that agent's directory of tenants.
func (*Backend) InheritedPipe(tenants, uuid string) string {
	return mps.DirsOf(filepath.Join(filepath.Dir(tenants), inheritedDir), uuid).Pipe
}

// EndInherited ends the daemon that a user's own agent left with its servers, if it is still that user's: its agent is gone,
// and nobody else would. That there is none is no error. The kernel tells whose it is, so that a user leads nobody to a
// process of somebody else.
func (b *Backend) EndInherited(ctx context.Context, pipe string, uid int) error {
	if filepath.Dir(filepath.Dir(pipe)) == filepath.Clean(b.options.Dir) {
		return nil // root's own agent had the same place: it is this agent's daemon
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := mps.EndOf(ctx, pipe, uid); err != nil && !errors.Is(err, mps.ErrAbsent) {
		return fmt.Errorf("end the MPS control daemon of a user's own agent: %w", err)
	}
	return nil
}
