// Package daemon runs the agent of a node: it opens the driver, sees to it that one
// agent serves a GPU, answers at the control socket, runs divvy-reap, and ends an
// agent that nobody needs any more. What is granted to whom is package agent's.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/web"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/terminal"
	divvy "github.com/divvy-gpu/divvy/internal/version"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Options are what `divvy agent` is told.
type Options struct {
	Endpoint control.Endpoint
	// Simgpu is the directory of a simulated machine that stands for the real one; empty
	// means the endpoint's.
	Simgpu string
	Tree   install.Tree
	// Ephemeral makes the agent end with its last share.
	Ephemeral bool
	// MachinesOnly serves no shares, only devices for virtual machines, and needs no driver of NVIDIA's.
	MachinesOnly bool
	// Driverless serves a machine without a driver too, whose containers can have shares on other hosts. The agent starts again
	// when a driver comes.
	Driverless bool
	// looks are when an agent without a driver looks for one, for tests; nil is every [driverInterval].
	looks <-chan time.Time
	// Machine is the host whose devices virtual machines get, nil for this one. Tests model one, also where the GPUs are
	// simulated: those have no VFIO of their own.
	Machine *vfio.Host
	// Config is the path of the agent's configuration; empty means [DefaultConfig] if
	// that exists and the agent serves every user.
	Config string
	// Containers is the directory of the CDI devices by which containers get shares; empty makes no such shares, and
	// neither does an agent that does not serve every user.
	Containers string
	// Unserved, if not nil, is called if the agent ends before it has served.
	Unserved func() error
	// DriverRoot is where an agent in a container finds the files of its host; it is
	// empty for an agent on the host.
	DriverRoot string
	// Face serves another client beside the socket, as the kubelet; nil is none.
	Face Face
	// MetricsAddress is where metrics are answered where no face does: see [Options.metricsAddress]. Version of Divvy is
	// told there.
	MetricsAddress, Version string
	// SwapMemory is how much host memory swapped and suspended shares may have, in bytes; 0 is what the configuration says.
	SwapMemory uint64
	// Step, if not nil, is called after each step of preparing and releasing a tenancy,
	// for tests that end the agent there.
	Step func(name string)
	// Ready is written when the agent serves, or why it cannot; nil is not written.
	Ready io.WriteCloser
	// Supervisor is told when the agent serves, and when it ends; nil is not told.
	Supervisor *Supervisor
	Log        *slog.Logger
}

// interval is the time between looks at all tenants and GPUs. Deaths give notice and
// are seen at once; a process outside every share is seen within two seconds.
const interval = time.Second

// Serve runs the agent of an endpoint until ctx is done or, if it is ephemeral, its
// last share has ended. Tenants outlive it.
func Serve(ctx context.Context, o Options) error {
	var last *again
	for {
		s, err := o.open(ctx, last)
		if o.Ready != nil {
			if reportErr := control.Report(o.Ready, err); reportErr != nil {
				o.Log.WarnContext(ctx, "cannot report to the program that started the agent", "error", reportErr)
			}
			o.Ready = nil
		}
		found := last.done()
		if err != nil && last == nil && o.Unserved != nil {
			err = errors.Join(err, o.Unserved())
		}
		if err != nil {
			return err
		}
		s.noteLeftOut(ctx, found)
		err = s.run(ctx)
		if last = s.again.Load(); last == nil {
			return err
		}
		if err != nil {
			o.Log.WarnContext(ctx, "cannot end orderly before the next start", "error", err)
		}
		if ctx.Err() != nil {
			last.done()
			return err
		}
	}
}

// service is an agent with everything that it keeps open.
type service struct {
	options Options
	agent   *agent.Agent
	health  *health.Monitor
	library *helper.Driver
	doors   doors
	closers []func() error // in the order of opening
	locks   gpulock.Set
	locked  os.FileInfo // the lock's file in the run directory
	missed  []string    // GPUs whose names somebody else keeps
	rules   *agentconfig.Config
	forms   *agent.Forms
	modes   *modes.Machine
	book    *modes.Book // nil for an agent that changes no modes of GPUs
	// instances has which MIG instances are Divvy's, nil for an agent that makes none.
	instances *mig.Book
	// checkpoints take shares off their GPUs, nil for an agent without host memory for them.
	checkpoints *checkpointer.Checkpointer
	machines    *machines // nil for an agent that gives no devices to virtual machines
	finder      driver.Finder
	// driverless is true while no driver was found and none is needed.
	driverless bool
	metrics    net.Listener // nil where no metrics are answered
	taken      string       // where they are to be answered once the address is free
	pages      *web.Pages
	node       string // the machine's name, "" where it is not known
	tenants    string // the directory of the tenants' directories
	// opened is closed when the agent serves; end, which is set before, ends it.
	opened chan struct{}
	end    context.CancelFunc
	again  atomic.Pointer[again] // nil unless it starts again
}

