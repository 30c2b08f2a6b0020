package program

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

const (
	// reasonRate is how many reasons per second are written on pods, and reasonBurst how many at once, so that all members of a
	// gang say together why it waits. Bindings have the rate of the configuration.
	reasonRate  = 200
	reasonBurst = 1200
	// idlePause is how long no pod comes up before lines are tried that have had no turn since the last event.
	idlePause = 5 * time.Millisecond
	// syncPoll is the time between two looks whether everything that is there is known.
	syncPoll = 20 * time.Millisecond
)

// errMaking marks pods whose claims are being made for Kubernetes' own plugin.
var errMaking = errors.New("its claims are being made")

// errUndoing marks pods whose claims are being taken back. They are tried again after a pause.
var errUndoing = errors.New("claims of the last try are being taken back")

// adapter stands between the scheduler of Kubernetes and the engine. It alone knows the fields of the former.
type adapter struct {
	*core
	config  *schedulerconfig.CompletedConfig
	sched   *kubescheduler.Scheduler
	objects metadata.Interface

	nextPod     func(klog.Logger) (*framework.QueuedPodInfo, error)
	schedulePod func(context.Context, framework.Framework, fwk.CycleState, *framework.QueuedPodInfo) (kubescheduler.ScheduleResult, error)
	fail        kubescheduler.FailureHandlerFn
	begun       bool
	// turn is held from when a pod was handed out until the next is asked for, and by whoever uses the engine in between.
	turn    sync.Mutex
	turning bool
	handing handing
	stopped stopped
	// denials are those of members that no trial had foreseen, by gang. Pod anew is one of them, which is to be tried again.
	denials map[string]denials
	anew    atomic.Pointer[types.UID]
	ordering
	// generations are those of the nodes in the order of the snapshot, whose use the engine knows.
	generations []int64
	added       int
	// fenced are the fences that were told of, at the last look.
	fenced map[string]bool
	looked time.Time
}

// adapt replaces the scheduler's decisions for pods with claims for Divvy's devices.
func (c *core) adapt(config *schedulerconfig.CompletedConfig, sched *kubescheduler.Scheduler) error {
	if c.engine == nil {
		return errProfile
	}
	if err := guard(config); err != nil {
		return err
	}
	slow := rest.CopyConfig(config.KubeConfig)
	slow.QPS, slow.Burst = reasonRate, reasonBurst
	client, err := kubernetes.NewForConfig(slow)
	if err != nil {
		return fmt.Errorf("make the client that writes reasons: %w", err)
	}
	objects, err := metadata.NewForConfig(config.KubeConfig)
	if err != nil {
		return fmt.Errorf("make the client that asks which claims there are: %w", err)
	}
	a := &adapter{core: c, objects: objects, config: config, sched: sched, nextPod: sched.NextPod, schedulePod: sched.SchedulePod, fail: sched.FailureHandler}
	c.reasons = scheduler.NewReasons(client, a.record)
	c.activate = func(pods ...*corev1.Pod) {
		if len(pods) == 0 {
			return
		}
		c.engine.Again(pods...)
		named := map[string]*corev1.Pod{}
		for _, pod := range pods {
			named[pod.Namespace+"/"+pod.Name] = pod
		}
		sched.SchedulingQueue.Activate(klog.FromContext(c.ctx), named)
	}
	sched.NextPod, sched.SchedulePod, sched.FailureHandler = a.next, a.schedule, a.failed
	return c.followObjects(config.KubeConfig)
}

// record tells the user of a pod why it waits.
func (a *adapter) record(pod *corev1.Pod, reason string) {
	if fw := a.sched.Profiles[pod.Spec.SchedulerName]; fw != nil {
		fw.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", reason)
	}
}

// takeOver waits until everything that is there is known, and begins to write: only who leads asks for pods. It reports false where
// the scheduler ends.
func (a *adapter) takeOver() bool {
	err := wait.PollUntilContextCancel(a.ctx, syncPoll, true, func(context.Context) (bool, error) { return a.engine.Synced(), nil })
	if err == nil && a.config.LeaderElection != nil {
		err = a.catchUp()
	}
	if err != nil {
		return false
	}
	a.lead()
	a.reasons.Run(a.ctx)
	a.lacking()
	a.release.Run(a.ctx)
	a.sweep()
	a.engine.Drain()
	a.engine.Hush() // others have said it
	for _, unit := range a.engine.Keeping() {
		a.leave(unit)
	}
	a.compare()
	a.ticking()
	return true
}

// next is the next pod, in the order of queues where there are any. Where there are none, lost members of gangs are replaced first.
func (a *adapter) next(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	if !a.begun {
		a.begun = true
		if !a.takeOver() {
			return nil, nil
		}
	}
	if a.turning {
		a.turn.Unlock()
	}
	a.turn.Lock()
	a.turning = true
	defer a.carryOut()
	if info := a.member(logger); info != nil {
		return info, nil
	}
	a.engine.Drain()
	if info := a.ordered(logger); info != nil {
		return info, nil
	}
	info, err := a.await(logger)
	a.engine.Drain()
	if info == nil || err != nil || len(info.Pod.Spec.ResourceClaims) == 0 && !a.engine.Gangs.In(info.Pod) {
		return info, err
	}
	return a.before(logger, info), nil
}

