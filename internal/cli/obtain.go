package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// obtain asks for a share until it is granted or refused. An agent that hands over to
// the system agent grants nothing, and the system agent is asked then. If an agent ends
// before it answers, the next one is asked with the same ticket: who waited keeps their
// place, and what the first one may have granted ends. choose completes the request by
// what an agent says of the GPUs.
func (a *app) obtain(ctx context.Context, endpoint control.Endpoint, params control.CreateParams,
	choose func(*control.Client, *v1alpha1.ShareRequest) error,
) (*control.Client, *control.Created, error) {
	return a.obtainTold(ctx, endpoint, params, choose, func(q control.Queued) {
		a.tell(fmt.Sprintf("waiting, place %d of %d: %s", q.Place, q.Of, q.Reason))
	})
}

// obtainTold is obtain, and says to told what the request waits for.
func (a *app) obtainTold(ctx context.Context, endpoint control.Endpoint, params control.CreateParams,
	choose func(*control.Client, *v1alpha1.ShareRequest) error, told func(control.Queued),
) (*control.Client, *control.Created, error) {
	request := params.Request
	starter := control.Starter{Say: a.tell, Hidden: hidden}
	connect := control.Ensure
	if params.Layer == control.LayerContainer {
		connect = reachSystem
	}
	params.Ticket = rand.Text()
	waits := false
	for lost := 0; ; {
		client, err := connect(ctx, endpoint, starter)
		if err != nil {
			return nil, nil, err
		}
		params.Request = request
		var created *control.Created
		if err = choose(client, &params.Request); err == nil {
			created, err = client.Create(ctx, params, func(q control.Queued) {
				params.Ticket, params.Since, waits = q.Ticket, q.Since, true
				told(q)
			})
		}
		if err == nil {
			return client, created, nil
		}
		err = errors.Join(err, client.Close())
		switch {
		case control.CodeOf(err) == control.CodeMoved:
		case errors.Is(err, control.ErrGone) && waits:
			starter.AwayTime = -1 // who waits for room waits for the agent too
		case errors.Is(err, control.ErrGone) && lost < mostLost:
			lost++
			a.tell("the agent ended before it answered: asking the next one")
		default:
			return nil, nil, err
		}
		select {
		case <-time.After(againPause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// reachSystem connects as control.Ensure does, and starts no agent: one of a user's own ends with its last process.
func reachSystem(ctx context.Context, e control.Endpoint, s control.Starter) (*control.Client, error) {
	client, err := control.Find(ctx, e)
	var away *control.AwayError
	switch {
	case errors.As(err, &away):
		return control.Ensure(ctx, e, s)
	case errors.Is(err, control.ErrNoAgent):
		return nil, fmt.Errorf("no system agent runs, which this needs: start it as root (%s)", rundir.Start(""))
	}
	return client, err
}

// mostLost is how many agents may end before they answer who does not wait: an agent that
// each request ends helps nobody.
const mostLost = 16

// leaveSigns leaves the signs of a share: users' own agents see by them what is granted
// when its agent is gone for good.
func leaveSigns(agent control.Info, t *control.Tenant) error {
	kind := gpulock.Real
	if agent.Simgpu != "" {
		kind = gpulock.Simulated
	}
	var faults []error
	for _, s := range t.Shares {
		faults = append(faults, kind.Sign(s.UUID, t.ID))
	}
	return errors.Join(faults...)
}

// againPause leaves an agent that ends time to do so.
const againPause = 50 * time.Millisecond

// tell tells the user what a command waits for.
func (a *app) tell(text string) { program.Tell(a.err, "divvy", text) }
