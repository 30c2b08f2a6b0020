package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/remote/issuer"
)

// Mode is the way in which containers get their shares.
type Mode string

// The modes.
const (
	// ModeAuto follows from the API server's version.
	ModeAuto Mode = "auto"
	// ModeClaims is dynamic resource allocation, Kubernetes 1.36 and later.
	ModeClaims Mode = "claims"
	// ModeSlots is the device plugin with NRI, Kubernetes 1.32 to 1.35.
	ModeSlots Mode = "slots"
)

// Modes are all that a flag takes.
var Modes = []Mode{ModeAuto, ModeClaims, ModeSlots}

// memoryLimit bounds bursts, such as lists read from the API server. A limit close to
// what is always in use would keep the garbage collector busy.
const memoryLimit = 64 << 20

// Options are what `divvy agent --kubernetes` is told.
type Options struct {
	Node   string
	Client kubernetes.Interface
	Mode   Mode
	// MetricsAddress is where metrics and probes are answered; empty is that of the agent's configuration.
	MetricsAddress string
	// KubeletDir is the kubelet's root directory.
	KubeletDir string
	// Defaults are for shares that name no policy or no cores, unless the node's
	// labels say otherwise; for mode claims.
	Defaults v1alpha1.NodeDefaults
	// Kernels are the handlers of runtime classes whose containers run on a kernel of their own; nil are the usual ones.
	Kernels v1alpha1.Kernels
	// NVIDIALabels is whether the node is labelled as NVIDIA's GPU feature discovery does.
	NVIDIALabels bool
	// DevicePluginConfigs is a folder with named configurations of NVIDIA's device plugin, a file each, by which the
	// node's GPUs are divided, in mode claims by their forms alone; empty is none.
	DevicePluginConfigs string
	// NVIDIANames has GPUs published with the attributes of NVIDIA's DRA driver as well.
	NVIDIANames bool
	// Pool are the GPUs that other nodes reach through the network; for mode claims.
	Pool Pool
	// Issuer gives this node the certificates with which it uses GPUs of other nodes; it has no address where there are none.
	Issuer issuer.Client
	// Quiet writes no events on pods of what becomes of their shares; for mode claims, which alone writes them.
	Quiet bool
	// Version is the version of Divvy.
	Version string
}

// Validate returns which options are missing or invalid.
func (o *Options) Validate() error {
	var faults []error
	if o.Node == "" {
		faults = append(faults, errors.New("the node's name is missing: give --node-name, or set NODE_NAME from spec.nodeName"))
	}
	if !strings.HasPrefix(o.KubeletDir, "/") {
		faults = append(faults, fmt.Errorf("--kubelet-dir %q: give an absolute path", o.KubeletDir))
	}
	if err := o.Defaults.Validate(); err != nil {
		faults = append(faults, err)
	}
	if err := o.Kernels.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("--own-kernels: %w", err))
	}
	if err := o.Pool.validate(); err != nil {
		faults = append(faults, err)
	}
	if o.Mode == ModeSlots && len(o.Pool.GPUs) > 0 {
		faults = append(faults, errSlotPool)
	}
	if o.Mode == ModeSlots && o.Defaults != (v1alpha1.NodeDefaults{}) {
		faults = append(faults, errSlotDefaults)
	}
	return errors.Join(faults...)
}

// node is one agent in its cluster.
type node struct {
	daemon.Node
	options   Options
	metrics   *metrics.Metrics
	shown     *exposition.Exposition
	publisher *publisher
	// policy divides the GPUs; nil where no configuration says how.
	policy *policy

	mu    sync.Mutex
	ready func() error
}

// Face serves the cluster until ctx is done. It is a [daemon.Face].
func (o Options) Face(ctx context.Context, n daemon.Node) error {
	// A limit that the environment sets is kept.
	if debug.SetMemoryLimit(-1) > 1<<60 {
		debug.SetMemoryLimit(memoryLimit)
	}
	address := cmp.Or(o.MetricsAddress, n.Rules.Metrics().Address, exposition.DefaultAddress)
	if address == agentconfig.NoMetrics {
		return fmt.Errorf("serve metrics at %q: the kubelet's probes need an address: leave it out for %s", address, exposition.DefaultAddress)
	}
	listener, err := exposition.Listen(ctx, address)
	if err != nil && !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	k := &node{Node: n, options: o, publisher: newPublisher(ctx, n, o.NVIDIANames)}
	if o.DevicePluginConfigs != "" {
		k.policy = k.newPolicy(ctx)
	}
	k.metrics = metrics.New(o.Node)
	k.shown = exposition.New(exposition.Config{
		Source: n.Agent, Node: o.Node, Faults: n.Health.Reasons, XIDs: n.Health.XIDs,
		DCGM: n.Rules.Metrics().DCGM, Exporter: daemon.ExporterRuns, Fresh: time.Second, Version: o.Version, Log: n.Log,
		Failed: func() { k.metrics.Failed(metrics.OperationList) },
	})
	return k.run(ctx, address, listener)
}

