package main

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const kitID = "kit.time_s"

// measureSuite takes the time of all that make test-vm runs, once its parts are built.
func measureSuite(ctx context.Context, verbose bool) ([]measurement.Row, error) {
	if said, err := command(ctx, verbose, nil, "make", "vm-parts"); err != nil {
		return nil, fmt.Errorf("build the guest's parts: %w\n%s", err, said)
	}
	begun := time.Now()
	// A variable of the make that started this one is handed on, and only an argument is before it.
	said, err := command(ctx, verbose, []string{"DIVVY_REQUIRE=vm"}, "make", "test-vm", "ONLY=")
	if err != nil {
		return nil, fmt.Errorf("run the guest's tests: %w\n%s", err, said)
	}
	row := measurement.Of(kitID, "s", 300, measurement.Lower, "make bench-vm ONLY="+kitID, time.Since(begun).Seconds())
	row.Note = "all of make test-vm, the tests' compilation included; QEMU without KVM"
	return []measurement.Row{row}, nil
}
