package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// sample is what each process had truly used of the GPU up to a moment, in ns of CLOCK_MONOTONIC and of GPU time.
type sample struct {
	at  uint64
	own map[int]uint64
}

// oracle is the simulated driver's own record, read all the time.
type oracle struct {
	mutex   sync.Mutex
	samples []sample
	err     error
	stop    context.CancelFunc
	ended   chan struct{}
}

func watch(ctx context.Context, program, instance string) (*oracle, error) {
	ctx, stop := context.WithCancel(ctx)
	o := &oracle{stop: stop, ended: make(chan struct{})}
	go o.read(ctx, program, instance)
	return o, nil
}

func (o *oracle) read(ctx context.Context, program, instance string) {
	defer close(o.ended)
	for ctx.Err() == nil {
		before := monotonic()
		text, err := exec.CommandContext(ctx, program, "report", instance).Output()
		after := monotonic()
		if err != nil {
			o.fail(err)
			return
		}
		report, err := simgpu.ParseReport(text)
		if err != nil {
			o.fail(err)
			return
		}
		s := sample{at: (before + after) / 2, own: map[int]uint64{}}
		for _, p := range report.Processes {
			for _, g := range p.GPUs {
				s.own[p.PID] += g.GPUNs
			}
		}
		o.mutex.Lock()
		o.samples = append(o.samples, s)
		o.mutex.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func (o *oracle) fail(err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.err = err
}

func (o *oracle) close() {
	o.stop()
	<-o.ended
}

// used is the GPU time of some processes between two moments, in ns. It waits until the later one is recorded.
func (o *oracle) used(ctx context.Context, pids []int, from, to uint64) (float64, error) {
	for {
		o.mutex.Lock()
		samples, err := o.samples, o.err
		o.mutex.Unlock()
		if err != nil {
			return 0, fmt.Errorf("read the simulated driver's record: %w", err)
		}
		if len(samples) > 0 && samples[len(samples)-1].at >= to {
			return usedBy(samples, pids, to) - usedBy(samples, pids, from), nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-o.ended:
			return 0, errors.New("read the simulated driver's record: it ended")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// usedBy is what the processes had used up to a moment, taken to be linear between two samples.
func usedBy(samples []sample, pids []int, at uint64) float64 {
	next, found := slices.BinarySearchFunc(samples, at, func(s sample, at uint64) int {
		switch {
		case s.at < at:
			return -1
		case s.at > at:
			return 1
		}
		return 0
	})
	if next == len(samples) || next == 0 || found {
		return samples[min(next, len(samples)-1)].sum(pids)
	}
	earlier, later := samples[next-1], samples[next]
	part := float64(at-earlier.at) / float64(later.at-earlier.at)
	return earlier.sum(pids) + part*(later.sum(pids)-earlier.sum(pids))
}

func (s sample) sum(pids []int) float64 {
	total := 0.0
	for _, pid := range pids {
		total += float64(s.own[pid])
	}
	return total
}

// percent is the part of the GPU's time that the processes had between two moments.
func (b *bench) percent(pids []int, from, to uint64) (float64, error) {
	used, err := b.oracle.used(b.ctx, pids, from, to)
	return 100 * used / float64(to-from), err
}
