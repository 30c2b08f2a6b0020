package plane

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// pods are the pods of a test, and the claims that the scheduler made for them.
type pods struct {
	t      *testing.T
	client kubernetes.Interface
}

func (p pods) do(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// pod makes a pod that names a claim.
func (p pods) pod(name string) *corev1.Pod {
	p.t.Helper()
	claim := claimOf(name)
	pod, err := p.client.CoreV1().Pods("default").Create(p.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName:  v1alpha1.SchedulerName,
			Containers:     []corev1.Container{{Name: "main", Image: "i", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
		},
	}, metav1.CreateOptions{})
	p.do(err)
	return pod
}

// claimOf is the name of a pod's claim: the same for the same pod.
func claimOf(pod string) string {
	var random [v1alpha1.ClaimNameBytes]byte
	copy(random[:], pod)
	return v1alpha1.ClaimName(random)
}

// claim makes a pod's claim as the scheduler does.
func (p pods) claim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	p.t.Helper()
	claim, err := p.client.ResourceV1().ResourceClaims("default").Create(p.t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claimOf(pod.Name), Finalizers: []string{resourcev1.Finalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}},
		}}},
	}, metav1.CreateOptions{})
	p.do(err)
	return claim
}

// allocate gives a pod's claim a device, and reserves it for the pod.
func (p pods) allocate(pod *corev1.Pod, claim *resourcev1.ResourceClaim) {
	p.t.Helper()
	claim.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: v1alpha1.Driver, Pool: "n", Device: "gpu-0"},
		}}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
	_, err := p.client.ResourceV1().ResourceClaims("default").UpdateStatus(p.t.Context(), claim, metav1.UpdateOptions{})
	p.do(err)
}

func (p pods) bind(pod *corev1.Pod) {
	p.t.Helper()
	p.do(p.client.CoreV1().Pods("default").Bind(p.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{}))
}

func (p pods) end(pod *corev1.Pod, phase corev1.PodPhase) {
	p.t.Helper()
	patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
	_, err := p.client.CoreV1().Pods("default").Patch(p.t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	p.do(err)
}

func (p pods) delete(pod *corev1.Pod) {
	p.t.Helper()
	now := int64(0)
	p.do(p.client.CoreV1().Pods("default").Delete(p.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// TestWhoCollectsClaims makes claims as the scheduler does, and leaves them at each of its steps: Kubernetes' own
// controllers take away every one whose pod is gone or done, so nobody else has to. Claims of pods that wait or run stay.
func TestWhoCollectsClaims(t *testing.T) {
	components, err := Components("../../..")
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	plane, err := Start(ctx, Options{Components: components})
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Stop() //nolint:errcheck // the folder is the test's
	p := pods{t, plane.Client()}
	p.do(plane.StartManager(ctx, "resourceclaim-controller,garbage-collector-controller"))
	leave := map[string]func(name string) (stays bool){
		"waits": func(name string) bool { p.claim(p.pod(name)); return true },
		"runs": func(name string) bool {
			pod := p.pod(name)
			p.allocate(pod, p.claim(pod))
			p.bind(pod)
			return true
		},
		"made": func(name string) bool { pod := p.pod(name); p.claim(pod); p.delete(pod); return false },
		"given": func(name string) bool {
			pod := p.pod(name)
			p.allocate(pod, p.claim(pod))
			p.delete(pod)
			return false
		},
		"bound": func(name string) bool {
			pod := p.pod(name)
			p.allocate(pod, p.claim(pod))
			p.bind(pod)
			p.delete(pod)
			return false
		},
		"done": func(name string) bool {
			pod := p.pod(name)
			p.allocate(pod, p.claim(pod))
			p.bind(pod)
			p.end(pod, corev1.PodSucceeded)
			return false
		},
		"failed": func(name string) bool { pod := p.pod(name); p.claim(pod); p.end(pod, corev1.PodFailed); return false },
		"late":   func(name string) bool { pod := p.pod(name); p.delete(pod); p.claim(pod); return false },
		"again":  func(name string) bool { pod := p.pod(name); p.claim(pod); p.delete(pod); p.pod(name); return false },
		"withdrawn": func(name string) bool {
			claim := p.claim(p.pod(name))
			p.do(p.client.ResourceV1().ResourceClaims("default").Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
			return false
		},
	}
	stay := make(map[string]bool)
	for name, step := range leave {
		stay[name] = step(name)
	}
	for name := range leave {
		for !stay[name] {
			claim, err := p.client.ResourceV1().ResourceClaims("default").Get(ctx, claimOf(name), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v; the claim is %+v", name, err, claim)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for name := range stay {
		claim, err := p.client.ResourceV1().ResourceClaims("default").Get(ctx, claimOf(name), metav1.GetOptions{})
		if stay[name] && (err != nil || claim.DeletionTimestamp != nil) {
			t.Errorf("the claim of a pod that %s is %+v, %v", name, claim, err)
		}
	}
}
