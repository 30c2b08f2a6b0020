package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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

// System is the endpoint of the system agent for the same GPUs.
func (e Endpoint) System() Endpoint {
	if e.Simgpu != "" || os.Getenv(rundir.Variable) != "" {
		return e
	}
	return Endpoint{Rundir: rundir.System}
}

// Configured reports whether a system agent is configured for the endpoint's GPUs.
func (e Endpoint) Configured() (rundir.Configured, bool) {
	return rundir.ConfiguredSystem(e.System().Dir())
}

func (e Endpoint) log() string {
	return filepath.Join(e.Dir(), "agent.log")
}

// maxStarts bounds the agents that one call starts: an agent ends just when
// somebody connects once in a while, not again and again.
const maxStarts = 8

// ErrNoAgent is returned by Find when no agent runs and none is needed.
var ErrNoAgent = errors.New("no agent runs: `divvy run` starts one")

// AwayError is returned where a system agent is configured and does not run. Nobody
// starts another agent then, because it would grant again what is granted.
type AwayError struct {
	System rundir.Configured
}

// Error implements error. What it advises the reader can do.
func (e *AwayError) Error() string {
	return fmt.Sprintf("the system agent is away%s (%s says that there is one): %s", e.Since(), e.System.By, e.Remedy())
}

// Remedy is what the reader can do about it.
func (e *AwayError) Remedy() string {
	m, root := e.System.Mark, os.Getuid() == 0
	switch {
	case e.starting() && root:
		return fmt.Sprintf("wait for it, or end process %d and look at its log if it stays so", m.Agent.PID)
	case e.starting():
		return "wait for it, or tell an administrator if it stays so"
	case e.System.Unit && root:
		return "start it (" + e.unit() + "); `journalctl -u divvy-agent` says why it ended"
	case e.System.Unit:
		return "ask an administrator to start it (" + e.unit() + ")"
	case root:
		return fmt.Sprintf("start it (`%s`) or, if none is wanted, remove %s", e.command(), e.System.By)
	}
	return fmt.Sprintf("ask an administrator to start it (`%s` as root)", e.command())
}

// starting reports whether the agent's process lives: it is starting, or hangs.
func (e *AwayError) starting() bool {
	return e.System.Mark != nil && e.System.Mark.Agent.Alive()
}

// command starts the agent as it was started before, where no unit does.
func (e *AwayError) command() string {
	command, m := "divvy agent", e.System.Mark
	if m == nil {
		return command
	}
	switch {
	case m.Simgpu != "":
		command += " --simgpu " + filepath.Base(m.Simgpu)
	case m.MachinesOnly:
		command += " " + rundir.MachinesFlag
	}
	if m.SwapMemory > 0 {
		command += " --swap-memory " + v1alpha1.Bytes(m.SwapMemory).String()
	}
	return command
}

// unit has systemd start the agent. Its flags are named where without them no agent starts on a host that has no driver.
func (e *AwayError) unit() string {
	const start = "`systemctl start divvy-agent`"
	if m := e.System.Mark; m != nil && m.MachinesOnly {
		return start + " " + rundir.UnitFlags(rundir.MachinesFlag)
	}
	return start
}

// Since says since when the agent is away, as far as that is known.
func (e *AwayError) Since() string {
	switch m := e.System.Mark; {
	case m == nil:
		return ", and has not run since this machine started"
	case e.starting():
		return fmt.Sprintf(": process %d runs and does not serve yet", m.Agent.PID)
	default:
		return " since about " + m.Seen.Format("15:04:05 on 2 January 2006")
	}
}

// Find connects to the agent that serves this user: the system's where it runs
// and the machine is real, else the user's own. It starts none: ErrNoAgent
// says that there is none, and AwayError that the system's should run.
func Find(ctx context.Context, e Endpoint) (*Client, error) {
	for _, socket := range e.sockets() {
		c, err := Dial(ctx, socket)
		if err == nil {
			return c, nil
		}
		// A run directory that is closed to others has no system agent's socket in it.
		private := socket != e.Socket() && errors.Is(err, fs.ErrPermission)
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			return nil, noDirectory(filepath.Dir(socket))
		}
		if !private && !nobodyThere(err) {
			return nil, e.blocked(err)
		}
	}
	if system, configured := e.Configured(); configured {
		return nil, &AwayError{system}
	}
	return nil, ErrNoAgent
}

// blocked names who keeps a user out of their run directory, in place of an error that says
// so alone. The system agent's is nobody's own.
func (e Endpoint) blocked(err error) error {
	if e.Rundir == rundir.System {
		return err
	}
	return rundir.Explain(err, e.Rundir)
}

// noDirectory is the error of a run directory that is something else.
func noDirectory(dir string) error {
	remedy := "ask an administrator to remove it"
	if os.Getuid() == 0 || dir != rundir.System {
		remedy = "remove it"
	}
	return fmt.Errorf("%w: %s is not a directory: %s", rundir.ErrOwner, dir, remedy)
}

