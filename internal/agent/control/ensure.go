package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// Endpoint says which agent is meant: one per user and driver.
type Endpoint struct {
	// Rundir is the user's run directory (rundir.Path).
	Rundir string
	// Simgpu is the instance directory of a simulated machine, empty for the
	// real one.
	Simgpu string
}

// Dir is where the agent keeps its socket, lock, checkpoint and log.
func (e Endpoint) Dir() string {
	if e.Simgpu == "" {
		return e.Rundir
	}
	return simfiles.Instance(e.Rundir, e.Simgpu)
}

// Socket is where the agent listens.
func (e Endpoint) Socket() string {
	return filepath.Join(e.Dir(), "agent.sock")
}

// Checkpoint is where the agent keeps its tenants; it exists while there are any.
func (e Endpoint) Checkpoint() string {
	return filepath.Join(e.Dir(), "tenants.json")
}

// Keep notes that somebody starts the endpoint's agent again whenever it ends, so
// that [Reach] does not.
func (e Endpoint) Keep() error {
	if err := os.WriteFile(e.kept(), nil, 0o600); err != nil {
		return fmt.Errorf("note who starts the agent: %w", err)
	}
	return nil
}

func (e Endpoint) kept() string {
	return filepath.Join(e.Dir(), "agent.kept")
}

func (e Endpoint) log() string {
	return filepath.Join(e.Dir(), "agent.log")
}

// maxStarts bounds the agents that one call starts: an agent ends just when
// somebody connects once in a while, not again and again.
const maxStarts = 8

// ErrNoAgent is returned by Find when no agent runs and none is needed.
var ErrNoAgent = errors.New("no agent runs: `divvy run` starts one")

// Find connects to the agent that serves this user: the system's where it runs
// and the machine is real, else the user's own. It starts none; ErrNoAgent
// says that there is none.
func Find(ctx context.Context, e Endpoint) (*Client, error) {
	for _, socket := range e.sockets() {
		c, err := Dial(ctx, socket)
		if err == nil {
			return c, nil
		}
		// An agent that root has for itself closes its run directory to others.
		private := socket != e.Socket() && errors.Is(err, fs.ErrPermission)
		if !private && !nobodyThere(err) {
			return nil, err
		}
	}
	return nil, ErrNoAgent
}

// Reach connects as Find does. Where an agent of the user's own was killed and
// left shares behind it starts the next one, which takes them up. The system's
// agent and a kept one are not replaced: who installed it starts it.
func Reach(ctx context.Context, e Endpoint, s Starter) (*Client, error) {
	c, err := Find(ctx, e)
	if !errors.Is(err, ErrNoAgent) || e.Dir() == rundir.System {
		return c, err
	}
	if _, statErr := os.Stat(e.kept()); statErr == nil {
		return nil, err
	}
	if _, statErr := os.Stat(e.Checkpoint()); statErr != nil {
		return nil, err
	}
	return Ensure(ctx, e, s)
}

// sockets lists the sockets to try, the system's first: two agents never serve
// one GPU, so where it runs the user's own cannot.
func (e Endpoint) sockets() []string {
	if e.Simgpu != "" || os.Getenv(rundir.Variable) != "" {
		return []string{e.Socket()}
	}
	system := Endpoint{Rundir: rundir.System}
	return []string{system.Socket(), e.Socket()}
}

// Starter is how Ensure starts an agent: see [Ensure].
type Starter struct {
	// Executable is the divvy program; empty means the running one.
	Executable string
}

// Ensure connects to the agent as Find does, and starts the user's own when
// none runs: `divvy agent --ephemeral`, in a session of its own. Callers that
// race start one agent between them.
func Ensure(ctx context.Context, e Endpoint, s Starter) (*Client, error) {
	for range maxStarts {
		c, err := Find(ctx, e)
		if err == nil || !errors.Is(err, ErrNoAgent) && !errors.Is(err, ErrGone) {
			return c, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
		// An agent that was ending closed the door on us: start the next.
		if err := s.start(ctx, e); err != nil {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
	}
	return nil, fmt.Errorf("start the agent: it ended %d times as soon as it served: see %s", maxStarts, e.log())
}
