package program

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// trials ask Kubernetes' filters whether they let members of a gang onto nodes, before any of them has a cycle. Members that
// differ in nothing that a filter looks at share one run of the prefilters, and one answer for each node.
type trials struct {
	ctx context.Context //nolint:containedctx // it is that of the cycle, as long as which they live
	fw  framework.Framework
	// labels tells that filters may tell members apart by their labels alone.
	labels bool
	// meet tells that a member may mind others, beyond how many pods a node takes.
	meet  bool
	of    map[types.UID]*trial
	alike map[string]*trial
	// whys count what filters said of members and nodes.
	whys map[string]int
	// denials are those of members that were planned before.
	denials denials
}

// trial is what is known of members that are alike.
type trial struct {
	key   string
	state fwk.CycleState
	// among are the nodes that the prefilters leave; nil is all.
	among sets.Set[string]
	none  bool
	lets  map[string]bool
	// beside is the state with the members of a plan that are in with.
	beside fwk.CycleState
	with   []companion
	// freed is what lets would be if others had ended, see afterwards.
	freed map[string]bool
}

func newTrials(ctx context.Context, fw framework.Framework) *trials {
	far, err := fw.SnapshotSharedLister().NodeInfos().HavePodsWithRequiredAntiAffinityList()
	return &trials{ctx: ctx, fw: fw, labels: err != nil || len(far) > 0, of: map[types.UID]*trial{}, alike: map[string]*trial{}, whys: map[string]int{}}
}

// Lets implements scheduler.Trials.
func (t *trials) Lets(pod *corev1.Pod, node string) bool {
	one := t.trial(pod)
	if one.none || one.among != nil && !one.among.Has(node) {
		return false
	}
	answer, known := one.lets[node]
	if !known {
		info, err := t.fw.SnapshotSharedLister().NodeInfos().Get(node)
		answer = err == nil && t.asked(t.fw.RunFilterPluginsWithNominatedPods(t.ctx, one.state, pod, info))
		one.lets[node] = answer
	}
	return answer
}

func (t *trials) trial(pod *corev1.Pod) *trial {
	if one := t.of[pod.UID]; one != nil {
		return one
	}
	key := t.key(pod)
	one := t.alike[key]
	if one == nil || key == "" {
		one = &trial{key: key, state: framework.NewCycleState(), lets: map[string]bool{}, freed: map[string]bool{}}
		one.state.Write(cycleKey, &cycle{unit: &scheduler.Unit{Pod: pod}})
		pre, status, _ := t.fw.RunPreFilterPlugins(t.ctx, one.state, pod)
		if one.none = !t.asked(status); !one.none && !pre.AllNodes() {
			one.among = pre.NodeNames
		}
		t.alike[key] = one
	}
	t.of[pod.UID] = one
	return one
}

// ordinals are labels that differ among members of one controller. No filter looks at them unless a selector names them.
var ordinals = []string{"batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"}

// key is equal for members that no filter tells apart; empty is for a member that is alone.
func (t *trials) key(pod *corev1.Pod) string {
	spec := pod.Spec
	spec.Hostname = ""
	// Divvy places the claims, whatever their names.
	spec.ResourceClaims = nil
	plain := make([]corev1.Container, len(spec.Containers))
	for i := range spec.Containers {
		plain[i] = spec.Containers[i]
		plain[i].Args, plain[i].Command, plain[i].Env = nil, nil, nil
	}
	spec.Containers = plain
	labels := map[string]string{}
	for name, value := range pod.Labels {
		labels[name] = value
	}
	if affinity := spec.Affinity; !t.labels && len(spec.TopologySpreadConstraints) == 0 && (affinity == nil || affinity.PodAffinity == nil && affinity.PodAntiAffinity == nil) {
		for _, name := range ordinals {
			delete(labels, name)
		}
	}
	text, err := json.Marshal([]any{pod.Namespace, labels, spec, pod.Status.NominatedNodeName})
	if err != nil {
		return ""
	}
	return string(text)
}
