package kube

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func TestProductOf(t *testing.T) {
	if got := productOf(fstest.MapFS{"class/dmi/id/product_name": {Data: []byte("PowerEdge R750\n")}}); got != "PowerEdge R750" {
		t.Errorf("the machine is %q", got)
	}
	if got := productOf(fstest.MapFS{}); got != "" {
		t.Errorf("a machine without firmware is %q", got)
	}
}

// A simulated machine offers nothing to virtual machines, whatever the host that simulates it has at the addresses that its
// configuration names.
func TestMachinesOfASimulatedMachine(t *testing.T) {
	rules, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nbackends: {passthrough: [\"0000:3b:00.0\"]}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	k := &node{Node: daemon.Node{Agent: &agent.Agent{}, Rules: rules, Log: slog.New(slog.DiscardHandler)}}
	if m := k.machines(false, filepath.Join(t.TempDir(), "none")); m != nil {
		t.Errorf("it offers %+v", m.functions)
	}
	k.Facts = func() (*facts.Host, error) { return &facts.Host{}, nil }
	if m := k.machines(false, ""); m == nil {
		t.Error("a host with devices offers none")
	}
}
