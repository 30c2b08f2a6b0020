package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// forms are the figures of GPUs that change their form.
func (b bench) forms() []measurement.Figure {
	return []measurement.Figure{{IDs: "form.switch_s", Measure: b.switches}, {IDs: "form.crash", Measure: b.crashes}}
}

// form is a form of a GPU with the modes that the simulated driver has then.
type form struct {
	given     agentconfig.Form
	compute   string
	timeSlice string
}

// every form, and time slices of two lengths.
var every = []form{
	{agentconfig.Form{Backend: "slice"}, "default", "default"},
	{agentconfig.Form{Backend: "timeslice", Slice: "short"}, "default", "short"},
	{agentconfig.Form{Backend: "timeslice", Slice: "long"}, "default", "long"},
	{agentconfig.Form{Backend: "mps"}, "exclusive-process", "default"},
}

const (
	// switchCount is how many switches are measured; each of the 12 from one form to another comes 16 times or more.
	switchCount = 200
	// switchGoal is in seconds.
	switchGoal = 10
	// startTime bounds the start and the end of an agent.
	startTime = 30 * time.Second
)

// switches measures the time from the request for another form to its answer, on an idle GPU. The simulated driver's
// record says whether the GPU has the modes of the form.
func (b bench) switches() (rows []measurement.Row, err error) {
	if os.Getuid() != 0 {
		return nil, errors.New("change modes of GPUs: run it as root")
	}
	m, err := simulated.Open(b.ctx, b.build, "a100-80g")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	agent, client, err := serve(b.ctx, m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agent.end()) }()
	defer client.Close() //nolint:errcheck // it only asked
	count := switchCount
	if b.runs == 1 {
		count = len(every) * len(every)
	}
	times, err := b.play(client, m, count)
	if err != nil {
		return nil, err
	}
	if _, err := client.GiveForm(b.ctx, control.FormParams{GPU: "0"}, nil); err != nil {
		return nil, err
	}
	row := measurement.Of("form.switch_s", "s", switchGoal, measurement.Lower, command("form.switch_s"), percentile(times, 99))
	row.Case = fmt.Sprintf("any form to any other, p99 of %d", count)
	return []measurement.Row{row}, nil
}

// play goes through all ways from one form to another again and again, and returns how long each took, in seconds.
func (b bench) play(client *control.Client, m *simulated.Machine, count int) (times []float64, err error) {
	store := simgpu.NewStore(os.Getenv("DIVVY_RUNDIR"), install.Tree(b.build))
	var has form
	give := func(f form) error {
		if f == has {
			return nil
		}
		has = f
		begun := time.Now()
		if _, err := client.GiveForm(b.ctx, control.FormParams{GPU: "0", Form: f.given}, nil); err != nil {
			return fmt.Errorf("give form %+v: %w", f.given, err)
		}
		times = append(times, time.Since(begun).Seconds())
		return isMade(b.ctx, store, m.Instance, f)
	}
	for i := 0; len(times) < count; i++ {
		from, to := every[i%len(every)], every[(i+1+i/len(every)%(len(every)-1))%len(every)]
		for _, f := range []form{from, to} {
			if err := give(f); err != nil {
				return nil, err
			}
		}
	}
	return times[:count], nil
}

// isMade compares a GPU's modes, as the simulated driver records them, with those of a form.
func isMade(ctx context.Context, store simgpu.Store, instance string, f form) error {
	opened, err := store.Open(filepath.Base(instance))
	if err != nil {
		return err
	}
	report, err := store.Report(ctx, opened)
	if err != nil {
		return err
	}
	if gpu := report.GPUs[0]; gpu.ComputeMode != f.compute || gpu.TimeSlice != f.timeSlice {
		return fmt.Errorf("judge form %+v: the compute mode is %s and the time slice %s", f.given, gpu.ComputeMode, gpu.TimeSlice)
	}
	return nil
}

// percentile is the time that so many percent of some took at most.
func percentile(times []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// agent is a system agent of a simulated machine.
type agent struct{ command *exec.Cmd }

// serve starts the machine's system agent, and connects to it when it serves.
func serve(ctx context.Context, m *simulated.Machine) (a *agent, client *control.Client, err error) {
	a = &agent{exec.Command(m.Divvy, "agent", "--simgpu", filepath.Base(m.Instance))}
	a.command.Stdout, a.command.Stderr = io.Discard, io.Discard
	if err := a.command.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the agent: %w", err)
	}
	endpoint := control.Endpoint{Rundir: os.Getenv("DIVVY_RUNDIR")}
	for deadline := time.Now().Add(startTime); ; {
		if client, err = control.Find(ctx, endpoint); err == nil {
			return a, client, nil
		}
		if time.Now().After(deadline) {
			return nil, nil, errors.Join(fmt.Errorf("wait for the agent: %w", err), a.end())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, errors.Join(ctx.Err(), a.end())
		}
	}
}

// end stops the agent.
func (a *agent) end() error {
	if err := a.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the agent: %w", err)
	}
	late := time.AfterFunc(startTime, func() { _ = a.command.Process.Kill() })
	defer late.Stop()
	if err := a.command.Wait(); err != nil {
		return fmt.Errorf("end the agent: %w", err)
	}
	return nil
}
