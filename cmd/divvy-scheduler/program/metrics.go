package program

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

const metricsStart = "divvy_scheduler"

// Figures of the engine, beside those of Kubernetes' scheduler.
var (
	planSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: metricsStart, Name: "plan_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time to find places for a pod or a gang, with Kubernetes' filters.",
		Buckets: metrics.ExponentialBuckets(0.0001, 2, 16),
	})
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: metricsStart, Name: "refusals_total", StabilityLevel: metrics.ALPHA,
		Help: "Tries to place a pod that failed, by cause: room, quota, wait, demand or other.",
	}, []string{"cause"})
	fencedGPUs = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "fenced_gpus", StabilityLevel: metrics.ALPHA,
		Help: "GPUs that take no more shares, because what is given of them contradicts itself.",
	})
	victims = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: metricsStart, Name: "victims_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods that were told to end for others, by rule: opportunistic, entitlement, priority or move.",
	}, []string{"rule"})
	suspensions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: metricsStart, Name: "suspensions_total", StabilityLevel: metrics.ALPHA,
		Help: "Orders to claims, by outcome: ordered, resumed or failed; and pods that end because they could not be suspended: refused.",
	}, []string{"outcome"})
	suspendedPods = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "suspended_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods that are out of their GPUs for others.",
	})
	undoingPods = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "undoing_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods whose claims are being taken back.",
	})
	compareSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: metricsStart, Name: "ledger_compare_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time to compare the ledger with a rebuild, beside the scheduling cycle.",
		Buckets: metrics.ExponentialBuckets(0.001, 2, 16),
	})
	// ledgerDifferences is served after the first comparison: 0 says that one found nothing.
	ledgerDifferences atomic.Int64
	firstComparison   sync.Once
)

// registerMetrics has figures served. Those that change while no cycle runs are asked for when they are read.
func registerMetrics(engine *scheduler.Engine) {
	legacyregistry.MustRegister(planSeconds, refusals, victims, suspensions, suspendedPods, fencedGPUs, undoingPods, compareSeconds)
	asked("waiting_pods", "Pods for which there is no room.", engine.Waiting.Len)
	asked("unwritten_claims", "Claims whose places are noted in the ledger and that have not come with their allocation.", engine.Unwritten)
}

// asked is a figure that is asked for when it is read.
func asked(name, help string, value func() int) {
	opts := &metrics.GaugeOpts{Subsystem: metricsStart, Name: name, StabilityLevel: metrics.ALPHA, Help: help}
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(opts, func() float64 { return float64(value()) }))
}

// compare has the ledger compared with a rebuild, if that is due.
func (a *adapter) compare() {
	a.engine.Compare(time.Now, func(c scheduler.Comparison, err error) {
		log := klog.FromContext(a.ctx)
		if err != nil {
			log.Error(err, "Ledger not compared")
			return
		}
		if c.Differences > 0 {
			log.Error(nil, "Ledger differs from a rebuild", "differences", c.Differences, "first", c.First)
		}
		compareSeconds.Observe(c.Took.Seconds())
		ledgerDifferences.Store(int64(c.Differences))
		firstComparison.Do(func() {
			asked("ledger_differences", "GPUs and nodes of which the ledger said something else than a rebuild, at the last comparison.",
				func() int { return int(ledgerDifferences.Load()) })
		})
	})
}

// measured counts a try to place a pod.
func measured(begun time.Time, err error) {
	planSeconds.Observe(time.Since(begun).Seconds())
	switch {
	case err == nil:
	case errors.Is(err, scheduler.ErrRoom):
		refusals.WithLabelValues("room").Inc()
	case errors.Is(err, scheduler.ErrQuota):
		refusals.WithLabelValues("quota").Inc()
	case errors.Is(err, scheduler.ErrWait):
		refusals.WithLabelValues("wait").Inc()
	case errors.Is(err, demand.ErrDemand):
		refusals.WithLabelValues("demand").Inc()
	default:
		refusals.WithLabelValues("other").Inc()
	}
}

// fenceEvery is the least time between two looks for fences.
const fenceEvery = time.Second

// fences tells of each GPU that is fenced now and was not, as an event of its node.
func (a *adapter) fences() {
	now := time.Now()
	if now.Sub(a.looked) < fenceEvery {
		return
	}
	a.looked = now
	a.compare()
	all := a.engine.Fences()
	fencedGPUs.Set(float64(len(all)))
	known := a.fenced
	a.fenced = map[string]bool{}
	for _, f := range all {
		id := f.Node + " " + f.UUID + " " + f.Reason
		a.fenced[id] = true
		if !known[id] {
			a.recordFence(f)
		}
	}
}

func (a *adapter) recordFence(f ledger.Fence) {
	if host, ok := v1alpha1.HostOfPool(f.Node); ok {
		f.Node = host
	}
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: f.Node}}
	for _, fw := range a.sched.Profiles {
		fw.EventRecorder().Eventf(node, nil, corev1.EventTypeWarning, "GPUFenced", "Scheduling",
			"GPU %s takes no more shares: %s; claims %v", f.UUID, f.Reason, f.Claims)
		return
	}
}
