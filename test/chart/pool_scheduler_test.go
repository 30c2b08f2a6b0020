package chart_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestSchedulerPlacesPodsBesideHosts runs the scheduler as the chart does: pods are on nodes without GPUs and have parts of a GPU of
// another host, until it has no more; who ends makes room.
func TestSchedulerPlacesPodsBesideHosts(t *testing.T) {
	program, err := filepath.Abs("../../build/libexec/divvy/divvy-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		installtest.Missing(t, "build", err)
	}
	p := newPlane(t, "RBAC")
	if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	documents := rendered(t, newest, "scheduler: {enabled: true}\nallocators: []\npool: {gpus: all}")
	install(t, p, documents, map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings", "DeviceClass": "deviceclasses",
	})
	hostWithoutPods(t, p)
	runScheduler(t, p, program, arguments(t, p, documents))
	for i := range remotePods {
		remotePod(t, p, i)
	}
	bound := func() (names []string) {
		for i := range remotePods {
			pod, err := p.Client().CoreV1().Pods("default").Get(t.Context(), fmt.Sprint("pod-", i), metav1.GetOptions{})
			if err == nil && pod.Spec.NodeName != "" {
				names = append(names, pod.Name+" on "+pod.Spec.NodeName)
			}
		}
		return names
	}
	await := func(want int) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, longest, true, func(context.Context) (bool, error) { return len(bound()) >= want, nil })
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(p.Dir(), v1alpha1.SchedulerName+".log"))
			t.Fatalf("bound are %v, want %d; others are told %v\n%s", bound(), want, reasonsOf(t, p), log)
		}
	}
	await(2)
	waitsFor(t, p, bound())
	checkGiven(t, p)
	for range remotePods - 2 {
		name, _, _ := strings.Cut(bound()[0], " ")
		now := int64(0)
		if err := p.Client().CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		await(2)
	}
}

// remotePods are more than have room: whoever ends makes room for one of the others.
const remotePods = 5

// waitsFor waits until a pod that is not bound is told why.
func waitsFor(t *testing.T, p *plane.Plane, bound []string) {
	t.Helper()
	if len(bound) != 2 {
		t.Fatalf("bound are %v: the GPU has room for two", bound)
	}
	eventually(t, func() bool { return len(reasonsOf(t, p)) >= remotePods-2 })
	told := reasonsOf(t, p)
	t.Logf("others are told %v", told)
	if len(told) > remotePods-2 {
		t.Errorf("pods that have a node are told why they wait; bound are %v", bound)
	}
}

// reasonsOf are the reasons that pods are told why they wait, by their names.
func reasonsOf(t *testing.T, p *plane.Plane) map[string]string {
	t.Helper()
	pods, err := p.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				reasons[pods.Items[i].Name] = c.Message
			}
		}
	}
	return reasons
}

// checkGiven adds up what claims have.
func checkGiven(t *testing.T, p *plane.Plane) {
	t.Helper()
	claims, err := p.Client().ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for i := range claims.Items {
		if a := claims.Items[i].Status.Allocation; a != nil {
			r := a.Devices.Results[0]
			memory := r.ConsumedCapacity[v1alpha1.CapacityMemory]
			sum += memory.Value()
			if r.Pool != "remote/g1" || a.NodeSelector != nil {
				t.Errorf("claim %s has %s of pool %s, for nodes %v", claims.Items[i].Name, r.Device, r.Pool, a.NodeSelector)
			}
		}
	}
	if sum != 60<<30 {
		t.Errorf("claims have %d bytes", sum)
	}
}

// hostWithoutPods makes two nodes, and a host's pool with one GPU of 80 GiB.
func hostWithoutPods(t *testing.T, p *plane.Plane) {
	t.Helper()
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("10")}
	for _, name := range []string{"n1", "n2"} {
		if _, err := p.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := pool.RemoteSpec(pool.Host{Node: "g1", Address: netip.MustParseAddrPort("10.0.0.7:7117")}, []pool.GPU{{
		UUID: "GPU-00000000-0000-4333-8444-555555555555", Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", Memory: 80 << 30, DriverVersion: "550.54.15", CUDA: 12040, Form: pool.Remote,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Client().ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice("g1")}, Spec: *spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remotePod makes a pod of Divvy's scheduler that describes a claim for 30 GiB of another host's GPU.
func remotePod(t *testing.T, p *plane.Plane, i int) {
	t.Helper()
	claim := "divvy-" + strings.Repeat(string(rune('a'+i)), 16)
	text := fmt.Sprintf(`{"%s":{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"remote.divvy.dev","allocationMode":"ExactCount","count":1,"capacity":{"requests":{"memory":"30Gi","slots":"1"}}}}]}}}`, claim)
	if _, err := p.Client().CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Annotations: map[string]string{v1alpha1.ClaimsAnnotation: text}},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
