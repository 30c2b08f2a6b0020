package daemon

import (
	"log/slog"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// An agent without host memory brings back what the one before has suspended, for which it asks the driver too.
func TestCheckpointsWithoutHostMemory(t *testing.T) {
	s := &service{options: Options{Log: slog.New(slog.DiscardHandler)}}
	if s.openCheckpoints(nil); s.checkpoints != nil {
		t.Error("checkpoints without a driver")
	}
	if s.openCheckpoints(&driver.Driver{}); s.checkpoints == nil {
		t.Error("no checkpoints with a driver and without host memory")
	}
}
