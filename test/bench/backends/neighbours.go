package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	// faultCount is how many programs make a fatal fault under each form.
	faultCount = 200
	// laneCount is how many GPUs have faults at the same time. GPU 0 has none.
	laneCount = 7
	// outlived is how long after a fault a program must have worked to be unharmed.
	outlived = 300 * time.Millisecond
)

// neighbours counts the programs that fail because another share's kernel uses an unmapped address. Under MPS the clients
// of its server fail with it, and are told apart.
func (b bench) neighbours() (rows []measurement.Row, err error) {
	count := faultCount
	if b.runs == 1 {
		count = 2 * laneCount
	}
	for _, form := range []string{"slice", "timeslice", "mps"} {
		elsewhere, beside, err := b.neighboursOf(form, count)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", form, err)
		}
		row := measurement.Of("fault.neighbours", "programs", 0, measurement.Lower, command("fault.neighbours"), float64(elsewhere+beside))
		row.Case = fmt.Sprintf("%s, %d faults", form, count)
		if form == "mps" {
			row = measurement.Of("fault.neighbours", "programs", 0, measurement.Lower, command("fault.neighbours"), float64(elsewhere))
			row.Case = fmt.Sprintf("mps, %d faults, clients of other servers", count)
			row.Note = fmt.Sprintf("%d clients of the same servers failed", beside)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// neighboursOf makes faults on all GPUs but one. It returns how many programs failed on that one and on the others.
func (b bench) neighboursOf(form string, count int) (elsewhere, beside int, err error) {
	m, err := simulated.Open(b.ctx, b.build, "h100x8")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	far := lane{bench: b, machine: m, form: form}
	lanes := make([]lane, laneCount)
	defer func() {
		programs := []*simulated.Tenant{}
		for _, l := range append(lanes, far) {
			if l.neighbour != nil {
				programs = append(programs, l.neighbour)
			}
		}
		err = errors.Join(err, b.end(m, programs))
	}()
	if err := far.start(); err != nil {
		return 0, 0, err
	}
	var all sync.WaitGroup
	for i := range lanes {
		lanes[i] = lane{bench: b, machine: m, form: form, gpu: i + 1}
		all.Go(func() { lanes[i].play((count + i) / laneCount) })
	}
	all.Wait()
	if err := far.judge(); err != nil {
		return 0, 0, err
	}
	for _, l := range lanes {
		beside, err = beside+l.failed, errors.Join(err, l.err)
	}
	return far.failed, beside, err
}

// lane is a GPU with a program that works, in a share.
type lane struct {
	bench
	machine   *simulated.Machine
	form      string
	gpu       int
	neighbour *simulated.Tenant
	// failed counts the programs that worked and failed.
	failed int
	err    error
}

// share is how to run a program in a share of the lane's GPU.
func (l *lane) share() []string { return []string{"--backend", l.form, "--gpu", strconv.Itoa(l.gpu)} }

// start starts the program. Under MPS a server that was failed serves again after a while.
func (l *lane) start() error {
	var last error
	err := l.await("a program works", func() (bool, error) {
		t, err := l.machine.Start(l.share(), l.machine.Gpubench, "load", "--ns", "10000000", "--grid", "8", "--sync", "1", "--seconds", "3600")
		if err != nil {
			return false, err
		}
		_, _, last = t.Working(1)
		if works := last == nil; works {
			l.neighbour = t
			return true, nil
		}
		t.End()
		return false, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// play makes so many faults beside a program.
func (l *lane) play(count int) {
	for range count {
		if l.neighbour == nil {
			l.err = l.start()
		}
		if l.err == nil {
			l.err = l.fault()
		}
		if l.err == nil {
			l.err = l.judge()
		}
		if l.err != nil {
			l.err = fmt.Errorf("GPU %d: %w", l.gpu, l.err)
			return
		}
	}
}

// fault runs a program that makes a fatal fault in a share of its own.
func (l *lane) fault() error {
	run := append([]string{"run", "--simgpu", "h100x8", "--memory", "2Gi"}, l.share()...)
	out, err := exec.CommandContext(l.ctx, l.machine.Divvy, append(run, "--", l.machine.Gpubench, "fault")...).Output()
	if !strings.Contains(string(out), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		return fmt.Errorf("make a fatal fault: %w: %q", err, out)
	}
	return nil
}

// judge waits until the program has failed, and counts and ends it then, or until it has outlived this moment.
func (l *lane) judge() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	unharmed := uint64(now.Nano() + outlived.Nanoseconds())
	return l.await("a program fails or works on", func() (bool, error) {
		select {
		case <-l.neighbour.Ended():
			l.failed++
			l.neighbour.End()
			l.neighbour = nil
			return true, nil
		default:
		}
		lines := l.neighbour.All()
		return lines[len(lines)-1].At > unharmed, nil
	})
}
