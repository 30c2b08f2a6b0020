package kube

import (
	"cmp"
	"context"
	"maps"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// givers are what says which forms the node's GPUs have: the agent, or a configuration that the node's label chooses.
func (k *node) givers(ctx context.Context) givers {
	var from givers = k.Agent
	if k.policy != nil {
		from = &chosenForms{givers: k.Agent, policy: k.policy, ctx: ctx}
	}
	if m := k.publisher.machines; m != nil {
		from = machineForms{from, m.lendings}
	}
	return from
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
		given = chosenOver(given, wanted)
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

// chosenOver are the forms that a policy wants, but for GPUs in MIG mode, whose form is theirs.
func chosenOver(given, wanted map[string]agentconfig.Form) map[string]agentconfig.Form {
	wanted = maps.Clone(wanted)
	for uuid, form := range given {
		if form.Backend == v1alpha1.BackendMIG {
			wanted[uuid] = form
		}
	}
	return wanted
}

// forms are those that the policy wants for GPUs that are not in MIG mode, by UUID: slice for one without replicas. They
// are nil until a configuration was read.
func (p *policy) forms() (map[string]agentconfig.Form, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return nil, p.changed
	}
	wanted := map[string]agentconfig.Form{}
	for uuid, one := range p.wanted {
		if one.Instance != "" {
			continue
		}
		wanted[uuid] = agentconfig.Form{Backend: cmp.Or(one.Backend, v1alpha1.BackendSlice), Replicas: one.Of}
	}
	return wanted, p.changed
}