// await waits for the next pod of Kubernetes' queue. If that has none, pods come whose turn it is. Meanwhile others have the engine's turn.
func (a *adapter) await(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	if first := a.engine.First(nil); first != nil || a.engine.Waiting.Due() {
		idle := time.AfterFunc(idlePause, func() {
			if first != nil {
				a.activate(first)
			} else {
				a.activate(a.engine.Waiting.More()...)
			}
		})
		defer idle.Stop()
	}
	a.carryOut()
	a.turn.Unlock()
	defer a.turn.Lock()
	return a.nextPod(logger)
}

// sweep releases what pods left that ended while nobody led.
func (a *adapter) sweep() {
	claims, err := a.config.InformerFactory.Resource().V1().ResourceClaims().Lister().List(labels.Everything())
	if err != nil {
		return // a lister's memory does not fail
	}
	pods := a.config.InformerFactory.Core().V1().Pods().Lister()
	a.release.Sweep(claims, func(namespace string, user resourcev1.ResourceClaimConsumerReference) bool {
		pod, err := pods.Pods(namespace).Get(user.Name)
		return err == nil && pod.UID == user.UID
	})
}

// schedule finds a node for a pod: by Divvy's order for pods with claims for its devices, and as Kubernetes does for others.
func (a *adapter) schedule(ctx context.Context, fw framework.Framework, state fwk.CycleState, info *framework.QueuedPodInfo) (kubescheduler.ScheduleResult, error) {
	a.engine.Drain()
	inGang := a.engine.Gangs.In(info.Pod)
	if len(info.Pod.Spec.ResourceClaims) == 0 && !inGang {
		return a.plain(ctx, fw, state, info)
	}
	if a.isUndoing(info.Pod.UID) {
		return kubescheduler.ScheduleResult{}, errUndoing
	}
	a.settle()
	a.fences() //nolint:contextcheck // the comparison goes on after this cycle
	nodes, err := a.use(fw)
	if err != nil {
		return kubescheduler.ScheduleResult{}, err
	}
	if unit := a.handing.units[info.Pod.UID]; unit != nil { // it has its place
		return a.scheduleMember(ctx, fw, state, unit, newRefusal(info.Pod, nodes))
	}
	if t, ready := a.engine.Taking(info.Pod); t != nil && !ready {
		state.Write(cycleKey, &cycle{unit: &scheduler.Unit{Pod: info.Pod}, nominated: t.Node(info.Pod)})
		return kubescheduler.ScheduleResult{}, newRefusal(info.Pod, nodes).because(t.Reason)
	}
	if inGang {
		state.Write(cycleKey, &cycle{unit: &scheduler.Unit{Pod: info.Pod}})
		return a.gang(ctx, fw, state, info.Pod, newRefusal(info.Pod, nodes))
	}
	unit, err := a.engine.Read(info.Pod)
	if scheduler.Elsewhere(err) {
		return a.elsewhere(ctx, fw, state, info, unit, newRefusal(info.Pod, nodes))
	}
	state.Write(cycleKey, &cycle{unit: unit})
	refusal := newRefusal(info.Pod, nodes)
	if err != nil {
		state.Write(cycleKey, &cycle{unit: &scheduler.Unit{Pod: info.Pod}})
		return kubescheduler.ScheduleResult{}, refusal.because(err.Error())
	}
	if info.Attempts <= 1 {
		a.engine.Arrived(unit)
	}
	if result, err, refused := a.quota(ctx, fw, state, unit, refusal); refused {
		return result, err
	}
	return a.choose(ctx, fw, state, unit, refusal)
}

// elsewhere has Kubernetes find a node for a pod with claims that Divvy's allocator cannot place.
func (a *adapter) elsewhere(ctx context.Context, fw framework.Framework, state fwk.CycleState, info *framework.QueuedPodInfo, unit *scheduler.Unit, refusal *refusal) (kubescheduler.ScheduleResult, error) {
	a.engine.Waiting.Remove(info.Pod.UID) // whom the ledger does not refuse again, Kubernetes' own events concern
	if unit.Missing() {
		a.make(unit)
		return kubescheduler.ScheduleResult{}, refusal.because(errMaking.Error())
	}
	if err := a.engine.Disputed(unit); err != nil {
		state.Write(cycleKey, &cycle{unit: unit})
		return kubescheduler.ScheduleResult{}, a.noRoom(ctx, fw, state, unit, refusal, err)
	}
	state.Write(cycleKey, &cycle{unit: unit, elsewhere: true})
	if err := a.engine.Quota(unit); err != nil {
		return kubescheduler.ScheduleResult{}, refusal.because(err.Error())
	}
	return a.schedulePod(ctx, fw, state, info)
}

