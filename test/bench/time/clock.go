package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// monotonic is CLOCK_MONOTONIC in ns, the clock of gpubench and of the simulated driver's record.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
