package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	// room is of which the shares' parts are, MiB: what the GPU has, less what three shares keep there.
	room = 3840
	// kept is what each share keeps on the GPU, MiB.
	kept = 64
	// linkRate is that of the machine's link, bytes a second.
	linkRate = link * 1e9
	link     = 12
	// budget is the host memory for what is not on the GPU.
	budget = "16Gi"
	// longest bounds a wait for something that takes turns.
	longest = 2 * time.Minute
)

// bench runs programs in shares of a small simulated machine, whose agent allows swap.
type bench struct {
	options
	*simulated.Machine

	agent *simulated.Agent
}

// onMachine opens a machine, has something measured there, and closes it.
func onMachine(ctx context.Context, o options, hostMemory string, measure func(*bench) ([]measurement.Row, error)) (rows []measurement.Row, err error) {
	b := &bench{options: o}
	dir, err := os.MkdirTemp("", "divvy-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the machine's file: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := simulated.SwapMachine(dir, link)
	if err != nil {
		return nil, err
	}
	if b.Machine, err = simulated.Open(ctx, o.build, file); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if b.agent, err = b.StartAgent("--swap-memory", hostMemory); err != nil {
		return nil, err
	}
	defer func() {
		if said := b.agent.End(syscall.SIGTERM); err != nil {
			err = fmt.Errorf("%w; the agent: %s", err, said)
		}
	}()
	return measure(b)
}

// swapped are the flags of a swap share with so many MiB that can leave the GPU, ordinary those of one with as many that cannot.
func swapped(size int, flags ...string) []string {
	return slices.Concat([]string{"--swap", "--memory", fmt.Sprint(size+kept, "Mi"), "--kept", fmt.Sprint(kept, "Mi")}, flags)
}

func ordinary(size int, flags ...string) []string {
	return slices.Concat([]string{"--memory", fmt.Sprint(size+kept, "Mi")}, flags)
}

// percent is a part of the room, MiB.
func percent(n int) int { return room * n / 100 / 32 * 32 }

// sweeper is what a program does: it has so many MiB in 16 pieces, goes through them, and waits to be let begin.
func (b *bench) sweeper(size int, args ...string) []string {
	return slices.Concat([]string{b.Gpubench, "sweep", "--bytes", fmt.Sprint(size, "Mi"), "--pieces", "16", "--wait", "1"}, args)
}

// task is a program in a share.
type task struct {
	share, program []string
}

// ready starts programs, and returns when all wait to be let begin.
func (b *bench) ready(tasks ...task) (all []*simulated.Tenant, err error) {
	for _, task := range tasks {
		t, err := b.Start(task.share, task.program...)
		if err != nil {
			endAll(all)
			return nil, err
		}
		all = append(all, t)
		if err := t.Await("ready", longest); err != nil {
			endAll(all)
			return nil, err
		}
	}
	return all, nil
}

func endAll(tenants []*simulated.Tenant) {
	for _, t := range tenants {
		t.End()
	}
}

// together runs programs at once to their ends, and returns what each said and how long all took.
func (b *bench) together(tasks ...task) (said [][]simulated.Line, took time.Duration, err error) {
	all, err := b.ready(tasks...)
	if err != nil {
		return nil, 0, err
	}
	defer endAll(all)
	for _, t := range all {
		if err := t.Go(); err != nil {
			return nil, 0, err
		}
	}
	var first, last uint64
	for _, t := range all {
		lines, err := t.Wait(b.Context())
		if err != nil {
			return nil, 0, err
		}
		end := lines[len(lines)-1]
		if end.Changed != 0 || end.Command != "sweep" {
			return nil, 0, fmt.Errorf("a program lost bytes: %+v", end)
		}
		if first == 0 || end.Begin < first {
			first = end.Begin
		}
		last = max(last, end.End)
		said = append(said, lines)
	}
	return said, time.Duration(last - first), b.Alone()
}

// record is the simulated driver's own.
func (b *bench) record() (*simgpu.Report, error) {
	text, err := exec.Command(b.Simgpuctl, "report", b.Instance).Output()
	if err != nil {
		return nil, fmt.Errorf("read the simulated driver's record: %w", err)
	}
	return simgpu.ParseReport(text)
}

// moved are the bytes that came to the GPU and left it, of one process.
func (b *bench) moved(pid int) (in, out uint64, err error) {
	r, err := b.record()
	if err != nil {
		return 0, 0, err
	}
	for _, p := range r.Processes {
		if p.PID == pid && len(p.GPUs) == 1 {
			return p.GPUs[0].BytesIn, p.GPUs[0].BytesOut, nil
		}
	}
	return 0, 0, fmt.Errorf("read the simulated driver's record: %w of process %d", errNone, pid)
}