// serveMetrics answers scrapes and probes until ctx is done. A port that is taken, for which there is no listener yet, can be
// anybody's: the agent goes on, and tries again.
func (k *node) serveMetrics(ctx context.Context, address string, listener net.Listener, note func(text string)) error {
	if listener == nil {
		note("another program has " + address + ", so that this agent answers neither probes nor scrapes, and what answers there is not Divvy; it tries again")
		if listener = daemon.ListenAgain(ctx, address); listener == nil {
			return nil
		}
		note(address + " is free again: probes and scrapes are answered")
	}
	answers := exposition.Handler(exposition.Probes{Ready: k.readiness}, k.metrics, k.shown)
	return exposition.Serve(ctx, listener, k.Pages.Beside(listener, answers))
}

func (k *node) run(ctx context.Context, address string, listener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	start := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(func(ctx context.Context) error {
		return k.serveMetrics(ctx, address, listener, func(text string) {
			k.Log.WarnContext(ctx, text)
			k.Agent.NoteFault(text)
		})
	})
	start(func(ctx context.Context) error {
		keeper := nodelabels.Keeper{
			Nodes: k.options.Client.CoreV1().Nodes(), Node: k.options.Node, GPUs: k.publisher.labels, Log: k.Log,
			Failed: func(error) { k.metrics.Failed(metrics.OperationLabel) },
		}
		if k.options.NVIDIALabels {
			keeper.Machine = func() nodelabels.Machine { return k.publisher.machine(k.policy) }
		}
		if k.policy != nil {
			keeper.GPUs = func() ([]nodelabels.GPU, <-chan struct{}) {
				_, divided := k.policy.units(nil)
				gpus, sick := k.publisher.labels()
				return gpus, either(ctx, divided, sick)
			}
		}
		keeper.Run(ctx)
		return nil
	})
	start(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-k.Health.Found():
			return errFound
		}
	})
	start(func(ctx context.Context) error {
		trim(ctx, k.Log)
		return nil
	})
	start(k.serve)
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// errFound ends the agent, so that the one that the kubelet starts next serves all GPUs. Tenants do not notice.
var errFound = errors.New("a GPU that was lost when this agent started has come back: restarting to serve it")

// errStarting is what the readiness probe answers before the kubelet is served.
var errStarting = errors.New("the version of Kubernetes is not known yet")

func (k *node) readiness() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ready == nil {
		return errStarting
	}
	return k.ready()
}

func (k *node) setReady(ready func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready = ready
}

// serve finds out the mode and serves the kubelet in it.
func (k *node) serve(ctx context.Context) error {
	switch k.mode() {
	case ModeClaims:
		return k.together(ctx, k.serveClaims, k.insist)
	case ModeSlots:
		return k.serveSlots(ctx)
	}
	mode, err := k.choose(ctx)
	switch {
	case err != nil || mode == "":
		return err
	case mode == ModeClaims:
		return k.serveClaims(ctx)
	}
	return k.serveSlots(ctx)
}

// mode returns the mode that was asked for. Where claims are prepared already, it is
// claims: the kubelet may want to release them while the API server is away.
func (k *node) mode() Mode {
	if k.options.Mode == ModeAuto && slices.ContainsFunc(k.Agent.Tenancies(), isClaims) {
		return ModeClaims
	}
	return k.options.Mode
}

// isClaims reports whether a tenancy is a claim's. Of one without a key that is not known.
func isClaims(t agent.Tenancy) bool {
	_, pods := agent.PodOfKey(t.Key)
	return t.Key != "" && !pods
}

// together runs all until ctx is done or one fails.
func (k *node) together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	faults := make([]error, len(all))
	var running sync.WaitGroup
	for i, run := range all {
		running.Go(func() {
			if faults[i] = run(ctx); faults[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(faults...)
}

// insist returns an error where the cluster does not support claims, which were asked for.
func (k *node) insist(ctx context.Context) error {
	mode, err := k.choose(ctx)
	if mode == ModeSlots {
		return fmt.Errorf("%w: --mode=claims needs 1.36 or newer: use --mode=slots or --mode=auto", ErrVersion)
	}
	return err
}

// pause is the time between two requests to an API server that does not answer.
const pause = 5 * time.Second

// choose asks the API server for its version until it answers, and returns the mode
// that follows from it; the mode is empty when ctx was done first.
func (k *node) choose(ctx context.Context) (Mode, error) {
	said := false
	for {
		version, err := k.version(ctx)
		if err == nil {
			mode, err := modeFor(version.Major, version.Minor)
			k.Log.InfoContext(ctx, "found the cluster", "version", version.GitVersion, "mode", mode)
			if minor, _ := minorOf(version.Minor); err == nil && minor > v1alpha1.NewestMinor {
				k.Log.WarnContext(ctx, fmt.Sprintf("this Kubernetes is newer than 1.%d, the newest that this version of Divvy was run with: going on", v1alpha1.NewestMinor), "version", version.GitVersion)
			}
			return mode, err
		}
		if !said {
			k.Log.WarnContext(ctx, "cannot read the API server's version: trying again", "error", err)
			said = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", nil
		}
	}
}

// version asks once. The question cannot be called off, so its answer is then
// left to nobody.
func (k *node) version(ctx context.Context) (*version.Info, error) {
	type answer struct {
		info *version.Info
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		info, err := k.options.Client.Discovery().ServerVersion()
		answers <- answer{info, err}
	}()
	select {
	case a := <-answers:
		return a.info, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
