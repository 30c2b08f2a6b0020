package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const busyID = "time.yield_p99_ms.busy"

// busy takes what an offline tenant keeps of the GPU beside an online one while every core has a busy thread. Nothing
// gives way while its thread waits for a processor, so the goal follows how late a bare sleep ends meanwhile.
func busy(b *bench) ([]measurement.Row, error) {
	var all, late []float64
	for run := range b.runs() {
		kept, sleep, err := b.yieldBusy(fmt.Sprint(run + 7))
		if err != nil {
			return nil, err
		}
		fmt.Printf("  yield p50 %.2f p99 %.2f ms, %d bursts; a bare sleep ends p99 %.2f ms late\n",
			quantile(kept, 0.5), quantile(kept, 0.99), len(kept), quantile(sleep, 0.99))
		all, late = append(all, quantile(kept, 0.99)), append(late, quantile(sleep, 0.99))
	}
	sleep, _ := measurement.Summary(late, measurement.Lower)
	row := row(busyID, "one busy thread per core", "ms", max(2, sleep+1), measurement.Lower, all)
	row.Note = fmt.Sprintf("a bare sleep ended p99 %.2f ms late in the same runs: the goal is 2, or 1 more than that", sleep)
	return []measurement.Row{row}, nil
}

// yieldBusy returns what the offline tenant kept of each burst, and how late bare sleeps ended, in ms.
func (b *bench) yieldBusy(seed string) (kept, late []float64, err error) {
	offline, err := b.Start([]string{"--class", "offline"}, b.Gpubench, "load", "--ns", "200000")
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(b.Context())
	slept := make(chan []float64, 1)
	var threads []*exec.Cmd
	for range runtime.NumCPU() {
		thread := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err = thread.Start(); err != nil {
			break
		}
		threads = append(threads, thread)
	}
	go func() { slept <- lateness(ctx) }()
	var s service
	if err == nil {
		s, err = b.serve(seed, offline)
	}
	stop()
	late = <-slept
	for _, thread := range threads {
		_ = thread.Wait() // it was killed
	}
	offline.End()
	return s.yields, late, errors.Join(err, b.Alone())
}

// lateness is how late each of a thread's sleeps of a millisecond ended, in ms, until ctx is done.
func lateness(ctx context.Context) (all []float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	length := unix.NsecToTimespec(int64(time.Millisecond))
	for ctx.Err() == nil {
		begin := time.Now()
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &length, nil); err != nil {
			continue // a signal of the Go runtime's
		}
		all = append(all, float64(time.Since(begin)-time.Millisecond)/1e6)
	}
	return all
}
