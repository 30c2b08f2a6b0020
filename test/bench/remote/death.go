package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	freedID = "remote.freed_ms"
	deathID = "remote.death_ms"
)

// deaths measures what follows when one of the two sides is killed.
func (b *bench) deaths() ([]measurement.Row, error) {
	var freed, told []float64
	for range b.times(25) {
		took, err := b.clientDies()
		if err != nil {
			return nil, err
		}
		freed = append(freed, took.Seconds()*1e3)
	}
	for range b.times(25) {
		took, err := b.workerDies()
		if err != nil {
			return nil, err
		}
		told = append(told, took.Seconds()*1e3)
	}
	f := row(freedID, "local", "ms", 30, measurement.Lower, freed)
	f.Note = "The program held 1 GiB, with one context."
	d := row(deathID, "local", "ms", 100, measurement.Lower, told)
	d.Note = "Until the program, whose call waited for a kernel, has been answered and has ended."
	return []measurement.Row{f, d}, nil
}

// clientDies kills a program that holds memory. The time goes on until the driver's record has none.
func (b *bench) clientDies() (time.Duration, error) {
	t, err := b.Start(remote, b.Gpubench, "hold", "--bytes", "1Gi")
	if err != nil {
		return 0, err
	}
	defer t.End()
	pids, _, err := t.Working(1)
	if err != nil {
		return 0, err
	}
	if err := b.until("memory is held", func(r *simgpu.Report) bool { return r.GPUs[0].Used >= 1<<30 }); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the program: %w", err)
	}
	err = b.until("its memory is free", func(r *simgpu.Report) bool { return r.GPUs[0].Used == 0 })
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	return took, b.Alone()
}

// workerDies kills the worker of a program that waits for a kernel of a minute.
func (b *bench) workerDies() (time.Duration, error) {
	before, err := b.record()
	if err != nil {
		return 0, err
	}
	t, err := b.Start(remote, b.Gpubench, "spin", "--ns", "60000000000")
	if err != nil {
		return 0, err
	}
	defer t.End()
	pid, err := b.worker()
	if err == nil {
		err = b.until("the kernel runs", func(r *simgpu.Report) bool { return r.GPUs[0].BusyNs > before.GPUs[0].BusyNs+20_000_000 })
	}
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the worker: %w", err)
	}
	select {
	case <-t.Ended():
	case <-b.Context().Done():
		return 0, b.Context().Err()
	case <-time.After(longest):
		return 0, fmt.Errorf("the program whose worker was killed is not answered in %s", longest)
	}
	took := time.Since(begin)
	if lines := t.All(); len(lines) != 1 || lines[0].Result != "CUDA_ERROR_DEVICE_UNAVAILABLE" {
		return 0, fmt.Errorf("the program whose worker was killed said %+v", lines)
	}
	return took, b.Alone()
}
