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

// openCheckpoints lets shares be taken off their GPUs where there is host memory for them. Nothing is started before
// somebody asks.
func (s *service) openCheckpoints(found *driver.Driver, hostMemory uint64) {
	if found == nil || hostMemory == 0 {
		return
	}
	program, library := s.options.Tree.Program("divvy-checkpoint"), s.finder.Loadable(found, driver.CUDA)
	s.checkpoints = checkpointer.New(checkpointer.Usual(helper.Start(program, library), s.options.Log))
	s.closers = append(s.closers, s.checkpoints.Close)
}
