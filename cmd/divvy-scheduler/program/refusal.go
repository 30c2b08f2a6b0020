package program

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// refusal is why a pod gets no node, as Kubernetes wants to know it.
type refusal struct{ error *framework.FitError }

func newRefusal(pod *corev1.Pod, nodes int) *refusal {
	return &refusal{&framework.FitError{Pod: pod, NumAllNodes: nodes, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(PluginName),
	}}}
}

// node notes what Kubernetes' filters say of a node that has room for the claims: there it may help to evict pods.
func (r *refusal) node(name string, status *fwk.Status) {
	r.error.Diagnosis.NodeToStatus.Set(name, status)
	r.error.Diagnosis.AddPluginStatus(status)
}

// because is the refusal for one reason. On nodes of which nothing is noted it helps nobody to evict pods.
func (r *refusal) because(text string) error {
	r.error.Diagnosis.PreFilterMsg = text
	r.error.Diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text))
	r.error.Diagnosis.UnschedulablePlugins = r.error.Diagnosis.UnschedulablePlugins.Union(sets.New(PluginName))
	return r.error
}

// unschedulable is the condition of a pod that gets no node.
func unschedulable(pod *corev1.Pod, text string) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: text,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, corev1.PodScheduled),
	}
}

// aside is the framework for Kubernetes' handler of failures: what it writes goes to the writer of reasons.
type aside struct {
	framework.Framework
	reasons *scheduler.Reasons
}

// APICacher implements fwk.Handle.
func (a aside) APICacher() fwk.APICacher { return cacher(a) }

// EventRecorder implements fwk.Handle. The writer of reasons records them when they change.
func (a aside) EventRecorder() events.EventRecorderLogger { return silent{} }

// cacher takes the writes of Kubernetes' handler of failures.
type cacher aside

var errCacher = errors.New("only statuses are written here")

// PatchPodStatus implements fwk.APICacher.
func (c cacher) PatchPodStatus(pod *corev1.Pod, condition *corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	var nominated *string
	if nominating.Mode() == fwk.ModeOverride {
		nominated = &nominating.NominatedNodeName
	}
	c.reasons.Say(pod, condition, nominated)
	return nil, nil
}

// BindPod implements fwk.APICacher.
func (c cacher) BindPod(*corev1.Binding) (<-chan error, error) { return nil, errCacher }

// WaitOnFinish implements fwk.APICacher.
func (c cacher) WaitOnFinish(context.Context, <-chan error) error { return nil }

// silent records nothing.
type silent struct{}

// Eventf implements events.EventRecorder.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// WithLogger implements events.EventRecorderLogger.
func (s silent) WithLogger(klog.Logger) events.EventRecorderLogger { return s }
