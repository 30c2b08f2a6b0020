package cli

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// The agent's exit status tells its unit whether another try could go better.
func TestExitAgent(t *testing.T) {
	_, unknown := simgpu.Load("nosuch")
	_, faulty := simgpu.Parse("lab.yaml", []byte("name: 3\n"))
	for _, c := range []struct {
		err  error
		up   time.Duration
		want int
	}{
		{errors.New("listen: address already in use"), time.Hour, 0},
		{fmt.Errorf("read the agent's configuration: %w", &agentconfig.Fault{Kind: agentconfig.ErrConfig}), 0, program.ExitConfig},
		{unknown, 0, program.ExitUsage},
		{faulty, 0, program.ExitUsage},
		{&driver.MissingError{}, time.Minute, 0},
		{&driver.MissingError{}, time.Hour, program.ExitUnavailable},
		{fmt.Errorf("find it: %w", driver.ErrUnusable), time.Hour, program.ExitUnavailable},
	} {
		if got := exitAgent(c.err, c.up); got != c.want {
			t.Errorf("%v, %s after the machine's start: status %d, want %d", c.err, c.up, got, c.want)
		}
	}
}
