package dialect

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A GPU has room for so many shares. A quota of GPUs holds who takes them all, however small they are.
func TestSmallSharesAddUpToGPUs(t *testing.T) {
	translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {nvidia: {}, plain: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := SizesOf(published(t, `[{spec: {driver: divvy.dev, pool: {name: n}, devices: [{name: g, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}]}}]`))
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "small", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("1Mi")}},
	}}}}
	made, err := translator.Translate(pod, Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	one := UseOf(&made.Templates[0].Spec.Spec, nil, sizes)
	limits := translator.Limits(&corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("1")}}})
	if err := CheckQuota(limits, one.times(v1alpha1.SlotsPerGPU-1), one); err != nil {
		t.Errorf("the last share that a GPU has room for: %v", err)
	}
	if err := CheckQuota(limits, one.times(v1alpha1.SlotsPerGPU), one); !errors.Is(err, ErrRefused) {
		t.Errorf("one more than a GPU has room for passes a quota of one GPU: %v", err)
	}
}
