package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Lease is the name of the lease that the working replica holds.
const Lease = "divvy-controller"

// Options are what a controller is started with.
type Options struct {
	Client kubernetes.Interface
	// Leases asks for the lease. What Client asks must not hold it up: whoever holds a lease renews it within seconds.
	Leases coordination.LeasesGetter
	// Namespace is where the lease is.
	Namespace string
	// Scheduler is the name under which Divvy's scheduler runs, if it runs. It says itself why its pods wait.
	Scheduler string
	// Plain answers metrics and probes; the controller closes it.
	Plain net.Listener
	// Web serves the cluster's web page until its context ends, on every replica; nil where there is none.
	Web func(ctx context.Context) error
	// Issue gives nodes certificates until its context ends, on every replica; nil where no node uses the GPUs of another.
	Issue func(ctx context.Context) error
	Log   *slog.Logger
}

// ErrLeaseLost is returned when another replica has taken the lease.
var ErrLeaseLost = errors.New("the lease is lost")

// Run waits for the lease and then works until the context ends, or the lease is lost.
func Run(ctx context.Context, o Options) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this host's name: %w", err)
	}
	identity := host + "_" + string(uuid.NewUUID())
	registry := prometheus.NewRegistry()
	c := newController(o.Client, o.Scheduler, identity, o.Log, registry)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	probes := &http.Server{Handler: probes(registry), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() {
		served <- probes.Serve(o.Plain)
		stop()
	}()
	shown := make(chan error, 1)
	go func() { shown <- o.show(leading, stop) }()
	worked, err := lead(leading, o, identity, c.work)
	stop()
	unshown := <-shown
	closed := probes.Close()
	unserved := <-served
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return nil
	case !errors.Is(unserved, http.ErrServerClosed):
		return fmt.Errorf("answer probes: %w", unserved)
	case unshown != nil:
		return unshown
	case worked != nil:
		return worked
	case closed != nil:
		return fmt.Errorf("end the probes: %w", closed)
	}
	return fmt.Errorf("%w: another replica works now, and this one restarts", ErrLeaseLost)
}

// show serves the web page, and issues certificates, if either is asked for. Without it the controller ends.
func (o *Options) show(ctx context.Context, stop func()) error {
	faults := make([]error, 2)
	var running sync.WaitGroup
	for i, serve := range []func(context.Context) error{o.Web, o.Issue} {
		if serve != nil {
			running.Go(func() {
				defer stop()
				faults[i] = serve(ctx)
			})
		}
	}
	running.Wait()
	return errors.Join(faults...)
}

// lead runs the work while this replica holds the lease, and returns once both have ended.
func lead(ctx context.Context, o Options, identity string, work func(context.Context) error) (worked, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var begun atomic.Bool
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: Lease, Namespace: o.Namespace},
			Client:     o.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Name:            Lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if begun.Store(true); ctx.Err() == nil {
					o.Log.Info("holding the lease", "identity", identity)
				}
				ended <- work(ctx)
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("compete for the lease: %w", err)
	}
	elector.Run(ctx)
	if begun.Load() {
		worked = <-ended
	}
	return worked, nil
}

func probes(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", ok)
	// A replica that waits for the lease does what it should.
	mux.HandleFunc("GET /readyz", ok)
	return mux
}

// controller is the replica that works.
type controller struct {
	client  kubernetes.Interface
	known   *known
	cluster *cluster // as it was when it was refreshed last
	reasons *reasons
	maker   *maker
	hosts   *hosts
	now     func() time.Time
	log     *slog.Logger

	collected, explained prometheus.Counter
}

func newController(client kubernetes.Interface, scheduler, identity string, log *slog.Logger, registry prometheus.Registerer) *controller {
	c := &controller{
		client: client, known: newKnown(client, scheduler), cluster: newEmptyCluster(celCache()), now: time.Now, log: log,
		reasons: &reasons{client: client, now: time.Now, instance: identity, said: make(map[types.UID]*saying)},
		collected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "divvy_controller_templates_collected_total", Help: "Claim templates deleted because no pod used them.",
		}),
		explained: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "divvy_controller_reasons_total", Help: "Times that a waiting pod was told why no GPU fits.",
		}),
	}
	c.maker, c.hosts = newMaker(client, c.known, c.reasons, log), newHosts(client, c.known, log)
	registry.MustRegister(c.collected, c.explained, c.maker.made)
	return c
}

// pause is the least time between two looks at all waiting pods, because a cluster that starts many pods changes all
// the time.
const pause = 2 * time.Second

// work makes and collects templates and explains until the context ends.
func (c *controller) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer c.known.stop()
	defer stop()
	if err := c.maker.watch(); err != nil {
		return err
	}
	if err := c.known.start(ctx); err != nil {
		return err
	}
	defer c.maker.start(ctx)()
	collect := time.NewTicker(collectEvery)
	defer collect.Stop()
	// A look without a change writes the events that were not due before, and sees changed nodes.
	look := time.NewTicker(quiet)
	defer look.Stop()
	reached := time.NewTicker(hostsEvery)
	defer reached.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	c.collect(ctx)
	for {
		changed := c.known.changed
		select {
		case <-ctx.Done():
			return nil
		case <-collect.C:
			c.collect(ctx)
			continue
		case <-reached.C:
			c.hosts.look(ctx)
			continue
		case <-look.C:
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
		c.explain(ctx)
		rest.Reset(pause)
	}
}

// mostReasons is how many events one look at all waiting pods writes. The rest comes with the next look, in which a pod
// that began to wait meanwhile has its turn too.
const mostReasons = 100

// explain writes an event on each waiting pod for which the reason has changed. Namespaces take turns.
func (c *controller) explain(ctx context.Context) {
	pods, err := c.known.waiting()
	err = errors.Join(err, c.known.refresh(c.cluster))
	if err != nil {
		c.log.Error("pods cannot be explained", "error", err)
		return
	}
	still := make(map[types.UID]bool)
	for _, pod := range pods {
		still[pod.UID] = true
	}
	c.reasons.forget(still)
	told := 0
	for pod := range inTurns(pods) {
		if ctx.Err() != nil {
			return
		}
		if c.reasons.rest(pod.UID) {
			continue
		}
		text := noteOf(c.cluster.explain(ctx, pod, c.claimsOf(pod)))
		if text == "" || !c.reasons.due(pod.UID, text) {
			continue
		}
		if told++; told > mostReasons {
			c.known.notice()
			return
		}
		if err := c.reasons.say(ctx, pod, text); err != nil {
			c.log.Error("a pod is not told why it waits; trying again", "error", err)
			continue
		}
		c.explained.Inc()
		c.log.Info("no share fits", "namespace", pod.Namespace, "pod", pod.Name, "because", text)
	}
}

// claimsOf returns the pod's claims that exist.
func (c *controller) claimsOf(pod *corev1.Pod) []*resourcev1.ResourceClaim {
	var claims []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, generated, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim, err := c.known.claim(pod.Namespace, *name)
		if err != nil || generated && resourceclaim.IsForPod(pod, claim, false) != nil {
			continue
		}
		claims = append(claims, claim)
	}
	return claims
}
