package program

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// mostOnANode counts the pods of the node that has most of them.
func mostOnANode(pods []corev1.Pod) (most int) {
	on := map[string]int{}
	for i := range pods {
		on[pods[i].Spec.NodeName]++
		most = max(most, on[pods[i].Spec.NodeName])
	}
	return most
}

// nothingMade fails where claims are there: a gang that cannot be placed is not tried until it fails.
func (f *fleet) nothingMade() {
	f.t.Helper()
	claims, err := f.client.ResourceV1().ResourceClaims(namespace).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(claims.Items) > 0 {
		f.t.Errorf("%d claims are there of a gang that waits", len(claims.Items))
	}
}

// Members that no filter lets onto one node together are planned apart. Where there are too few nodes for that, they say so.
func TestGangOfMembersThatMindEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *corev1.Pod)
		why    string
	}{
		"ports": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 8080, ContainerPort: 8080}}
		}, "node(s) didn't have free ports for the requested pod ports"},
		"anti-affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}},
			}}}}
		}, "node(s) didn't match pod anti-affinity rules"},
		"spread": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}},
			}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, 4)
			f.run(v1alpha1.SchedulerName, shipped, nil, single)
			for i := range 3 {
				member := gangOf(t, "apart", 3, i, 60)
				member.Labels = map[string]string{"app": "train", "batch.kubernetes.io/job-completion-index": fmt.Sprint(i)}
				test.change(member)
				f.create(member)
			}
			if most := mostOnANode(f.bound(3)); most != 1 {
				t.Errorf("%d of them are on one node", most)
			}
			f.check()
			if test.why == "" {
				return
			}
			for i := range 4 {
				member := gangOf(t, "many", 4, i, 8)
				member.Labels = map[string]string{"app": "train"}
				member.Name, member.Annotations[v1alpha1.GangAnnotation] = fmt.Sprint("many-", i), "many"
				test.change(member)
				member.Spec.Containers[0].Ports = portsFrom(member.Spec.Containers[0].Ports, 9090)
				f.create(member)
			}
			for i := range 4 {
				f.says(fmt.Sprint("many-", i), test.why)
			}
		})
	}
}

// A member that minds others which do not mind it has them refused after they were planned beside it, on the GPUs that they
// would leave least of. The next plans have them elsewhere.
func TestGangWithAnUnforeseenRefusal(t *testing.T) {
	f := newFleet(t, 2, 4)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	on := func(p *corev1.Pod, node int) *corev1.Pod {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeName(node)}
		return p
	}
	for i := range 3 {
		f.create(on(describing(t, fmt.Sprint("there-", i), share(70, 10)), 0))
	}
	f.bound(3)
	minds := on(gangOf(t, "four", 4, 0, 60), 0)
	minds.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
	}}}}
	f.create(minds)
	for i := range 3 {
		other := gangOf(t, "four", 4, i+1, 8)
		other.Labels = map[string]string{"app": "other"}
		f.create(other)
	}
	for _, p := range f.bound(7) {
		if p.Labels["app"] == "other" && p.Spec.NodeName != nodeName(1) {
			t.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
		}
	}
	f.check()
}

func portsFrom(ports []corev1.ContainerPort, port int32) []corev1.ContainerPort {
	for i := range ports {
		ports[i].HostPort, ports[i].ContainerPort = port, port
	}
	return ports
}

// Members are planned onto nodes that take few pods, and no more of them than a node takes.
func TestGangOnNodesThatTakeFewPods(t *testing.T) {
	f := newFleet(t, 2, 4)
	for i := range 2 {
		node, err := f.client.CoreV1().Nodes().Get(t.Context(), nodeName(i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("2")
		if _, err := f.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 5 {
		f.create(gangOf(t, "five", 5, i, 60))
	}
	for i := range 5 {
		f.says(fmt.Sprint("five-", i), "only 4 of 5 members fit together; nodes have the GPUs for more, and Too many pods")
	}
	f.nothingMade()
	now := int64(0)
	for i := range 5 {
		if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), fmt.Sprint("five-", i), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		f.create(gangOf(t, "four", 4, i, 60))
	}
	if most := mostOnANode(f.bound(4)); most != 2 {
		t.Errorf("%d of them are on one node", most)
	}
	f.check()
}

// Members without GPUs are planned, bound and held back with those that have some.
func TestGangWithMembersWithoutGPUs(t *testing.T) {
	f := newFleet(t, 2, 2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	launcher := func(gang string, size int, cpu string) *corev1.Pod {
		p := pod(gang + "-launcher")
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: gang, v1alpha1.GangSizeAnnotation: fmt.Sprint(size)}
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
		return p
	}
	f.create(launcher("run", 5, "1"))
	for i := range 3 {
		f.create(gangOf(t, "run", 5, i, 60))
	}
	f.says("run-launcher", "4 of 5 are there")
	f.create(gangOf(t, "run", 5, 3, 60))
	f.bound(5)

	// It has no room of its own, so nobody of its gang gets any; and it takes none while the others have no room.
	f.create(launcher("large", 3, "100"))
	f.create(launcher("late", 3, "1"))
	for i := range 2 {
		f.create(gangOf(t, "large", 3, i, 8))
		f.create(gangOf(t, "late", 3, i, 70))
	}
	for _, name := range []string{"large-launcher", "large-0", "large-1", "late-launcher", "late-0", "late-1"} {
		f.says(name, "fit together")
	}
	now := int64(0)
	pods := f.client.CoreV1().Pods(namespace)
	for _, name := range []string{"run-0", "run-1"} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	f.until("the gang that fits is bound, and no other", func(ctx context.Context) (bool, string) {
		all, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var bound []string
		for i := range all.Items {
			if all.Items[i].Spec.NodeName != "" {
				bound = append(bound, all.Items[i].Name)
			}
		}
		return strings.Join(bound, " ") == "late-0 late-1 late-launcher run-2 run-3 run-launcher", fmt.Sprint(bound)
	})
	f.check()
}
