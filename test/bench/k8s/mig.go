package main

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	migID = "mig.prepare_ms"
	// migGoal is in ms, for an instance that is there.
	migGoal    = 300
	migCommand = "make bench-k8s ONLY=" + migID
)

// migLayout divides all GPUs of the node into as many instances as they can have.
const migLayout = "version: v1\nmig-configs: {all: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]}\n"

// migTemplate is a claim for one of these instances.
const migTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: instance}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: mig.divvy.dev, selectors: [{cel: {expression: "device.attributes['divvy.dev'].profile == '1g.10gb'"}}]}
`

// mig tells how long claims for instances of a fixed layout take, one at a time and in waves.
func (b *bench) mig(ctx context.Context) ([]measurement.Row, error) {
	if err := b.install(ctx, "mode=claims"); err != nil { // what an earlier part installed may give GPUs another form
		return nil, err
	}
	if err := b.untilForm(ctx, "no GPU has form mps", func(r *simgpu.Report) bool { return inMPS(r) == 0 }); err != nil {
		return nil, err
	}
	b.say("divide the GPUs")
	if text, err := b.cluster.Nodes[0].Exec(ctx, "sh", "-c", `printf '%s' "$1" | divvy gpu apply --simgpu node -f -`, "sh", migLayout); err != nil {
		return nil, fmt.Errorf("divide the GPUs: %w: %s", err, text)
	}
	if err := b.cluster.ApplyText(ctx, migTemplate); err != nil {
		return nil, err
	}
	var rows []measurement.Row
	for _, part := range []struct {
		kind, text string
		wave       int
	}{{"instance", "one at a time", 1}, {"instances", fmt.Sprintf("waves of %d", b.plan.wave), b.plan.wave}} {
		made, err := b.timed(ctx, timing{
			id: migID, command: migCommand, kind: part.kind, count: b.plan.warm, goal: migGoal,
			text: "the instance is there, " + part.text,
		}, b.wavesOf("instance", part.kind, part.wave, busy))
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

// busy counts the instances in which processes hold memory.
func busy(r *simgpu.Report) (count int) {
	for i := range r.GPUs {
		if r.GPUs[i].MIG == nil {
			continue
		}
		for k := range r.GPUs[i].MIG.Instances {
			if r.GPUs[i].MIG.Instances[k].Used >= 16<<20 {
				count++
			}
		}
	}
	return count
}
