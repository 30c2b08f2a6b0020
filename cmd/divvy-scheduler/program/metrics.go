package program

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

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
		Help: "Tries to place a pod that failed, by cause: room, wait, demand or other.",
	}, []string{"cause"})
	fencedGPUs = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "fenced_gpus", StabilityLevel: metrics.ALPHA,
		Help: "GPUs that take no more shares, because what is given of them contradicts itself.",
	})
	undoingPods = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "undoing_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods whose claims are being taken back.",
	})
	waitingPods = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: metricsStart, Name: "waiting_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods for which there is no room.",
	})
)

func registerMetrics() {
	legacyregistry.MustRegister(planSeconds, refusals, fencedGPUs, undoingPods, waitingPods)
}

// measured counts a try to place a pod.
func measured(begun time.Time, err error) {
	planSeconds.Observe(time.Since(begun).Seconds())
	switch {
	case err == nil:
	case errors.Is(err, scheduler.ErrRoom):
		refusals.WithLabelValues("room").Inc()
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
	waitingPods.Set(float64(a.engine.Waiting.Len()))
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
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: f.Node}}
	for _, fw := range a.sched.Profiles {
		fw.EventRecorder().Eventf(node, nil, corev1.EventTypeWarning, "GPUFenced", "Scheduling",
			"GPU %s takes no more shares: %s; claims %v", f.UUID, f.Reason, f.Claims)
		return
	}
}
