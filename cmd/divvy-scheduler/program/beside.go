package program

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// extension has a state know of a pod that comes or goes.
type extension func(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, other fwk.PodInfo, info fwk.NodeInfo) *fwk.Status

// companion is a member that is about to be on a node.
type companion struct {
	pod  *corev1.Pod
	node string
}

// denials are what filters said of members that were planned and then not let onto their nodes, which no trial had foreseen:
// the next plan avoids that.
type denials []refusedMember

// refusedMember is a member, by what it is like, that was refused on a node beside so many others of its gang.
type refusedMember struct {
	key, node string
	here      int
	why       string
	// others are what members there are like that are unlike it: whoever is planned first, they are not planned together.
	others []string
}

// mostDenials is how many of a gang are kept, and of how many gangs.
const mostDenials = 256

// of is why a member would be refused again on a node beside so many others, empty where nothing says so. there reports whether
// a member that is like this is about to be on the node.
func (d denials) of(key, node string, here int, there func(key string) bool) string {
	for i := range d {
		if d[i].node != node {
			continue
		}
		if d[i].key == key && here >= d[i].here || slices.Contains(d[i].others, key) && there(d[i].key) {
			return d[i].why
		}
	}
	return ""
}

// minds reports whether filters may refuse a pod a node because of pods there, or elsewhere, for more than how many there are,
// and what they ask of processors and memory.
func minds(pod *corev1.Pod) bool {
	spec := &pod.Spec
	if affinity := spec.Affinity; affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil) || len(spec.TopologySpreadConstraints) > 0 {
		return true
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i].VolumeSource
		if v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil && v.HostPath == nil {
			return true
		}
	}
	return slices.ContainsFunc(spec.InitContainers, containerMinds) || slices.ContainsFunc(spec.Containers, containerMinds)
}

func containerMinds(c corev1.Container) bool {
	for name := range c.Resources.Requests {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			return true
		}
	}
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
}

// Alike implements scheduler.Trials.
func (t *trials) Alike(pod *corev1.Pod) string { return t.trial(pod).key }

// Why implements scheduler.Trials.
func (t *trials) Why() (most string) {
	for why, count := range t.whys {
		if count > t.whys[most] || count == t.whys[most] && why < most {
			most = why
		}
	}
	return most
}

// asked reports whether a filter lets a member, and counts why not.
func (t *trials) asked(status *fwk.Status) bool {
	if !status.IsSuccess() {
		t.whys[status.Message()]++
	}
	return status.IsSuccess()
}

// Beside implements scheduler.Trials.
func (t *trials) Beside(pod *corev1.Pod, node string, here int, others func(func(pod *corev1.Pod, node string))) bool {
	one := t.trial(pod)
	there := func(key string) (is bool) {
		others(func(other *corev1.Pod, on string) { is = is || on == node && t.trial(other).key == key })
		return is
	}
	if why := t.denials.of(one.key, node, here, there); why != "" {
		t.whys[why]++
		return false
	}
	info, err := t.fw.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return false
	}
	if len(info.GetPods())+here+1 > info.GetAllocatable().GetAllowedPodNumber() {
		t.whys["Too many pods"]++
		return false
	}
	if !t.meet {
		return true
	}
	var all []companion
	others(func(other *corev1.Pod, node string) { all = append(all, companion{other, node}) })
	if len(all) == 0 {
		return true
	}
	if !t.together(one, pod, all) {
		return false
	}
	with := info.Snapshot()
	for _, c := range all {
		if come, err := framework.NewPodInfo(c.pod); c.node == node && err == nil {
			with.AddPodInfo(come)
		}
	}
	return t.asked(t.fw.RunFilterPluginsWithNominatedPods(t.ctx, one.beside, pod, with))
}

// together has a trial's state know of members that are about to be on nodes. A plan grows and shrinks at its end, so that
// little changes from one question to the next.
func (t *trials) together(one *trial, pod *corev1.Pod, all []companion) bool {
	if one.beside == nil {
		one.beside = one.state.Clone()
	}
	same := 0
	for same < min(len(one.with), len(all)) && one.with[same] == all[same] {
		same++
	}
	for i := len(one.with) - 1; i >= same; i-- {
		if !t.change(one, pod, one.with[i], t.fw.RunPreFilterExtensionRemovePod) {
			return false
		}
	}
	one.with = one.with[:same]
	for _, c := range all[same:] {
		if !t.change(one, pod, c, t.fw.RunPreFilterExtensionAddPod) {
			return false
		}
		one.with = append(one.with, c)
	}
	return true
}

func (t *trials) change(one *trial, pod *corev1.Pod, c companion, run extension) bool {
	info, err := t.fw.SnapshotSharedLister().NodeInfos().Get(c.node)
	if err != nil {
		return false
	}
	other, err := framework.NewPodInfo(c.pod)
	return err == nil && t.asked(run(t.ctx, one.beside, pod, other, info))
}
