package kube

import (
	"context"
	"maps"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// The label's configuration gives the forms of claims as soon as it is known; until then the agent does.
func TestFormsByLabel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := testPolicy(&chooser{}, fstest.MapFS{"c": {Data: []byte("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: [1]}]}}")}})
	c := &chosenForms{givers: &giver{given: v1alpha1.BackendTimeslice}, policy: p, ctx: ctx}
	given, changed := c.Given()
	if !maps.Equal(given, map[string]agentconfig.Form{formed: {Backend: "timeslice"}}) {
		t.Errorf("before a configuration is read GPUs are given %v", given)
	}
	if _, again := c.Given(); again != changed {
		t.Error("who asks twice waits for two channels")
	}
	p.follow(t.Context())
	<-changed
	if given, _ = c.Given(); !maps.Equal(given, map[string]agentconfig.Form{"A": {Backend: "slice"}, "B": {Backend: "mps", Replicas: 2}}) {
		t.Errorf("GPUs are given %v", given)
	}
}
