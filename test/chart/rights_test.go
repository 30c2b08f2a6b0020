package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	"github.com/divvy-gpu/divvy/test/chart/render"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// install makes the chart's objects of some kinds.
func install(t *testing.T, p *plane.Plane, documents []render.Document, kinds map[string]string) {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(d.Text, &object.Object); err != nil {
			t.Fatal(err)
		}
		plural, ok := kinds[object.GetKind()]
		if !ok {
			continue
		}
		resources := client.Resource(object.GroupVersionKind().GroupVersion().WithResource(plural))
		var to dynamic.ResourceInterface = resources
		if object.GetNamespace() != "" {
			to = resources.Namespace(object.GetNamespace())
		}
		if _, err := to.Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
			t.Fatalf("make %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// TestSchedulersRights runs the scheduler as the chart does, and as kubeadm runs the cluster's own in whose place it is, with that
// user's rights alone: it leads, makes a pod's claim and binds the pod, and is refused nothing.
func TestSchedulersRights(t *testing.T) {
	program, err := filepath.Abs("../../build/libexec/divvy/divvy-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		installtest.Missing(t, "build", err)
	}
	for values, pods := range map[string]string{
		"scheduler: {enabled: true}\nallocators: []":         v1alpha1.SchedulerName,
		"scheduler: {replacesDefault: true}\nallocators: []": corev1.DefaultSchedulerName,
	} {
		t.Run(pods, func(t *testing.T) {
			p := newPlane(t, "RBAC")
			if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			documents := rendered(t, newest, values)
			install(t, p, documents, map[string]string{
				"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings", "DeviceClass": "deviceclasses",
				"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
			})
			if pods == corev1.DefaultSchedulerName {
				runScheduler(t, p, program, staticArguments(t, p))
			} else {
				runScheduler(t, p, program, arguments(t, p, documents))
			}
			awaitBound(t, p, offer(t, p, pods))
		})
	}
}

// awaitBound waits until a pod is bound. Nothing may have been forbidden to the scheduler.
func awaitBound(t *testing.T, p *plane.Plane, pod string) {
	t.Helper()
	bound := func(ctx context.Context) (bool, error) {
		now, err := p.Client().CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		return err == nil && now.Spec.NodeName != "", err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, longest, true, bound); err != nil {
		t.Errorf("wait until the pod is bound: %v", err)
	}
	log, err := os.ReadFile(filepath.Join(p.Dir(), v1alpha1.SchedulerName+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("forbidden")) {
			t.Errorf("%s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", log)
		if now, err := p.Client().CoreV1().Pods("default").Get(context.WithoutCancel(t.Context()), pod, metav1.GetOptions{}); err == nil {
			t.Logf("the pod is told: %+v", now.Status.Conditions)
		}
	}
}

// kubeconfigAs writes access to the API server as a user, and returns the file's path.
func kubeconfigAs(t *testing.T, p *plane.Plane, name string) string {
	t.Helper()
	access, err := clientcmd.LoadFromFile(p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range access.AuthInfos {
		user.Impersonate = name
	}
	kubeconfig := filepath.Join(p.Dir(), "as-scheduler")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// arguments are those of the chart, with its configuration.
func arguments(t *testing.T, p *plane.Plane, documents []render.Document) []string {
	t.Helper()
	kubeconfig, config := kubeconfigAs(t, p, scheduler), filepath.Join(p.Dir(), "configuration")
	text := strings.Replace(configured(t, documents, "scheduler.yaml"), "clientConnection:\n", "clientConnection:\n  kubeconfig: "+kubeconfig+"\n", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--bind-address=127.0.0.1", "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}
	for _, arg := range deployment(t, documents, v1alpha1.SchedulerName).Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--config=") {
			arg = "--config=" + config
		}
		args = append(args, arg)
	}
	return args
}

// staticArguments are those that kubeadm gives the cluster's own scheduler in its static pod, with the configuration that the
// manual has added.
func staticArguments(t *testing.T, p *plane.Plane) []string {
	t.Helper()
	manual, err := os.ReadFile("../../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(manual)) {
		if code, found := strings.CutPrefix(line, "       "); found && (text.Len() > 0 || strings.HasPrefix(code, "apiVersion: kubescheduler.")) {
			text.WriteString(code)
		} else if text.Len() > 0 {
			break
		}
	}
	kubeconfig, config := kubeconfigAs(t, p, stock), filepath.Join(p.Dir(), "configuration")
	const told = "/etc/kubernetes/scheduler.conf"
	if !strings.Contains(text.String(), told) {
		t.Fatalf("the manual's configuration is %q", text.String())
	}
	if err := os.WriteFile(config, []byte(strings.Replace(text.String(), told, kubeconfig, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1",
		"--kubeconfig=" + kubeconfig, "--leader-elect=true", "--config=" + config,
	}
}

// runScheduler starts the scheduler.
func runScheduler(t *testing.T, p *plane.Plane, program string, args []string) {
	t.Helper()
	args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--secure-port=") })
	_, err := p.Run(t.Context(), plane.Program{
		Name: v1alpha1.SchedulerName, Path: program, Ports: 1, Scheme: "https", Ready: plane.Answers("/readyz"),
		Args: func(ports []int) []string { return append(args, "--secure-port="+strconv.Itoa(ports[0])) },
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(p.Dir(), v1alpha1.SchedulerName+".log"))
		t.Fatalf("%v\n%s", err, log)
	}
}

// offer makes a node with a GPU and a pod of a scheduler that describes a claim for a part of it, and returns the pod's name.
func offer(t *testing.T, p *plane.Plane, scheduler string) string {
	t.Helper()
	const node, claim = "n1", "divvy-aaaaaaaaaaaaaaaa"
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("10")}
	resources, err := pool.Resources(node, []pool.GPU{{UUID: "GPU-00000000-0000-4333-8444-555555555555", Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", Memory: 80 << 30, DriverVersion: "550.54.15", CUDA: 12040}})
	if err != nil {
		t.Fatal(err)
	}
	objects := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: map[string]string{v1alpha1.ClaimsAnnotation: fmt.Sprintf(
				`{"%s":{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"share.divvy.dev","allocationMode":"ExactCount","count":1,"capacity":{"requests":{"memory":"8Gi","slots":"1"}}}}]}}}`, claim)}},
			Spec: corev1.PodSpec{
				SchedulerName: scheduler, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr(claim)}},
				Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
			},
		},
	}
	for name, published := range resources.Pools {
		for i, s := range published.Slices {
			objects = append(objects, &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(node, "-", i)},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: v1alpha1.Driver, NodeName: ptr(node), Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(published.Slices))},
				},
			})
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Node:
			_, err = p.Client().CoreV1().Nodes().Create(t.Context(), o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = p.Client().CoreV1().Pods("default").Create(t.Context(), o, metav1.CreateOptions{})
		case *resourcev1.ResourceSlice:
			_, err = p.Client().ResourceV1().ResourceSlices().Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return "pod"
}

func ptr[T any](value T) *T { return &value }
