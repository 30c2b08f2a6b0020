package cluster

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/internal/doctor/bundle"
)

// A bundle has Divvy's objects and logs, and none of their secrets.
func TestItems(t *testing.T) {
	objects := installed()
	secret := []corev1.Container{{
		Name: "main", Args: []string{"--token", "hunter2", "--mode=slots"},
		Env: []corev1.EnvVar{{Name: "ANYTHING", Value: "hunter2"}, {Name: "CUDA_VISIBLE_DEVICES", Value: "0,7"}},
	}}
	pod := find[*corev1.Pod](objects)
	pod.Spec.Containers = secret
	pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"env": "hunter2"}`}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "hunter2"}}
	find[*appsv1.DaemonSet](objects).Spec.Template.Spec.Containers = secret
	find[*appsv1.Deployment](objects).Spec.Template.Spec.InitContainers = secret
	items, err := Cluster{Client: fake.NewClientset(objects...), Namespace: system}.Items(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, item := range items {
		text, err := item.Read(t.Context())
		if err != nil {
			t.Errorf("%s: %v", item.Name, err)
		}
		all[item.Name] = string(text)
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("%s has a secret: %s", item.Name, text)
		}
	}
	for name, says := range map[string]string{
		"cluster/pods/w1.json": "0,7", "cluster/daemonsets.json": "--mode=slots", "cluster/deployments.json": webhookName,
		"cluster/logs/w1/main.log": "fake logs", "cluster/slices.json": "items",
	} {
		if !strings.Contains(all[name], says) {
			t.Errorf("%s: %q does not say %q", name, all[name], says)
		}
	}
	if _, _, err := bundle.Collect(t.Context(), items); err != nil {
		t.Error(err)
	}
}
