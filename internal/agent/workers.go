package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/workeruser"
)

// Workers runs the workers of tenants whose programs are kept away from the driver.
type Workers interface {
	// Take chooses a user that is nobody's, and none of held.
	Take(held map[int]bool) (uid int, err error)
	// Start starts a worker and returns its life when programs can connect to it.
	Start(ctx context.Context, w Worker) (life *os.File, err error)
	// End kills all processes of a worker's user, and returns when there are none.
	End(ctx context.Context, uid int) error
}

// Worker is one that is to be started.
type Worker struct {
	Tenant backend.Tenant
	Plan   *edits.Worker
	// Asker is the process that asked for the tenant, zero where it is not known.
	Asker process.ID
	// Environment is what that has of the variables that a worker takes.
	Environment []string
}

// chooseWorker gives a tenant a user for its worker, where it has a worker and the agent runs that. A user is nobody else's as
// long as a tenant in the ledger has it.
func (a *Agent) chooseWorker(t *tenant) error {
	if a.config.Workers == nil || t.backend() != v1alpha1.BackendRemote || t.contained() {
		return nil
	}
	a.choosing.Lock()
	defer a.choosing.Unlock()
	held := map[int]bool{}
	a.mu.Lock()
	for _, other := range a.tenants {
		if other.Worker != 0 {
			held[other.Worker] = true
		}
	}
	a.mu.Unlock()
	uid, err := a.config.Workers.Take(held)
	switch {
	case errors.Is(err, workeruser.ErrNone):
		return control.Errorf(control.CodeRefused, "%v: end a share of backend remote, or have an administrator widen `workers` in agent.yaml", err)
	case err != nil:
		return fmt.Errorf("choose a user for the worker: %w", err)
	}
	a.mu.Lock()
	t.Worker = uid
	a.mu.Unlock()
	return nil
}

// startWorker starts the worker of a tenant that was made, and puts its life beside what its asker is told. What was made is
// undone on failure.
func (a *Agent) startWorker(ctx context.Context, t *tenant, environment []string, created *control.Created) error {
	wanted := a.wanted(t)
	if wanted.Worker == 0 {
		return nil
	}
	life, err := a.config.Workers.Start(ctx, Worker{
		Tenant: wanted, Plan: t.plan.Worker, Asker: t.Holder, Environment: edits.DriverVariables(environment),
	})
	if err == nil {
		created.Serve(life)
		a.step("create-served")
		return nil
	}
	a.endWorker(ctx, &wanted)
	return errors.Join(fmt.Errorf("serve %s: %w", t.Name, err), a.makerOf(wanted).Undo(context.WithoutCancel(ctx), wanted), a.drop(t))
}

// workerEnds is how long the processes of a worker may take to end after SIGKILL before the tenant ends without them. Their
// user is nobody else's until they have.
const workerEnds = time.Second

// endWorker kills what is left of a tenant's worker, such as the process that waits for programs: nobody can use it any more.
func (a *Agent) endWorker(ctx context.Context, wanted *backend.Tenant) {
	if wanted.Worker == 0 || a.config.Workers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workerEnds)
	defer cancel()
	if err := a.config.Workers.End(ctx, wanted.Worker); err != nil {
		a.config.Log.WarnContext(ctx, "what is left of a worker goes on", "tenant", wanted.Name, "error", err)
	}
}
