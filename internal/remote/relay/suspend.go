package relay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// suspended is for how long this machine has been suspended since it started.
var suspended = func() time.Duration {
	var boot, running unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &running) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - running.Nano())
}

// watchSuspension ends the share where this machine was suspended for longer than its host waits: that has ended it, and
// nothing comes to tell so.
func (r *Relay) watchSuspension(ctx context.Context) {
	ticker := time.NewTicker(wire.Beat)
	defer ticker.Stop()
	before := suspended()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := suspended()
		if slept := now - before; slept >= wire.Silence && r.taken() {
			r.finish(fmt.Sprintf("this machine was suspended for %v, and its host ended the share meanwhile", slept.Round(time.Second)))
		}
		before = now
	}
}

// taken reports whether there is a share.
func (r *Relay) taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share != nil
}