// use tells the engine what nodes' pods ask, and returns how many nodes there are.
func (a *adapter) use(fw framework.Framework) (int, error) {
	nodes, err := fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0, fmt.Errorf("list the nodes: %w", err)
	}
	if added := a.engine.Added(); added != a.added || len(nodes) != len(a.generations) {
		a.added, a.generations = added, make([]int64, len(nodes))
	}
	for i, n := range nodes {
		// No two states of nodes have one generation.
		if a.generations[i] == n.GetGeneration() {
			continue
		}
		a.generations[i] = n.GetGeneration()
		a.engine.Use(n.Node().Name, n.GetGeneration(), func() (int64, uint64) {
			return n.GetRequested().GetMilliCPU(), uint64(max(0, n.GetRequested().GetMemory()))
		})
	}
	return len(nodes), nil
}

// choose walks through the places of the engine until Kubernetes' filters let the pod.
func (a *adapter) choose(ctx context.Context, fw framework.Framework, state fwk.CycleState, unit *scheduler.Unit, refusal *refusal) (kubescheduler.ScheduleResult, error) {
	var result kubescheduler.ScheduleResult
	pod := unit.Pod
	pre, status, rejectors := fw.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return result, status.AsError()
		}
		refusal.error.Diagnosis.UnschedulablePlugins = rejectors
		return result, refusal.because(status.Message())
	}
	var among []string
	if !pre.AllNodes() {
		among = sets.List(pre.NodeNames)
	}
	begun := time.Now()
	err := a.engine.Choose(unit, among, func(node string) bool {
		result.EvaluatedNodes++
		info, err := fw.SnapshotSharedLister().NodeInfos().Get(node)
		if err != nil {
			return false
		}
		status := fw.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
		if !status.IsSuccess() {
			refusal.node(node, a.spared(pod, info, status))
		}
		return status.IsSuccess()
	})
	measured(begun, err)
	switch {
	case errors.Is(err, scheduler.ErrRoom):
		return result, a.noRoom(ctx, fw, state, unit, refusal, err)
	case errors.Is(err, scheduler.ErrQuota):
		a.engine.Waiting.Add(pod, unit.Shape())
		return result, refusal.because(a.takeBackUnit(ctx, fw, state, unit, err))
	case err != nil:
		return result, refusal.because(err.Error())
	}
	if next := a.engine.Waiting.Next(pod.UID); next != nil {
		a.activate(next)
	}
	result.SuggestedHost, result.FeasibleNodes = unit.Place.Name, 1
	return result, nil
}

// noRoom frees a pod from the node of its claims, or has it wait. Nobody is ended for a claim that contradicts others.
func (a *adapter) noRoom(ctx context.Context, fw framework.Framework, state fwk.CycleState, unit *scheduler.Unit, refusal *refusal, why error) error {
	if unit.Stuck() {
		a.leave(unit)
		return errUndoing
	}
	a.engine.Waiting.Add(unit.Pod, unit.Shape())
	if scheduler.Contested(why) {
		return refusal.because(why.Error())
	}
	return refusal.because(a.takeBackUnit(ctx, fw, state, unit, why))
}

// make makes claims that Kubernetes' own plugin is to place. When they have come, the pod is tried again.
func (a *adapter) make(unit *scheduler.Unit) {
	go func() {
		if err := a.writer.Make(a.ctx, unit); err != nil {
			klog.FromContext(a.ctx).Error(err, "Claims not made", "pod", klog.KObj(unit.Pod))
			a.activate(unit.Pod)
		}
	}()
}

// leave frees a pod from the node of its claims, where it may not be.
func (a *adapter) leave(unit *scheduler.Unit) {
	a.setUndoing(unit.Pod.UID, true)
	go func() {
		defer a.setUndoing(unit.Pod.UID, false)
		a.writer.Leave(a.ctx, unit)
		_ = a.engine.Settle(a.ctx, a.writer, unit) // it fails when the scheduler ends
	}()
}

// failed puts a pod back as Kubernetes does, but has reasons of Divvy's pods written by a client of their own.
func (a *adapter) failed(ctx context.Context, fw framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
	if len(info.Pod.Spec.ResourceClaims) == 0 && !a.engine.Gangs.In(info.Pod) {
		a.fail(ctx, fw, info, status, nominating, start)
		return
	}
	var fit *framework.FitError
	if errors.As(status.AsError(), &fit) {
		fit.Diagnosis.PostFilterMsg = "" // one reason is enough
	}
	pod := info.Pod
	a.fail(ctx, aside{fw, a.reasons}, info, status, nominating, start)
	anew := a.anew.Load() // failures of bindings come here beside the cycle
	again := anew != nil && *anew == pod.UID && a.anew.CompareAndSwap(anew, nil)
	if again || a.engine.Waiting.Has(pod.UID) && a.engine.Late() {
		a.activate(pod)
	}
}
