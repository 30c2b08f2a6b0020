package daemon

import (
	"cmp"

	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
)

// swapMemory is how much host memory swapped and suspended shares may have, in bytes.
func (s *service) swapMemory() uint64 { return cmp.Or(s.options.SwapMemory, s.rules.SwapMemory()) }

// rest has nobody keep the driver open for the next checkpoint.
func (s *service) rest() {
	if s.checkpoints != nil {
		s.checkpoints.Rest()
	}
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
