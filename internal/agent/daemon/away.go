package daemon

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// What the memory of shares needs to leave a GPU.
const (
	// leastSwapping is the compute capability, in tenths, from which a GPU can wait for memory that a kernel touches: that of
	// Pascal (CUDA programming guide, "Unified Memory").
	leastSwapping = 60
	// leastSuspending is the first CUDA version whose driver suspends processes (CUDA driver API, cuCheckpointProcessCheckpoint)
	// and leastSuspendingDriver that driver.
	leastSuspending       = 12080
	leastSuspendingDriver = 570
)

// letAway tells the ledger of what may leave GPUs, if the agent gives it host memory: which GPUs and drivers can do that.
func (s *service) letAway(ctx context.Context, c *agent.Config) {
	if c.SwapMemory == 0 || s.driverless {
		return
	}
	c.Unswappable = s.managedMemory(ctx).why
	c.Unsuspendable = func() string { return whyNotSuspended(runtime.GOARCH, s.library.Version()) }
}

// faulting are the UUIDs of the GPUs to which the driver brings memory that a kernel touches.
func (s *service) faulting(ctx context.Context) ([]string, error) {
	d, err := s.finder.Find()
	if err != nil {
		return nil, err
	}
	return s.finder.Faulting(ctx, s.options.Tree.Program("divvy-probe"), d)
}

// whyNotSwapped is why a GPU of a compute capability can have no swap shares, "" where it can.
func whyNotSwapped(capability, uuid string, faulting []string, err error) string {
	switch tenths := tenthsOf(capability); {
	case tenths > 0 && tenths < leastSwapping:
		return fmt.Sprintf("its compute capability is %s, and only GPUs from 6.0 (Pascal) on can wait for memory that a program touches", capability)
	case err != nil:
		return fmt.Sprintf("the driver does not tell whether it brings memory that a program touches: %v", err)
	case !slices.ContainsFunc(faulting, func(f string) bool { return strings.EqualFold(f, uuid) }):
		return "its driver does not bring memory that a program touches (it has no concurrent access to managed memory), as in virtual machines with vGPUs and in WSL"
	}
	return ""
}

// tenthsOf is a compute capability such as 8.0 in tenths, 0 for one that is not known.
func tenthsOf(capability string) int {
	major, minor, _ := strings.Cut(capability, ".")
	m, err := strconv.Atoi(major)
	n, errMinor := strconv.Atoi(minor)
	if err != nil || errMinor != nil {
		return 0
	}
	return m*10 + n
}

// whyNotSuspended is why no process of a machine can be suspended, "" where one can.
func whyNotSuspended(processor string, v nvml.Version) string {
	major, _, _ := strings.Cut(v.Driver, ".")
	release, err := strconv.Atoi(major)
	switch {
	case processor != "amd64":
		return fmt.Sprintf("NVIDIA's driver suspends processes on x86-64 alone, and this is %s", processor)
	case err == nil && release < leastSuspendingDriver, v.CUDA > 0 && v.CUDA < leastSuspending:
		return fmt.Sprintf("driver %s is older than 570 with CUDA 12.8, the first that suspends processes", v.Driver)
	}
	return ""
}
