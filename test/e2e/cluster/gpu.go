package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// instance is what a node's simulated machine is called there.
const instance = "node"

// startMachine starts the node's simulated machine.
func (n *Machine) startMachine(ctx context.Context) error {
	if n.Machine == "" {
		return nil
	}
	args := append([]string{"simgpu", "start", n.Machine, "--name", instance}, n.MachineFlags...)
	if _, err := n.Exec(ctx, "divvy", args...); err != nil {
		return fmt.Errorf("start simulated machine: %w", err)
	}
	return nil
}

// SimgpuDir is the directory of the node's simulated machine, on the node.
func (n *Machine) SimgpuDir() string {
	return simgpu.NewStore(rundir.System, "").Root + "/" + instance
}

// Oracle is what truly happens on the node's GPUs, from the simulated driver's
// own tables.
func (n *Machine) Oracle(ctx context.Context) (*simgpu.Report, error) {
	if n.Machine == "" {
		return nil, errors.New("the node has no GPUs")
	}
	text, err := n.Exec(ctx, "divvy", "simgpu", "report", instance, "-o", "json")
	if err != nil {
		return nil, err
	}
	return simgpu.ParseReport([]byte(text))
}
