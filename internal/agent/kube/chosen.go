package kube

import (
	"context"
	"maps"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// givers are what says which forms the node's GPUs have: the agent, or a configuration that the node's label chooses.
func (k *node) givers(ctx context.Context) givers {
	if k.policy == nil {
		return k.Agent
	}
	return &chosenForms{givers: k.Agent, policy: k.policy, ctx: ctx}
}

// chosenForms gives GPUs the forms that a policy wants for them, and asks the agent while none is known.
type chosenForms struct {
	givers
	policy *policy
	ctx    context.Context //nolint:containedctx // it ends what waits for two channels

	mu        sync.Mutex
	of        [2]<-chan struct{}
	changed   <-chan struct{}
	forgotten context.CancelFunc
}

// Given implements [givers].
func (c *chosenForms) Given() (map[string]agentconfig.Form, <-chan struct{}) {
	given, one := c.givers.Given()
	wanted, other := c.policy.forms()
	if wanted != nil {
		given = maps.Clone(wanted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil || c.of != [2]<-chan struct{}{one, other} {
		if c.forgotten != nil {
			c.forgotten()
		}
		ctx, cancel := context.WithCancel(c.ctx)
		c.of, c.changed, c.forgotten = [2]<-chan struct{}{one, other}, either(ctx, one, other), cancel
	}
	return given, c.changed
}

// forms are those that the policy wants, by UUID: slice for a GPU without replicas. They are nil until a configuration
// was read.
func (p *policy) forms() (map[string]agentconfig.Form, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return nil, p.changed
	}
	wanted := map[string]agentconfig.Form{}
	for uuid, part := range p.wanted {
		wanted[uuid] = agentconfig.Form{Backend: part.backend, Replicas: part.replicas}
		if part.backend == "" {
			wanted[uuid] = agentconfig.Form{Backend: v1alpha1.BackendSlice}
		}
	}
	return wanted, p.changed
}