func (s *service) close() error {
	var faults []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		faults = append(faults, s.closers[i]())
	}
	return errors.Join(faults...)
}

// open opens everything that the agent needs, and closes all of it on failure. Last is nil
// but for an agent that starts again.
func (o Options) open(ctx context.Context, last *again) (s *service, err error) {
	s = &service{options: o, opened: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if s.rules, err = o.readRules(last); err != nil {
		return s, err
	}
	if err := s.lock(ctx); err != nil {
		return s, err
	}
	if err := s.openMachines(ctx); err != nil {
		return s, err
	}
	found, err := s.openDriver(ctx)
	if err != nil {
		return s, err
	}
	s.openCheckpoints(found)
	if err := s.openForms(found); err != nil {
		return s, err
	}
	heritages, err := s.holdListed(ctx)
	if err != nil {
		return s, err
	}
	if s.tenants, err = s.tenantsDir(); err != nil {
		return s, err
	}
	made := slice.New(slice.Options{
		Tenants: s.tenants, State: o.Endpoint.Dir(), Tree: o.Tree, Instance: o.simgpu(), Shared: o.shared(),
		Inventory: s.library, Finder: s.finder, Reap: NewReaper(o.Tree), Log: o.Log,
	})
	if err := made.Health(ctx); err != nil && !o.MachinesOnly && !s.driverless {
		return s, err
	}
	if err := s.openAgent(ctx, made); err != nil {
		return s, err
	}
	s.backVGPUs(ctx)
	if err := s.agent.Inherit(ctx, heritages, s.rules.Limits); err != nil {
		return s, err
	}
	s.openHealth(ctx)
	s.openPages(ctx)
	if err := s.openMetrics(ctx); err != nil {
		return s, err
	}
	return s, s.listen()
}

// holdListed holds the GPUs that the driver lists, and returns what their users' own agents hand over.
func (s *service) holdListed(ctx context.Context) ([]agent.Heritage, error) {
	gpus, err := s.library.GPUs()
	if err != nil {
		return nil, err
	}
	uuids := make([]string, 0, len(gpus))
	for _, gpu := range gpus {
		uuids = append(uuids, gpu.UUID)
	}
	return s.holdGPUs(ctx, uuids)
}

// findDriver finds the driver that is served, and says which others are not.
func (o Options) findDriver(ctx context.Context) (driver.Finder, *driver.Driver, error) {
	finder := driver.Finder{Root: o.DriverRoot, Instance: o.simgpu()}
	if o.DriverRoot == "" {
		finder.LibraryPath = strings.Split(os.Getenv("LD_LIBRARY_PATH"), ":")
	}
	found, err := finder.Find()
	if err != nil {
		return finder, nil, err
	}
	for _, fault := range found.Aside {
		level := slog.LevelInfo
		if fault.Damaged() {
			level = slog.LevelWarn
		}
		if !fault.Usual() {
			o.Log.Log(ctx, level, "a library with a driver's name is not used", "file", fault.Path, "found", fault.Found, "expected", fault.Expected)
		}
	}
	return finder, found, nil
}

// openHealth looks at the GPUs' health once, so that nothing is granted or published before it is known which are
// healthy.
func (s *service) openHealth(ctx context.Context) {
	s.health = health.New(health.Config{Driver: s.library, GPUs: s.agent.GPUs(), Away: s.agent.IsAway, Log: s.options.Log, Now: time.Now})
	s.health.Look(ctx)
	s.noteFaults()
}

// noteFaults tells the ledger which GPUs are faulty, and returns what is closed when that changes.
func (s *service) noteFaults() (changed <-chan struct{}) {
	faults, changed := s.health.Faults()
	texts, modes := map[string]string{}, map[string]string{}
	for uuid, fault := range faults {
		if fault.Reason == health.MIGMode && s.agent.Divides() {
			modes[uuid] = fault.Text
			continue
		}
		texts[uuid] = fault.Text
	}
	s.agent.NoteFaults(texts)
	s.agent.NoteMIGModes(modes)
	return changed
}

// openAgent opens the ledger, with the tenants that an earlier agent left.
func (s *service) openAgent(ctx context.Context, made *slice.Backend) (err error) {
	o := s.options
	program, err := o.Tree.Divvy()
	if err != nil {
		return err
	}
	config := agent.Config{
		Info: s.info(), Backends: s.backends(made), Forms: s.forms, Modes: s.listed(), Driver: s.library, Gauges: s.library,
		Checkpoint: o.Endpoint.Checkpoint(),
		Log:        o.Log, Rules: s.rules, Misuse: s.rules.Outside(), Listed: s.rules.Listed, Interval: interval, Now: time.Now, Step: o.Step,
		Tell: terminal.NewWriter(program).Tell,
	}
	config.SwapMemory = s.swapMemory()
	s.letAway(ctx, &config)
	if s.checkpoints != nil {
		config.Checkpointer = s.checkpoints
	}
	config.Devices, config.Commands = o.devices(), s.rules.History().Commands
	if kept := o.history(s.rules); kept != nil {
		config.History = kept
	}
	if !o.shared() {
		config.Locks, config.Permit = ownLocks{&s.locks, config.Checkpoint}, s.permit
	}
	if own := s.workers(); own != nil {
		config.Workers = own
	}
	if s.machines != nil {
		config.Machines, config.Functions, config.LetGo, config.Renew, config.Returned = s.machines, s.machines, s.letGo, s.renew, s.returned
	}
	if s.agent, err = agent.New(ctx, config); err != nil {
		return err
	}
	if s.machines != nil {
		s.machines.Tell(s.agent.TellMachine)
	}
	if s.driverless {
		return nil
	}
	silent, _ := s.library.LeftOut()
	return checkRules(s.rules, s.agent.GPUs(), len(silent))
}

func (s *service) info() control.Info {
	o, version := s.options, s.library.Version()
	file, sum := s.rules.Source()
	return control.Info{
		Protocol: control.ProtocolVersion, PID: os.Getpid(), UID: os.Getuid(), User: process.UserName(os.Getuid()),
		Ephemeral: o.Ephemeral, Version: divvy.Full(), Driver: version.Driver, CUDA: version.CUDA, Simgpu: o.simgpu(),
		MachinesOnly: o.MachinesOnly, Config: file, ConfigSum: sum,
	}
}

// listen opens the control socket. It replaces a socket that an earlier agent left
// behind: this agent holds the lock, so nobody listens there.
func (s *service) listen() error {
	path := s.options.Endpoint.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.options.shared() {
		// Every user may connect; the kernel tells which user it is.
		if err := os.Chmod(path, 0o666); err != nil {
			return errors.Join(fmt.Errorf("open socket to users: %w", err), listener.Close())
		}
	}
	return s.doors.add(listener, path)
}

// run serves until ctx is done or, for an ephemeral agent, nobody needs it.
func (s *service) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.end = cancel
	close(s.opened)
	idle := newIdle()
	server := control.Server{Handlers: s.handlers(), Log: s.options.Log, Connections: idle.connections}
	s.doors.serve(func(l *net.UnixListener) error {
		// The server ends after the agent: see agent.Agent.Run.
		defer cancel()
		return server.Serve(context.WithoutCancel(ctx), l)
	})
	if s.options.Ephemeral {
		go func() {
			idle.wait(ctx, s.agent)
			cancel()
		}()
	}
	s.options.Log.InfoContext(ctx, "serving", "socket", s.options.Endpoint.Socket(), "gpus", len(s.agent.GPUs()))
	s.options.tell(ctx, "READY=1", fmt.Sprintf("STATUS=serving %d GPUs", len(s.agent.GPUs())))
	go s.takeUp(ctx)
	if s.driverless {
		go s.awaitDriver(ctx)
	}
	var keeping sync.WaitGroup
	if s.options.shared() {
		keeping.Go(func() { s.keepPlace(ctx) })
		go s.reclaimMissed(ctx)
	}
	if s.machines != nil {
		keeping.Go(func() { s.machines.Run(ctx) })
		keeping.Go(func() { s.enableFunctions(ctx) })
	}
	faced := s.serveOthers(ctx, cancel)
	s.agent.Run(ctx)
	if s.again.Load() == nil {
		s.options.tell(ctx, "STOPPING=1")
	}
	keeping.Wait()
	err := s.doors.close()
	return errors.Join(faced(), err, s.close())
}
