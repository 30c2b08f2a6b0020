package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// The directories that the kubelet and container runtimes know.
const (
	DefaultPluginDir   = kubeletplugin.KubeletPluginsDir + "/" + v1alpha1.Driver
	DefaultRegistryDir = kubeletplugin.KubeletRegistryDir
	DefaultCDIDir      = "/var/run/cdi"
)

const (
	// defaultRetryPause is between two tries to serve the kubelet.
	defaultRetryPause = 5 * time.Second
	// socketCheck is between looks whether the sockets are still there.
	socketCheck = 10 * time.Second
	// component is who events are from.
	component = "divvy"
)

// Config is what a [Driver] works with.
type Config struct {
	Node    string
	Client  kubernetes.Interface
	Tenants Tenants
	// Suspender takes shares off their GPUs for others; where it is nil what is ordered is left undone.
	Suspender Suspender
	// Opener gives claims with admin access their GPUs; where it is nil there are none.
	Opener Opener
	// Cards gives claims their RDMA cards; where it is nil there are none.
	Cards Cards
	// Attached is the path of the file in which these claims are remembered, and Reserver keeps virtual machines from the
	// cards that they have; where it is nil there are none.
	Attached string
	Reserver Reserver
	// Openings is the path of the file in which these claims are remembered.
	Openings string
	// Machines gives devices to virtual machines; where it is nil there are none. Handed is the path of the file in which the
	// claims with such devices are remembered.
	Machines Machines
	Handed   string
	// Remotes gives shares on other hosts; where it is nil there are none. Remote is the path of the file in which the claims with
	// such shares are remembered.
	Remotes Remotes
	Remote  string
	// Pool returns what the node has now, and a channel that is closed when that
	// changes and when ctx is done. No pools means that it is not known yet; what is
	// published then stays.
	Pool func(ctx context.Context) (resourceslice.DriverResources, <-chan struct{}, error)
	// Defaults returns the defaults of shares that name no policy, or why they are
	// not known; nil stands for no defaults. Prepared shares keep theirs.
	Defaults func() (v1alpha1.NodeDefaults, error)
	// Follow has a function called with what becomes of tenancies, which is written as events on their pods; nil writes none.
	Follow func(told func(agent.Tenancy, control.Event))
	// Kernels are the handlers of runtime classes whose containers run on a kernel of their own; nil are the usual ones.
	Kernels v1alpha1.Kernels
	// PluginDir, RegistryDir and CDIDir are as the constants say where left out.
	PluginDir, RegistryDir, CDIDir string
	// RetryPause is between two tries to serve the kubelet; left out it is 5 s.
	RetryPause time.Duration
	Log        *slog.Logger
	// Metrics count what is done; nil counts nothing.
	Metrics Meter
	// Step is told of each step of Prepare and Release; nil tells nobody.
	Step func(name string)
}

// Meter counts what the driver does.
type Meter interface {
	// Prepared counts one claim; errors that are one of invalid are the claim's fault.
	Prepared(took time.Duration, err error, invalid ...error)
	Released(took time.Duration, err error)
	Failed(metrics.Operation)
}

// unmetered counts nothing.
type unmetered struct{}

func (unmetered) Prepared(time.Duration, error, ...error) {}
func (unmetered) Released(time.Duration, error)           {}
func (unmetered) Failed(metrics.Operation)                {}

// unreserved is for a host without virtual machines.
type unreserved struct{}

func (unreserved) Reserve(claims.Reserved) error { return nil }
func (unreserved) Unreserve(string) error        { return nil }
func (unreserved) Reserved() []claims.Reserved   { return nil }

// Driver serves the kubelet.
type Driver struct {
	config     Config
	driver     *driver
	reconciler *reconciler
	broken     chan error
	// expected is closed when it is known which GPUs are kept for claims.
	expected   chan struct{}
	registered atomic.Pointer[error] // what the kubelet said, nil before
}

// New returns a driver that does nothing until Run.
func New(c Config) *Driver {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&c.PluginDir, DefaultPluginDir)
	set(&c.RegistryDir, DefaultRegistryDir)
	set(&c.CDIDir, DefaultCDIDir)
	if c.RetryPause == 0 {
		c.RetryPause = defaultRetryPause
	}
	if c.Step == nil {
		c.Step = func(string) {}
	}
	if c.Metrics == nil {
		c.Metrics = unmetered{}
	}
	if c.Reserver == nil {
		c.Reserver = unreserved{}
	}
	d := &Driver{config: c, broken: make(chan error, 1), expected: make(chan struct{})}
	openings, err := newRecords[opened](c.Openings, "admin-access")
	if err != nil {
		c.Log.Warn("the record of claims with admin access cannot be read", "error", err)
	}
	handed, err := newRecords[handed](c.Handed, "machine-claims")
	if err != nil {
		c.Log.Warn("the record of claims of virtual machines cannot be read", "error", err)
	}
	attached, err := newRecords[attached](c.Attached, "nics")
	if err != nil {
		c.Log.Warn("the record of claims with RDMA cards cannot be read", "error", err)
	}
	remote, err := newRecords[remoteClaim](c.Remote, "remote-claims")
	if err != nil {
		c.Log.Warn("the record of claims with shares on other hosts cannot be read", "error", err)
	}
	d.driver = &driver{
		remotes: c.Remotes, remote: remote,
		opener: c.Opener, openings: openings, machines: c.Machines, handed: handed, kernels: c.Kernels, handlers: handlers{client: c.Client},
		cards: c.Cards, attached: attached, reserver: c.Reserver,
		node: c.Node, client: c.Client, tenants: c.Tenants, cdiDir: c.CDIDir, log: c.Log, meter: c.Metrics, step: c.Step,
		runtime: &runtimeGate{client: c.Client, node: c.Node}, defaults: c.Defaults,
		broken: func(err error) {
			select {
			case d.broken <- err:
			default: // one is enough
			}
		},
	}
	d.reconciler = newReconciler(d.driver)
	return d
}

