package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// namespace is where everything is made.
const namespace = "bench"

// kind is a kind of pods. A plain one has neither template nor claim.
type kind struct {
	name     string
	template *resourcev1.ResourceClaimTemplate
	// claim is what one holds, as JSON, that the pod names and the scheduler makes.
	claim string
	// limits are what the container asks for as users write it, for the webhook to translate.
	limits corev1.ResourceList
	// scheduler is the program that places the pods, "" for Kubernetes' own.
	scheduler string
	// requests replace those of the container.
	requests            corev1.ResourceList
	annotations, labels map[string]string
}

// gpus reports whether the pods have claims.
func (k kind) gpus() bool { return k.template != nil || k.claim != "" || k.limits != nil }

// by are the same pods, placed by Divvy's scheduler.
func (k kind) by(scheduler string) kind {
	k.scheduler = scheduler
	return k
}

// named are the same pods with claims that Divvy's scheduler makes when it places them.
func (k kind) named() (kind, error) {
	text, err := json.Marshal(k.template.Spec.Spec)
	if err != nil {
		return k, fmt.Errorf("write the claim of pod %s: %w", k.name, err)
	}
	k.claim, k.template = string(text), nil
	return k.by(ours), nil
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
	return kind{name: name, template: &made.Templates[0]}, nil
}

// namedPods are those of divvyPods whose claims Divvy's scheduler makes.
func namedPods(name string, limits map[corev1.ResourceName]string) (kind, error) {
	k, err := divvyPods(name, limits)
	if err != nil {
		return k, err
	}
	return k.named()
}

// otherPods ask for one device of the other driver.
func otherPods() kind {
	return kind{name: "other", template: &resourcev1.ResourceClaimTemplate{
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
	pod.Spec.SchedulerName = k.scheduler
	pod.Annotations, pod.Labels = maps.Clone(k.annotations), maps.Clone(k.labels)
	if k.requests != nil {
		pod.Spec.Containers[0].Resources.Requests = k.requests
	}
	pod.Spec.Containers[0].Resources.Limits = k.limits.DeepCopy()
	if !k.gpus() || k.limits != nil {
		return pod
	}
	use := corev1.PodResourceClaim{Name: "gpu"}
	if k.template != nil {
		use.ResourceClaimTemplateName = &k.template.Name
	} else {
		k.nameClaim(pod, &use)
	}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{use}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod
}

// nameClaim has a pod name a claim of its own and carry what the claim holds, as the webhook writes it.
func (k kind) nameClaim(pod *corev1.Pod, use *corev1.PodResourceClaim) {
	name := "divvy-" + strings.ToLower(rand.Text()[:16])
	use.ResourceClaimName = &name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.ClaimsAnnotation] = fmt.Sprintf("{%q:%s}", name, k.claim)
}
