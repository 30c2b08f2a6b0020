package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	mpsID = "k8s.prepare_ms"
	// The goals are in ms, with the GPU's daemon running and without.
	warmGoal, coldGoal = 300, 2000
	mpsCommand         = "make bench-k8s ONLY=" + mpsID
	// exclusive is the compute mode of a GPU in form mps: it is set before the daemon starts and put back after it ended.
	exclusive = "exclusive-process"
)

// formWait bounds how long a GPU may take to change its form.
const formWait = 2 * time.Minute

// mpsTemplates are claims for MPS: a share where MPS is the GPUs' form, and a whole GPU that has it for the claim's life.
const mpsTemplates = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mps}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: mps.divvy.dev, capacity: {requests: {memory: 1Gi, cores: "10"}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: whole-by-mps}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
      config:
        - requests: [gpu]
          opaque:
            driver: gpu.nvidia.com
            parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: {strategy: MPS, mpsConfig: {}}}
`

// mps tells how long claims for MPS take: first where each starts the daemon of its GPU, then where the daemons run.
func (b *bench) mps(ctx context.Context) ([]measurement.Row, error) {
	if err := b.install(ctx, "nvidiaClass=true"); err != nil {
		return nil, err
	}
	if err := b.cluster.ApplyText(ctx, mpsTemplates); err != nil {
		return nil, err
	}
	cold, err := b.timed(ctx, mpsTiming("cold", "the claim starts the GPU's daemon", b.plan.cold, coldGoal), b.coldPods)
	if err != nil {
		return nil, err
	}
	if err := b.install(ctx, "agent.backends.mps.gpus=all"); err != nil {
		return nil, err
	}
	if err := b.untilForm(ctx, "all GPUs have form mps", func(r *simgpu.Report) bool { return inMPS(r) == len(r.GPUs) }); err != nil {
		return nil, err
	}
	warm, err := b.timed(ctx, mpsTiming("warm", "the GPU's daemon runs", b.plan.warm, warmGoal), b.wavesOf("mps", "warm", 1, clients))
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("the GPU's daemon runs, waves of %d", b.plan.wave)
	waves, err := b.timed(ctx, mpsTiming("wave", text, b.plan.warm, warmGoal), b.wavesOf("mps", "wave", b.plan.wave, clients))
	return slices.Concat(cold, warm, waves), err
}

// install installs Divvy with other values and finds the new agent.
func (b *bench) install(ctx context.Context, values ...string) (err error) {
	b.say("install with %s", strings.Join(values, ", "))
	if err := b.cluster.Install(ctx, values...); err != nil {
		return err
	}
	b.agent, err = b.findAgent(ctx)
	return err
}

// coldPods has one pod after the other take a whole GPU by MPS. Each finds no GPU in that form, so no daemon runs.
func (b *bench) coldPods(ctx context.Context, count int) error {
	for i := range count {
		err := b.untilForm(ctx, "no GPU has form mps", func(r *simgpu.Report) bool { return inMPS(r) == 0 })
		if err != nil {
			return err
		}
		if err := b.start(ctx, "whole-by-mps", clients, fmt.Sprintf("cold-%03d", i)); err != nil {
			return err
		}
		if err := b.removePods(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wavesOf has pods take devices that are ready, so many at a time. They stay until all have theirs.
func (b *bench) wavesOf(template, kind string, wave int, users func(*simgpu.Report) int) func(context.Context, int) error {
	return func(ctx context.Context, count int) error {
		var names []string
		for i := range count {
			names = append(names, fmt.Sprintf("%s-%03d", kind, i))
		}
		for some := range slices.Chunk(names, wave) {
			if err := b.start(ctx, template, users, some...); err != nil {
				return err
			}
		}
		return b.removePods(ctx)
	}
}

// start starts pods that hold memory and waits until the simulated driver counts as many users more.
func (b *bench) start(ctx context.Context, template string, users func(*simgpu.Report) int, names ...string) error {
	b.say("start %s", strings.Join(names, ", "))
	before, err := b.cluster.Nodes[0].Oracle(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := b.create(ctx, pod(n, template, "", "gpubench", "hold", "--bytes=16Mi")); err != nil {
			return err
		}
	}
	for _, n := range names {
		if _, err := b.cluster.WaitRunning(ctx, namespace, n); err != nil {
			return err
		}
	}
	want := users(before) + len(names)
	return b.untilForm(ctx, "the simulated driver counts the pods", func(r *simgpu.Report) bool { return users(r) == want })
}

// inMPS counts the GPUs in form mps.
func inMPS(r *simgpu.Report) (count int) {
	for i := range r.GPUs {
		if r.GPUs[i].ComputeMode == exclusive {
			count++
		}
	}
	return count
}

// clients counts the clients of MPS servers.
func clients(r *simgpu.Report) (count int) {
	for i := range r.Processes {
		if p := &r.Processes[i]; p.MPSServer != 0 && p.MPSServer != p.PID {
			count++
		}
	}
	return count
}

// untilForm waits until the simulated driver tells what is wanted.
func (b *bench) untilForm(ctx context.Context, what string, holds func(*simgpu.Report) bool) error {
	ctx, cancel := context.WithTimeout(ctx, formWait)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		report, err := b.cluster.Nodes[0].Oracle(ctx)
		if err == nil && holds(report) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

// timing is a row: claims of pods whose names begin with kind.
type timing struct {
	id, command, kind, text string
	count                   int
	goal                    float64 // ms
}

func mpsTiming(kind, text string, count int, goal float64) timing {
	return timing{id: mpsID, command: mpsCommand, kind: kind, text: text, count: count, goal: goal}
}

// timed has pods started whose names begin so, and tells what the agent logged for them and what the kubelet waited.
func (b *bench) timed(ctx context.Context, t timing, pods func(context.Context, int) error) ([]measurement.Row, error) {
	before, err := b.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	if err := pods(ctx, t.count); err != nil {
		return nil, err
	}
	after, err := b.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	took, err := b.agentTimes(ctx, t.kind+"-", t.count)
	if err != nil {
		return nil, err
	}
	agent := measurement.Of(t.id, "ms", t.goal, measurement.Lower, t.command, quantile(took, 0.99))
	agent.Case, agent.Runs, agent.Worst = t.text+", agent's own time", len(took), slices.Max(took)
	agent.Note = fmt.Sprintf("99th percentile of the times that the agent logs for these claims, median %.0f ms", quantile(took, 0.5))
	waited, err := kubeletRow(before.until(after), t.count)
	waited.ID, waited.Case, waited.Goal, waited.Command = t.id, t.text+", kubelet's histogram", &t.goal, t.command
	return []measurement.Row{agent, waited}, err
}