// errWaiting is what Ready says until the kubelet has asked.
var errWaiting = errors.New("the kubelet has not registered the driver yet")

// Ready returns nil once the kubelet has taken up the driver.
func (d *Driver) Ready() error {
	if err := d.registered.Load(); err != nil {
		return *err
	}
	return errWaiting
}

// Run serves until ctx is done. It logs an error that keeps it from serving and
// tries again. Tenants run on meanwhile.
func (d *Driver) Run(ctx context.Context) error {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: d.config.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	defer broadcaster.Shutdown()
	d.driver.teller = &teller{recorder: broadcaster.NewRecorder(scheme.Scheme, component)}
	watch, err := watchPods(d.config.Client, d.config.Node)
	if err != nil {
		return err
	}
	d.driver.pods = watch
	if d.config.Suspender != nil {
		if d.driver.orders, err = newOrders(d.driver, d.config.Suspender); err != nil {
			return err
		}
	}
	if d.config.Follow != nil {
		d.config.Follow(newFollower(d.driver.teller.recorder, watch, time.Now).told)
		defer d.config.Follow(func(agent.Tenancy, control.Event) {})
	}
	// The specifications come first, because containers may start meanwhile.
	d.reconciler.specifications(ctx)
	d.reconciler.adminSpecifications(ctx)
	d.reconciler.machineSpecifications(ctx)
	d.reconciler.cardSpecifications(ctx)
	d.reconciler.remoteSpecifications(ctx)
	var running sync.WaitGroup
	running.Go(func() { watch.run(ctx) })
	running.Go(func() { d.reconciler.run(ctx, watch.ended) })
	if d.driver.orders != nil {
		running.Go(func() { d.driver.orders.run(ctx) })
	}
	running.Go(func() {
		d.driver.expectAtStart(ctx, d.config.RetryPause)
		close(d.expected)
	})
	defer running.Wait()
	said := ""
	for {
		err := d.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		d.config.Metrics.Failed(metrics.OperationRegister)
		if text := err.Error(); text != said {
			d.config.Log.ErrorContext(ctx, "cannot serve the kubelet, and will try again", "error", err)
			said = text
		}
		select {
		case <-time.After(d.config.RetryPause):
		case <-ctx.Done():
			return nil
		}
	}
}

// serve serves until ctx is done or something breaks.
func (d *Driver) serve(ctx context.Context) error {
	if err := d.directories(); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d.driver, append(d.metadata(),
		kubeletplugin.KubeClient(d.config.Client), kubeletplugin.NodeName(d.config.Node), kubeletplugin.DriverName(v1alpha1.Driver),
		kubeletplugin.PluginDataDirectoryPath(d.config.PluginDir), kubeletplugin.RegistrarDirectoryPath(d.config.RegistryDir),
		// Each claim has its own lock, so that one that waits delays no other.
		kubeletplugin.Serialize(false), kubeletplugin.GRPCInterceptor(d.withFiles),
	)...)
	if err != nil {
		return fmt.Errorf("start driver: %w", err)
	}
	defer helper.Stop()
	defer d.registered.Store(nil)
	ticker := time.NewTicker(socketCheck)
	defer ticker.Stop()
	for {
		if err := d.publish(ctx, helper, ticker.C); err != nil {
			return err
		}
	}
}

// publish publishes what the node has and returns nil when that has changed.
func (d *Driver) publish(ctx context.Context, helper *kubeletplugin.Helper, check <-chan time.Time) error {
	select {
	case <-d.expected:
	default:
		return d.wait(ctx, d.expected, check)
	}
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	resources, changed, err := d.config.Pool(asked)
	if err == nil && resources.Pools != nil {
		err = helper.PublishResources(ctx, resources)
	}
	if err != nil {
		return fmt.Errorf("publish GPUs: %w", err)
	}
	return d.wait(ctx, changed, check)
}

// wait returns nil when what the node offers has changed.
func (d *Driver) wait(ctx context.Context, changed <-chan struct{}, check <-chan time.Time) error {
	for {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case err := <-d.broken:
			return err
		case <-check:
			for _, path := range []string{
				filepath.Join(d.config.PluginDir, "dra.sock"), filepath.Join(d.config.RegistryDir, v1alpha1.Driver+"-reg.sock"),
			} {
				if _, err := os.Lstat(path); err != nil {
					return fmt.Errorf("the socket is gone: %w", err)
				}
			}
		}
	}
}

// directories makes the driver's own directory and checks the kubelet's.
func (d *Driver) directories() error {
	info, err := os.Stat(d.config.RegistryDir)
	if err != nil || !info.IsDir() {
		return fmt.Errorf("find the kubelet: there is no directory %s: start the kubelet, or mount the plugins_registry of its --root-dir there", d.config.RegistryDir)
	}
	if err := os.MkdirAll(d.config.PluginDir, 0o750); err != nil {
		return fmt.Errorf("make driver directory: %w", err)
	}
	return nil
}

// hear notes what the kubelet says of the registration.
func (d *Driver) hear(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if status, ok := request.(*registerapi.RegistrationStatus); ok {
		var err error
		if !status.PluginRegistered {
			d.config.Metrics.Failed(metrics.OperationRegister)
			err = fmt.Errorf("the kubelet refused the driver: %s", status.Error)
			d.config.Log.ErrorContext(ctx, "not registered", "error", err)
		} else {
			d.config.Log.InfoContext(ctx, "registered with the kubelet")
		}
		d.registered.Store(&err)
	}
	return handle(ctx, request)
}
