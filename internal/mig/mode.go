package mig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Switch turns the MIG mode of GPUs on and off.
type Switch interface {
	MIGMode(ctx context.Context, gpu string) (nvml.MIGMode, error)
	// SetMIGMode asks for a mode. Whether the GPU took it, MIGMode tells.
	SetMIGMode(ctx context.Context, gpu string, on bool) error
	// Users name who holds the GPU, such as "dcgm (pid 1234, root)". The agent's own processes have let go before.
	Users(ctx context.Context, gpu string) ([]string, error)
}

// SetMode changes a GPU's MIG mode at once, or leaves everything as it was. A GPU that has instances or users keeps its
// mode ([ErrUsed]). One that would change at its next reset only is given its old pending mode back ([ErrReset]):
// otherwise a reset for another reason would change it, and other tools refuse a GPU whose mode is pending.
//
// The error says why the GPU keeps its mode, without its name.
func SetMode(ctx context.Context, s Switch, gpu string, on bool, instances int) error {
	before, err := s.MIGMode(ctx, gpu)
	if err != nil {
		return err
	}
	if before.Current == on && before.Pending == on {
		return nil
	}
	if instances > 0 {
		return fmt.Errorf("%w: it has %d instances", ErrUsed, instances)
	}
	users, err := s.Users(ctx, gpu)
	if err != nil {
		return fmt.Errorf("find who holds it: %w", err)
	}
	if len(users) > 0 {
		return fmt.Errorf("%w by %s: end them first", ErrUsed, strings.Join(users, ", "))
	}
	asked := s.SetMIGMode(ctx, gpu, on)
	after, err := s.MIGMode(ctx, gpu)
	if err != nil {
		return errors.Join(asked, err)
	}
	if after.Current == on && after.Pending == on {
		return nil
	}
	if after != before {
		if err := s.SetMIGMode(ctx, gpu, before.Pending); err != nil {
			return errors.Join(asked, fmt.Errorf("take the pending mode back: %w", err))
		}
	}
	if asked != nil && !errors.Is(asked, nvml.ErrReset) {
		return asked
	}
	return fmt.Errorf("%w: run `nvidia-smi -i %s -mig %d` and `nvidia-smi -i %[2]s --gpu-reset` while nothing uses it", ErrReset, gpu, number(on))
}

func number(on bool) int {
	if on {
		return 1
	}
	return 0
}
