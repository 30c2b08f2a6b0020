package main

import "golang.org/x/sys/unix"

// monotonic is CLOCK_MONOTONIC in ns, the clock of gpubench and of the simulated driver's record.
func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock and the pointer are always valid
	}
	return uint64(now.Nano())
}
