package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/socket"
)

// How the plugin registers with the runtime.
const (
	// pluginIndex orders plugins: after those that assign processors and memory.
	pluginIndex = "50"
)

// Config is what a Plugin works with.
type Config struct {
	// Socket is the runtime's; left out it is NRI's usual one.
	Socket  string
	Tenants Tenants
	// Kernels are the handlers of runtime classes whose containers run on a kernel of their own; nil are the usual ones.
	Kernels v1alpha1.Kernels
	// Capacity returns what a GPU has for tenants, in bytes, 0 if it is not here, for containers that a device plugin
	// gave replicas of it; nil where there are none.
	Capacity func(uuid string) uint64
	Log      *slog.Logger
}

// Plugin keeps the agent connected to the runtime.
type Plugin struct {
	config Config
	guard  *Guard
}

// New makes a plugin that is yet to run.
func New(c Config) *Plugin {
	if c.Socket == "" {
		c.Socket = api.DefaultSocketPath
	}
	if c.Capacity == nil {
		c.Capacity = func(string) uint64 { return 0 }
	}
	return &Plugin{config: c, guard: newGuard()}
}

// Guard says whether the runtime asks the plugin about every container.
func (p *Plugin) Guard() *Guard { return p.guard }

const (
	connectTimeout = 10 * time.Second
	firstRelease   = 100 * time.Millisecond
)

// Run connects to the runtime, and again whenever the connection is lost, until
// ctx is done. Shares outlive it. It returns only errors that waiting cannot resolve.
func (p *Plugin) Run(ctx context.Context) error {
	watcher, err := socket.Watch(p.config.Socket)
	if err != nil {
		return fmt.Errorf("wait for the container runtime: %w", err)
	}
	defer watcher.Close()
	hooks := &plugin{work: ctx, tenants: p.config.Tenants, kernels: p.config.Kernels, capacity: p.config.Capacity, log: p.config.Log, retry: firstRelease, pods: make(map[string]*pod)}
	defer hooks.running.Wait()
	watcher.Follow(ctx,
		func(ctx context.Context) error {
			err := p.session(ctx, hooks)
			p.guard.set(apart(err))
			return err
		},
		func(err error) {
			p.config.Log.Warn("not connected to the container runtime", "socket", p.config.Socket, "error", err)
		})
	return nil
}

// apart is the reason of a guard whose connection failed with err. It is pure.
func apart(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return ErrOff
	}
	return fmt.Errorf("%w: %w", ErrApart, err)
}

// session lasts as long as one connection.
func (p *Plugin) session(ctx context.Context, hooks *plugin) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", p.config.Socket)
	if err != nil {
		return fmt.Errorf("connect to the container runtime: %w", err)
	}
	defer conn.Close()
	lost := make(chan struct{}, 1)
	here := &connection{plugin: hooks, synchronized: make(chan struct{})}
	link, err := stub.New(here,
		stub.WithPluginName(v1alpha1.Plugin), stub.WithPluginIdx(pluginIndex), stub.WithConnection(conn),
		stub.WithLogger(logger{p.config.Log}),
		// Runtimes that know policies make no container when we fail to answer.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}),
		stub.WithOnClose(func() {
			select {
			case lost <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return fmt.Errorf("make the NRI plugin: %w", err)
	}
	if err := start(ctx, link, conn); err != nil {
		return err
	}
	defer link.Stop()
	for synchronized := here.synchronized; ; synchronized = nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lost:
			return errors.New("the connection was lost")
		case <-synchronized:
			p.guard.set(nil)
		}
	}
}

// connection answers one runtime, whose first call tells what runs already.
type connection struct {
	*plugin
	synchronized chan struct{}
	once         sync.Once
}

// Synchronize is the first call of a connection. The runtime makes no container from
// then on before it has the answer, and asks about each that it makes afterwards.
func (c *connection) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer c.once.Do(func() { close(c.synchronized) })
	return c.plugin.Synchronize(ctx, sandboxes, containers)
}

// start registers the plugin. The stub waits forever for a runtime that disappears
// meanwhile; start then returns without it.
func start(ctx context.Context, link stub.Stub, conn net.Conn) error {
	started := make(chan error, 1)
	go func() { started <- link.Start(ctx) }()
	timeout := time.NewTimer(connectTimeout)
	defer timeout.Stop()
	select {
	case err := <-started:
		if err != nil {
			return fmt.Errorf("register with the container runtime: %w", err)
		}
		return nil
	case <-timeout.C:
		conn.Close()
		return errors.New("register with the container runtime: it does not answer")
	case <-ctx.Done():
		conn.Close()
		return ctx.Err()
	}
}

// logger writes the stub's messages to the agent's log.
type logger struct{ log *slog.Logger }

func (l logger) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, args...), "part", "nri")
	}
}

// Debugf implements the logger of NRI, whose information is debugging to the agent.
func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof implements the logger of NRI.
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Warnf implements the logger of NRI.
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

// Errorf implements the logger of NRI.
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelError, format, args)
}