// Reach connects as Find does. Where an agent of the user's own was killed and
// left shares behind it starts the next one, which takes them up. The system's
// agent is not replaced: who installed it starts it.
func Reach(ctx context.Context, e Endpoint, s Starter) (*Client, error) {
	c, err := Find(ctx, e)
	if !errors.Is(err, ErrNoAgent) {
		return c, err
	}
	if _, statErr := os.Stat(e.Checkpoint()); statErr != nil {
		return nil, err
	}
	return Ensure(ctx, e, s)
}

// sockets lists the sockets to try, the system's first: where it runs the user's
// own does not.
func (e Endpoint) sockets() []string {
	if system := e.System(); system != e {
		return []string{system.Socket(), e.Socket()}
	}
	return []string{e.Socket()}
}

// Starter is how Ensure starts an agent: see [Ensure].
type Starter struct {
	// Executable is the divvy program; empty means the running one.
	Executable string
	// AwayTime is how long a system agent that is away is waited for; 0 means
	// [AwayTime], and a negative one for ever.
	AwayTime time.Duration
	// Say tells the user that this takes time; it may be nil.
	Say func(text string)
	// Hidden returns an error if a system agent holds the machine's GPUs, whether it can
	// be found or not; it may be nil.
	Hidden func(ctx context.Context) error
}

// AwayTime is how long `divvy run` waits for a system agent that is away: longer than
// it takes to start one again.
const AwayTime = 30 * time.Second

// awaitPause is between two looks for a system agent.
const awaitPause = 100 * time.Millisecond

// mendTime is how long a system agent that cannot be found is waited for: it makes again
// what was removed of its run directory, and looks for that each second.
const mendTime = 3 * time.Second

// Ensure connects to the agent as Find does, and starts the user's own when
// none runs: `divvy agent --ephemeral`, in a session of its own. Callers that
// race start one agent between them. Where a system agent is configured none is
// started, and Ensure waits for it; nor is one where a system agent runs that cannot be found.
func Ensure(ctx context.Context, e Endpoint, s Starter) (*Client, error) {
	for range maxStarts {
		if _, configured := e.Configured(); configured {
			return s.await(ctx, e.System())
		}
		c, err := Find(ctx, e)
		if away := (*AwayError)(nil); errors.As(err, &away) {
			continue // configured just now
		}
		if err == nil || !errors.Is(err, ErrNoAgent) && !errors.Is(err, ErrGone) {
			return c, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
		found, err := s.seek(ctx, e)
		if err != nil {
			return nil, err
		}
		if found {
			continue
		}
		// An agent that was ending closed the door on us: start the next.
		err = s.start(ctx, e)
		if _, elsewhere := rundir.ConfiguredSystem(rundir.System); CodeOf(err) == CodeMoved && elsewhere && e.System() == e {
			return nil, fmt.Errorf("start the agent: %w: leave out %s", err, rundir.Variable)
		}
		if err != nil && CodeOf(err) != CodeMoved {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
	}
	return nil, fmt.Errorf("start the agent: it ended %d times as soon as it served: see %s", maxStarts, e.log())
}

// seek returns an error if a system agent holds the GPUs and is not found, and whether one
// is found now that was not before.
func (s Starter) seek(ctx context.Context, e Endpoint) (found bool, err error) {
	if s.Hidden == nil || e.Simgpu != "" {
		return false, nil
	}
	over := time.After(mendTime)
	ticker := time.NewTicker(awaitPause)
	defer ticker.Stop()
	for {
		if err := s.Hidden(ctx); err == nil {
			return found, nil
		}
		found = true
		if _, configured := e.Configured(); configured {
			return true, nil
		}
		select {
		case <-ticker.C:
		case <-over:
			return true, s.Hidden(ctx)
		case <-ctx.Done():
			return true, fmt.Errorf("look for the system agent: %w", ctx.Err())
		}
	}
}

// await connects to the system agent, also if that has to start first.
func (s Starter) await(ctx context.Context, system Endpoint) (*Client, error) {
	over := make(<-chan time.Time)
	if s.AwayTime >= 0 {
		over = time.After(cmp.Or(s.AwayTime, AwayTime))
	}
	ticker := time.NewTicker(awaitPause)
	defer ticker.Stop()
	said := false
	for {
		c, err := Dial(ctx, system.Socket())
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			return nil, noDirectory(system.Dir())
		}
		if err == nil || !nobodyThere(err) && !errors.Is(err, fs.ErrPermission) {
			return c, err
		}
		configured, ok := system.Configured()
		if !ok {
			return nil, fmt.Errorf("%w: the system agent is no longer configured: try again", ErrNoAgent)
		}
		away := &AwayError{configured}
		if !said && s.Say != nil {
			s.Say(fmt.Sprintf("the system agent is away%s: waiting for it", away.Since()))
			said = true
		}
		select {
		case <-ticker.C:
		case <-over:
			return nil, away
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the system agent: %w", ctx.Err())
		}
	}
}
