package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// ErrServed is returned where another system agent serves the GPUs.
var ErrServed = errors.New("another system agent serves these GPUs")

// lock locks the run directory, so that one agent serves it, and leaves the mark of a
// system agent there. The mark comes before anything is looked at: from then on no
// other agent grants anything, see [service.permit].
func (s *service) lock(ctx context.Context) error {
	dir := s.options.Endpoint.Dir()
	if err := rundir.Make(dir, rundir.Mode()); err != nil {
		return err
	}
	if err := s.lockDir(ctx, dir); err != nil {
		return err
	}
	if !s.options.shared() {
		return s.permit()
	}
	// A run directory that was moved makes no second system agent of this machine.
	if s.options.Endpoint.Simgpu == "" && dir != rundir.System {
		if err := errors.Join(rundir.Make(rundir.System, rundir.Mode()), s.lockDir(ctx, rundir.System)); err != nil {
			return err
		}
	}
	return s.mark("")
}

// lockFile is the lock of a run directory.
const lockFile = "agent.lock"

// lockDir holds a lock in a directory that only this agent's user can write to.
func (s *service) lockDir(ctx context.Context, dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("lock run directory: %w: mount %s writable", err, dir)
	}
	if err != nil {
		return fmt.Errorf("lock run directory: %w", err)
	}
	err = outlast(ctx, unix.EWOULDBLOCK, func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		_ = file.Close() // it was only looked at
		return fmt.Errorf("an agent already runs in %s%s: `divvy ls` shows its shares", dir, processOf(dir))
	}
	s.closers = append(s.closers, file.Close)
	if dir == s.options.Endpoint.Dir() {
		s.locked, err = file.Stat()
	}
	return err
}

// processOf names the process of the system agent in a run directory.
func processOf(dir string) string {
	c, _ := rundir.ConfiguredSystem(dir)
	if c.Mark == nil || !c.Mark.Agent.Alive() {
		return ""
	}
	return fmt.Sprintf(" (process %d)", c.Mark.Agent.PID)
}

// mark leaves a system agent's mark. It stays when the agent ends. If the agent cannot start
// the mark is as before again: it tells how the last one that served was started.
func (s *service) mark(tenants string) error {
	dir := s.options.Endpoint.Dir()
	before, marked := rundir.ConfiguredSystem(dir)
	s.closers = append(s.closers, func() error {
		select {
		case <-s.opened:
			return nil
		default:
		}
		if !marked || before.Mark == nil {
			return rundir.RemoveMark(dir)
		}
		return errors.Join(rundir.WriteMark(dir, *before.Mark), rundir.RenewMark(dir, before.Mark.Seen))
	})
	return s.writeMark(tenants)
}

func (s *service) writeMark(tenants string) error {
	self, err := process.Find(os.Getpid())
	if err != nil {
		return fmt.Errorf("mark system agent: %w", err)
	}
	return rundir.WriteMark(s.options.Endpoint.Dir(), rundir.Mark{Agent: self, Tenants: tenants, Simgpu: s.options.Simgpu, MachinesOnly: s.options.MachinesOnly, SwapMemory: s.options.SwapMemory})
}

// permit returns why a user's own agent grants nothing: a system agent is configured.
// The agent asks after it has taken a GPU, and a system agent leaves its mark before it
// looks who has taken one, so that one of the two sees the other.
func (s *service) permit() error {
	c, configured := s.options.Endpoint.Configured()
	if !configured && s.options.Endpoint.Simgpu == "" {
		// Nobody gets round the machine's system agent by moving the run directory.
		c, configured = rundir.ConfiguredSystem(rundir.System)
	}
	if !configured {
		return nil
	}
	return &control.Error{Code: control.CodeMoved, Message: fmt.Sprintf("a system agent is configured (%s) and serves all users: ask it", c.By)}
}

// deathTime bounds how long what a killed agent held may stay held: by the kernel, which
// takes the process apart, and by a child that the agent was about to start.
const deathTime = time.Second

// outlast tries again while try returns held, the error that says that another agent
// has what is tried for: that agent may be one that has just been killed.
func outlast(ctx context.Context, held error, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deathTime)
	defer cancel()
	for {
		err := try()
		if !errors.Is(err, held) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// ownLocks are what a user's own agent holds.
type ownLocks struct {
	*gpulock.Set
	checkpoint string // the agent's
}

// leftBySystem reports whether a system agent granted a tenant. Root's own agent keeps its
// tenants where a system agent does, and only their records tell them apart.
func (l ownLocks) leftBySystem(tenant string) bool {
	if !rundir.LeftBySystem(tenant) {
		return false
	}
	for _, place := range rundir.TenantsOf(0) {
		record, err := os.ReadFile(tenantdir.Dir(filepath.Join(place, filepath.Base(tenant))).Record())
		if err == nil && agent.KeptBy(record) == l.checkpoint {
			return false
		}
	}
	return true
}

// Elsewhere implements [agent.Locks].
func (l ownLocks) Elsewhere(ctx context.Context, uuid string) (by string, ways []string) {
	var h gpulock.Holder
	var held bool
	if l.Has(uuid) {
		// Whoever writes the name of another's share takes nothing from who holds the GPU.
		h, held = l.Kind.LeftBy(uuid, -1, l.leftBySystem)
	} else if h, held = l.Kind.Of(ctx, uuid); !held {
		if h, held = l.Kind.LeftBy(uuid, os.Getuid(), nil); !held {
			h, held = l.Kind.LeftBy(uuid, -1, l.leftBySystem)
		}
	}
	if !held {
		return "", nil
	}
	return fmt.Sprintf("it is held by %s", h), h.Ways(os.Getuid())
}

// mostAskers is how often one user may ask for the holder of a GPU at once.
const mostAskers = 16

// serveLock answers whoever asks the holder of a GPU.
func (s *service) serveLock(ctx context.Context) func(*net.UnixListener) {
	handlers := map[control.Method]control.Handler{
		control.MethodHello: control.Handle(func(context.Context, *control.Peer, struct{}) (control.Info, error) {
			return s.info(), nil
		}),
	}
	if !s.options.shared() {
		handlers[control.MethodHandOver] = control.Handle(s.handOver)
	}
	server := control.Server{Handlers: handlers, Log: s.options.Log, Connections: func(int) {}, Most: mostAskers}
	return func(l *net.UnixListener) {
		if err := server.Serve(ctx, l); err != nil {
			s.options.Log.WarnContext(ctx, "cannot answer who asks for the holder of a GPU", "error", err)
		}
	}
}
