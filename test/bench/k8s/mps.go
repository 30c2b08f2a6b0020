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
	cold, err := b.timed(ctx, "cold", b.plan.cold, coldGoal, b.coldPods)
	if err != nil {
		return nil, err
	}
	if err := b.install(ctx, "agent.backends.mps.gpus=all"); err != nil {
		return nil, err
	}
	if err := b.untilForm(ctx, "all GPUs have form mps", func(r *simgpu.Report) bool { return inMPS(r) == len(r.GPUs) }); err != nil {
		return nil, err
	}
	warm, err := b.timed(ctx, "warm", b.plan.warm, warmGoal, b.warmPods("warm", 1))
	if err != nil {
		return nil, err
	}
	waves, err := b.timed(ctx, "wave", b.plan.warm, warmGoal, b.warmPods("wave", b.plan.wave))
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
		if err := b.start(ctx, "whole-by-mps", fmt.Sprintf("cold-%03d", i)); err != nil {
			return err
		}
		if err := b.removePods(ctx); err != nil {
			return err
		}
	}
	return nil
}

// warmPods has pods take shares of GPUs whose daemons run, so many at a time. They stay until all have theirs.
func (b *bench) warmPods(kind string, wave int) func(context.Context, int) error {
	return func(ctx context.Context, count int) error {
		var names []string
		for i := range count {
			names = append(names, fmt.Sprintf("%s-%03d", kind, i))
		}
		for some := range slices.Chunk(names, wave) {
			if err := b.start(ctx, "mps", some...); err != nil {
				return err
			}
		}
		return b.removePods(ctx)
	}
}

// start starts pods that hold memory and waits until the simulated driver has each as a client of an MPS server.
func (b *bench) start(ctx context.Context, template string, names ...string) error {
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
	want := clients(before) + len(names)
	return b.untilForm(ctx, "the pods are clients of MPS", func(r *simgpu.Report) bool { return clients(r) == want })
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

// timed has pods started whose names begin so, and tells what the agent logged for them and what the kubelet waited.
func (b *bench) timed(ctx context.Context, kind string, count int, goal float64, pods func(context.Context, int) error) ([]measurement.Row, error) {
	before, err := b.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	if err := pods(ctx, count); err != nil {
		return nil, err
	}
	after, err := b.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	took, err := b.agentTimes(ctx, kind+"-", count)
	if err != nil {
		return nil, err
	}
	text := map[string]string{
		"cold": "the claim starts the GPU's daemon", "warm": "the GPU's daemon runs",
		"wave": fmt.Sprintf("the GPU's daemon runs, waves of %d", b.plan.wave),
	}[kind]
	agent := measurement.Of(mpsID, "ms", goal, measurement.Lower, mpsCommand, quantile(took, 0.99))
	agent.Case, agent.Runs, agent.Worst = text+", agent's own time", len(took), slices.Max(took)
	agent.Note = fmt.Sprintf("99th percentile of the times that the agent logs for claims for MPS, median %.0f ms", quantile(took, 0.5))
	waited, err := kubeletRow(before.until(after), count)
	waited.ID, waited.Case, waited.Goal, waited.Command = mpsID, text+", kubelet's histogram", &goal, mpsCommand
	return []measurement.Row{agent, waited}, err
}
