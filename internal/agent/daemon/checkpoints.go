package daemon

import (
	"cmp"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
)

// swapMemory is how much host memory swapped and suspended shares may have, in bytes.
func (s *service) swapMemory() uint64 { return cmp.Or(s.options.SwapMemory, s.rules.SwapMemory()) }

// rest has nothing of the agent's but the helpers of NVML have the driver open until release is called. A GPU that keeps its
// mode on account of that is in use, and who waits for it tries again.
func (s *service) rest() (release func(), err error) {
	if s.checkpoints == nil {
		return func() {}, nil
	}
	if release, err = s.checkpoints.Hold(); err != nil {
		return nil, fmt.Errorf("%w: %w", mig.ErrUsed, err)
	}
	return release, nil
}

// openCheckpoints lets shares be taken off their GPUs and brought back. An agent that gives no host memory may still find
// some that the one before has suspended. Nothing is started before somebody asks.
func (s *service) openCheckpoints(found *driver.Driver) {
	if found == nil {
		return
	}
	program, library := s.options.Tree.Program("divvy-checkpoint"), s.finder.Loadable(found, driver.CUDA)
	s.checkpoints = checkpointer.New(checkpointer.Usual(helper.Start(program, library), s.options.Log))
	s.closers = append(s.closers, s.checkpoints.Close)
}
