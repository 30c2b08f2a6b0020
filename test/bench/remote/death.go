package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	freedID = "remote.freed_ms"
	deathID = "remote.death_ms"
)

// deaths measures what follows when one of the sides is killed, or its host vanishes.
func (b *bench) deaths() (rows []measurement.Row, err error) {
	h, err := b.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, c := range []struct {
		name, worker string
		away         []string
		freed        float64
	}{{"local", "local", remote, 30}, {"TLS", "TLS, the worker", tls(near), 60}} {
		freed, err := b.often(25, func() (time.Duration, error) { return b.clientDies(c.away) })
		if err != nil {
			return nil, err
		}
		told, err := b.often(25, func() (time.Duration, error) { return b.workerDies(c.away) })
		if err != nil {
			return nil, err
		}
		f := row(freedID, c.name, "ms", c.freed, measurement.Lower, freed)
		f.Note = "The program held 1 GiB, with one context."
		d := row(deathID, c.worker, "ms", 100, measurement.Lower, told)
		d.Note = "Until the program, whose call waited for a kernel, has been answered and has ended."
		rows = append(rows, f, d)
	}
	told, err := b.often(10, h.dies)
	if err != nil {
		return nil, err
	}
	d := row(deathID, "TLS, the server", "ms", 100, measurement.Lower, told)
	d.Note = "Until the program, whose call waited for a kernel, has been answered and has ended."
	vanished, err := h.vanishes()
	return append(append(rows, d), vanished...), err
}

// often measures several times, in ms.
func (b *bench) often(count int, measure func() (time.Duration, error)) (ms []float64, err error) {
	for range b.times(count) {
		took, err := measure()
		if err != nil {
			return nil, err
		}
		ms = append(ms, took.Seconds()*1e3)
	}
	return ms, nil
}

// clientDies kills a program that holds memory. The time goes on until the driver's record has none.
func (b *bench) clientDies(away []string) (time.Duration, error) {
	t, err := b.begin(away, b.Gpubench, "hold", "--bytes", "1Gi")
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

// blocked starts a program that waits for a kernel of a minute.
func (b *bench) blocked(away []string) (t *simulated.Tenant, worker int, err error) {
	before, err := b.record()
	if err != nil {
		return nil, 0, err
	}
	if t, err = b.begin(away, b.Gpubench, "spin", "--ns", "60000000000"); err != nil {
		return nil, 0, err
	}
	worker, err = b.worker()
	if err == nil {
		err = b.until("the kernel runs", func(r *simgpu.Report) bool { return r.GPUs[0].BusyNs > before.GPUs[0].BusyNs+20_000_000 })
	}
	if err != nil {
		t.End()
	}
	return t, worker, err
}

// answered waits until a program that was blocked has heard of a death and ended, and returns how long that took.
func (b *bench) answered(t *simulated.Tenant, begin time.Time) (time.Duration, error) {
	select {
	case <-t.Ended():
	case <-b.Context().Done():
		return 0, b.Context().Err()
	case <-time.After(longest):
		return 0, fmt.Errorf("the program that waits is not answered in %s", longest)
	}
	took := time.Since(begin)
	if lines := t.All(); len(lines) != 1 || lines[0].Result != "CUDA_ERROR_DEVICE_UNAVAILABLE" {
		return 0, fmt.Errorf("the program that waited said %+v", lines)
	}
	return took, nil
}

// workerDies kills the worker of a program that waits.
func (b *bench) workerDies(away []string) (time.Duration, error) {
	t, worker, err := b.blocked(away)
	if err != nil {
		return 0, err
	}
	defer t.End()
	begin := time.Now()
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the worker: %w", err)
	}
	took, err := b.answered(t, begin)
	return took, errors.Join(err, b.Alone())
}

// dies kills the server of a program that waits, and starts another one.
func (h *host) dies() (time.Duration, error) {
	t, _, err := h.blocked(tls(near))
	if err != nil {
		return 0, err
	}
	defer t.End()
	begin := time.Now()
	h.stop(syscall.SIGKILL)
	took, err := h.answered(t, begin)
	return took, errors.Join(err, h.Alone(), h.start())
}

// vanishes has nothing pass any more between a program that waits and the host of the GPU. Each is the host that vanished for the
// other one.
func (h *host) vanishes() ([]measurement.Row, error) {
	var freed, told []float64
	for range h.times(5) {
		gone, heard, err := h.vanish()
		if err != nil {
			return nil, err
		}
		freed, told = append(freed, gone.Seconds()*1e3), append(told, heard.Seconds()*1e3)
	}
	const note = "A relay between the two stops passing bytes on and leaves the connections open."
	f := row(freedID, "TLS, the client's host vanished", "ms", 12_000, measurement.Lower, freed)
	d := row(deathID, "TLS, the server's host vanished", "ms", 12_000, measurement.Lower, told)
	f.Note, d.Note = note, note
	return []measurement.Row{f, d}, nil
}

func (h *host) vanish() (freed, heard time.Duration, err error) {
	longer, err := h.lengthen()
	if err != nil {
		return 0, 0, err
	}
	defer longer.close()
	t, _, err := h.blocked(tls(far))
	if err != nil {
		return 0, 0, err
	}
	defer t.End()
	begin := time.Now()
	longer.vanish()
	told := make(chan error, 1)
	go func() {
		var err error
		heard, err = h.answered(t, begin)
		told <- err
	}()
	err = h.until("the memory is free", func(r *simgpu.Report) bool { return r.GPUs[0].Used == 0 })
	freed = time.Since(begin)
	return freed, heard, errors.Join(err, <-told, h.Alone())
}
