package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

const (
	// namespace is where all pods are.
	namespace = "bench"
	// roundLabel tells the pods of one round from others.
	roundLabel = "bench.divvy.dev/round"
)

// kind is a kind of pods, as they are once the webhook has seen them.
type kind struct {
	name string
	pod  *corev1.Pod
}

// asked is what a pod asks as users write it. Without limits it is a plain pod.
type asked struct {
	limits, requests corev1.ResourceList
	// beside is what a second container asks for.
	beside      corev1.ResourceList
	annotations map[string]string
}

// smallShare is a pod with a share.
var smallShare = asked{limits: corev1.ResourceList{
	v1alpha1.ResourceGPU: resource.MustParse("1"), v1alpha1.ResourceMemory: resource.MustParse("10Gi"), v1alpha1.ResourceCores: resource.MustParse("5"),
}}

// little is what a pod's container takes of its node beside GPUs.
var little = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}

// kindOf makes a kind. All pods, also plain ones, are placed by the scheduler that has the extender.
func kindOf(name string, a asked) (kind, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: maps.Clone(a.annotations)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "bench.test/none"}},
		},
	}
	main := &pod.Spec.Containers[0]
	main.Resources.Requests = little.DeepCopy()
	if a.requests != nil {
		main.Resources.Requests = a.requests.DeepCopy()
	}
	main.Resources.Limits = a.limits.DeepCopy()
	if a.beside != nil {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "beside", Image: main.Image, Resources: corev1.ResourceRequirements{Limits: a.beside.DeepCopy()},
		})
	}
	if len(a.limits) == 0 {
		pod.Spec.SchedulerName = v1alpha1.SchedulerName
		return kind{name, pod}, nil
	}
	pod, err := translate(pod)
	return kind{name, pod}, err
}

// translate does what the webhook does in mode slots.
func translate(pod *corev1.Pod) (*corev1.Pod, error) {
	translator, err := dialect.NewTranslator([]byte("apiVersion: " + v1alpha1.APIVersion + "\nkind: WebhookConfig\nmode: slots\ndialects: {plain: {}}\n"))
	if err != nil {
		return nil, err
	}
	made, err := translator.Translate(pod, dialect.Inventory{})
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("write pod %s: %w", pod.Name, err)
	}
	steps, err := json.Marshal(made.Patch)
	if err != nil {
		return nil, fmt.Errorf("write the patch of pod %s: %w", pod.Name, err)
	}
	patch, err := jsonpatch.DecodePatch(steps)
	if err != nil {
		return nil, fmt.Errorf("read the patch of pod %s: %w", pod.Name, err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("patch pod %s: %w", pod.Name, err)
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, fmt.Errorf("read patched pod %s: %w", pod.Name, err)
	}
	if patched.Annotations[v1alpha1.RequestAnnotation] == "" || patched.Spec.SchedulerName != v1alpha1.SchedulerName {
		return nil, fmt.Errorf("patch pod %s: it has annotations %v and scheduler %q", pod.Name, patched.Annotations, patched.Spec.SchedulerName)
	}
	return patched, nil
}

// one is pod number i of a round.
func (k kind) one(round string, i int) *corev1.Pod {
	pod := k.pod.DeepCopy()
	pod.Name = strings.ToLower(fmt.Sprintf("%s-%s-%05d", k.name, round, i))
	pod.Labels = map[string]string{roundLabel: round}
	return pod
}

// bindingOf binds a pod to a node with what it asks there of one GPU, as the extender does: for clusters that are to be full
// when a measurement begins.
func bindingOf(pod *corev1.Pod, node *machine, gpu int) (*corev1.Binding, error) {
	request, err := v1alpha1.ParsePodRequest(pod.Annotations[v1alpha1.RequestAnnotation])
	if err != nil {
		return nil, err
	}
	assignment := v1alpha1.PodAssignment{Pod: string(pod.UID)}
	for i := range request.Shares {
		s := &request.Shares[i]
		assignment.Shares = append(assignment.Shares, v1alpha1.ShareAssigned{
			Name: s.Name, Containers: s.Containers, Whole: s.Whole, Config: s.Config,
			GPUs: []v1alpha1.GPUAssigned{{UUID: node.gpus[gpu].UUID, Memory: s.Memory, Cores: s.Cores}},
		})
	}
	text, err := assignment.Text()
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: map[string]string{v1alpha1.AssignmentAnnotation: text},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node.name},
	}, err
}
