package simgpu

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SetSlice sets the time slice on all GPUs of the processes with that number or
// of that tenant directory, from their next turns on; 0 is the machine's own.
// It is what a real driver's SET_TIMESLICE does to a process's channels.
func (s Store) SetSlice(ctx context.Context, instance *Instance, whose string, slice time.Duration) error {
	if slice < 0 || slice > maxDuration || slice > 0 && slice < time.Microsecond {
		return fmt.Errorf("set time slice of %s: %v is neither 0 nor between %v and %v", whose, slice, time.Microsecond, maxDuration)
	}
	if err := instance.owned(); err != nil {
		return err
	}
	_, err := s.Control.run(ctx, nil, "slice", instance.Dir, whose, nanoseconds(slice))
	if err != nil {
		return fmt.Errorf("set time slice on %s: %w", instance.Name, err)
	}
	return nil
}

// MoveClock moves an instance's virtual clock on and returns its time.
func (s Store) MoveClock(ctx context.Context, instance *Instance, by time.Duration) (time.Duration, error) {
	if by < 0 {
		return 0, fmt.Errorf("move the clock of %s: %v: time does not run backwards", instance.Name, by)
	}
	if err := instance.owned(); err != nil && by > 0 {
		return 0, err
	}
	text, err := s.Control.run(ctx, nil, "clock", instance.Dir, "+"+nanoseconds(by))
	if err != nil {
		return 0, fmt.Errorf("move the clock of %s: %w", instance.Name, err)
	}
	now, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the clock of %s: %w", instance.Name, err)
	}
	return time.Duration(now), nil
}

func nanoseconds(d time.Duration) string {
	return strconv.FormatInt(d.Nanoseconds(), 10) + "ns"
}
