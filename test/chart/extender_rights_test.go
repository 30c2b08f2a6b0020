package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	"github.com/divvy-gpu/divvy/test/chart/render"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExtendersRights runs kube-scheduler and the extender as the chart does, side by side and with their account's rights alone: they
// lead together, the pod is bound with its GPU in the one Binding that the policy allows, and they are refused nothing.
func TestExtendersRights(t *testing.T) {
	program, err := filepath.Abs("../../build/libexec/divvy/divvy-cluster")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		installtest.Missing(t, "build", err)
	}
	components, err := plane.ComponentsOf("../..", "v1.35")
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	p := startPlane(t, plane.Options{Components: components, Authorization: "RBAC", Log: t.Logf})
	if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	documents := rendered(t, "v1.35.4", "")
	install(t, p, documents, map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	})
	kubeconfig := kubeconfigAs(t, p, scheduler)
	address := runExtender(t, p, program, kubeconfig, documents)
	runKubeScheduler(t, p, filepath.Join(components, "kube-scheduler"), kubeconfig, address, documents)
	name := offerSlots(t, p)
	awaitBound(t, p, name)
	pod, err := p.Client().CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request, err := v1alpha1.ParsePodRequest(pod.Annotations[v1alpha1.RequestAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	assignment, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation])
	if err != nil || assignment.Answers(string(pod.UID), &request) != nil {
		t.Errorf("the pod was given %q: %v", pod.Annotations[v1alpha1.AssignmentAnnotation], err)
	}
	log, err := os.ReadFile(filepath.Join(p.Dir(), "extender.log"))
	if err != nil || strings.Contains(string(log), "forbidden") || t.Failed() {
		t.Errorf("%v: the extender says\n%s", err, log)
	}
}

// runExtender starts the extender with the chart's arguments, and returns where it is asked.
func runExtender(t *testing.T, p *plane.Plane, program, kubeconfig string, documents []render.Document) (address string) {
	t.Helper()
	args := slices.DeleteFunc(slices.Clone(container(t, deployment(t, documents, v1alpha1.SchedulerName), "extender").Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--address=") || strings.HasPrefix(arg, "--metrics-address=")
	})
	for i := range args {
		args[i] = strings.NewReplacer("$(NAMESPACE)", namespace, "$(POD)", "pod").Replace(args[i])
	}
	_, err := p.Run(t.Context(), plane.Program{
		Name: "extender", Path: program, Ports: 2, Scheme: "http", Ready: plane.Answers("/standingz"),
		Args: func(ports []int) []string {
			address = "127.0.0.1:" + strconv.Itoa(ports[1])
			return append(args, "--kubeconfig="+kubeconfig, "--metrics-address=127.0.0.1:"+strconv.Itoa(ports[0]), "--address="+address)
		},
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(p.Dir(), "extender.log"))
		t.Fatalf("%v\n%s", err, log)
	}
	return address
}

// runKubeScheduler starts the cluster's own scheduler with the chart's configuration.
func runKubeScheduler(t *testing.T, p *plane.Plane, program, kubeconfig, extender string, documents []render.Document) {
	t.Helper()
	config := filepath.Join(p.Dir(), "configuration")
	text := strings.NewReplacer(
		"clientConnection:\n", "clientConnection:\n  kubeconfig: "+kubeconfig+"\n", "127.0.0.1:8444", extender,
	).Replace(configured(t, documents, "scheduler.yaml"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--bind-address=127.0.0.1", "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}
	for _, arg := range container(t, deployment(t, documents, v1alpha1.SchedulerName), "scheduler").Args {
		if strings.HasPrefix(arg, "--config=") {
			arg = "--config=" + config
		}
		args = append(args, arg)
	}
	runScheduler(t, p, program, args)
}

// offerSlots makes a node with a GPU and a pod that asks for a part of it as the webhook writes it, and returns the pod's name.
func offerSlots(t *testing.T, p *plane.Plane) string {
	t.Helper()
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("10"),
		v1alpha1.SlotResource: resource.MustParse("64"),
	}
	gpus, err := v1alpha1.NodeGPUs{GPUs: []v1alpha1.NodeGPU{{UUID: "GPU-00000000-0000-4333-8444-555555555555", Memory: 80 << 30, NUMANode: -1}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	held, err := v1alpha1.NodeHeld{}.Text()
	if err != nil {
		t.Fatal(err)
	}
	config := v1alpha1.ShareConfig{}
	config.Default(0)
	request, err := v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{{Name: "main", Containers: []string{"main"}, GPUs: 1, Memory: 8 << 30, Config: &config}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{v1alpha1.GPUsAnnotation: gpus, v1alpha1.HeldAnnotation: held}}, Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts}}
	if _, err := p.Client().CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slot := corev1.ResourceList{v1alpha1.SlotResource: resource.MustParse("1")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: map[string]string{v1alpha1.RequestAnnotation: request}},
		Spec: corev1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Limits: slot, Requests: slot},
		}}},
	}
	if _, err := p.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return pod.Name
}
