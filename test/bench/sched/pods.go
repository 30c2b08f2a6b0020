package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// namespace is where everything is made.
const namespace = "bench"

// kind is a kind of pods. A plain one has no template.
type kind struct {
	name     string
	template *resourcev1.ResourceClaimTemplate
}

var plainPods = kind{name: "plain"}

// divvyPods ask for GPUs as users write it, in limits; the template is the one that the webhook makes for them.
func divvyPods(name string, limits map[corev1.ResourceName]string) (kind, error) {
	translator, err := dialect.NewTranslator([]byte("apiVersion: " + v1alpha1.APIVersion + "\nkind: WebhookConfig\ndialects: {plain: {}}\n"))
	if err != nil {
		return kind{}, err
	}
	pod := podOf(kind{name: name}, 0)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
	for resourceName, amount := range limits {
		pod.Spec.Containers[0].Resources.Limits[resourceName] = resource.MustParse(amount)
	}
	made, err := translator.Translate(pod, dialect.Inventory{})
	if err != nil {
		return kind{}, err
	}
	if len(made.Templates) != 1 {
		return kind{}, fmt.Errorf("translate pod %s: it has %d claim templates", name, len(made.Templates))
	}
	return kind{name, &made.Templates[0]}, nil
}

// otherPods ask for one device of the other driver.
func otherPods() kind {
	return kind{"other", &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: namespace},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: otherDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			}}},
		}}},
	}}
}

// podOf makes a pod. Its container is the same in all kinds.
func podOf(k kind, i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", k.name, i), Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "main", Image: "bench.test/none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
				}},
			}},
		},
	}
	if k.template != nil {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &k.template.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	return pod
}
