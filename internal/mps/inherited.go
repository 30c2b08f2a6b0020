package mps

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/internal/process"
)

// EndOf kills the daemon that listens in a pipe directory with its servers, if it and they are that user's, and returns when
// they are gone. It is not asked to quit: a program of the caller's would read what another user wrote. [ErrAbsent] says
// that none listens, [ErrForeign] that it is somebody else's.
func EndOf(ctx context.Context, pipe string, uid int) error {
	pid, owner, err := listener(filepath.Join(pipe, controlSocket))
	if err != nil {
		return err
	}
	id, err := process.Find(pid)
	if err != nil {
		return fmt.Errorf("%w at %s: %w", ErrAbsent, pipe, err)
	}
	if owner != uid || process.Owner(pid) != uid {
		return fmt.Errorf("%w: process %d of user %s listens at %s", ErrForeign, pid, process.UserName(owner), pipe)
	}
	family := slices.DeleteFunc(process.Descendants(pid), func(p process.ID) bool { return process.Owner(p.PID) != uid })
	return killAll(ctx, append(family, id))
}
