package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const (
	checkout = "../../.."
	// namespace is where the tests' pods are.
	namespace = "default"
	// gpuMemory is what each GPU of the fleet has.
	gpuMemory = 80 << 30
	// otherDriver has devices on the same nodes, to be had whole.
	otherDriver = "nic.example.com"
)

// fleet is a real API server with nodes that are objects alone.
type fleet struct {
	*plane.Plane
	t      *testing.T
	client kubernetes.Interface
}

// newFleet starts an API server, with arguments of its own, and so many nodes of so many GPUs. It skips where Kubernetes' programs were not built.
func newFleet(t *testing.T, nodes, gpus int, apiserver ...string) *fleet {
	t.Helper()
	components, err := plane.Components(checkout)
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	p, err := plane.Start(t.Context(), plane.Options{Components: components, APIServer: apiserver, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	f := &fleet{Plane: p, t: t, client: p.Client()}
	for _, class := range classes(t) {
		if _, err := f.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range nodes {
		f.addNode(i, gpus)
	}
	return f
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// addNode makes a ready node with its slices, and one slice of another driver.
func (f *fleet) addNode(i, gpus int) {
	f.t.Helper()
	name := nodeName(i)
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("500"),
	}
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, v1alpha1.NodeLabel: ""}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}
	if _, err := f.client.CoreV1().Nodes().Create(f.t.Context(), made, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	for _, slice := range append(gpuSlices(f.t, i, gpus), otherSlice(i)) {
		if _, err := f.client.ResourceV1().ResourceSlices().Create(f.t.Context(), slice, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// gpuSlices are what the agent of a node publishes.
func gpuSlices(t *testing.T, node, count int) []*resourcev1.ResourceSlice {
	t.Helper()
	var gpus []pool.GPU
	for k := range count {
		gpus = append(gpus, pool.GPU{
			UUID: fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", node, k), Index: k, Model: "NVIDIA H100 80GB HBM3",
			Architecture: "Hopper", Memory: gpuMemory, DriverVersion: "550.54.15", CUDA: 12040,
		})
	}
	resources, err := pool.Resources(nodeName(node), gpus)
	if err != nil {
		t.Fatal(err)
	}
	var all []*resourcev1.ResourceSlice
	for name, published := range resources.Pools {
		for k, slice := range published.Slices {
			made := sliceOf(v1alpha1.Driver, node, k, slice.Devices)
			made.Spec.Pool.Name, made.Spec.Pool.ResourceSliceCount = name, int64(len(published.Slices))
			made.Spec.SharedCounters, made.Spec.PerDeviceNodeSelection = slice.SharedCounters, slice.PerDeviceNodeSelection
			all = append(all, made)
		}
	}
	return all
}

func sliceOf(driver string, node, number int, devices []resourcev1.Device) *resourcev1.ResourceSlice {
	name := nodeName(node)
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", name, driver, number)},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

func otherSlice(node int) *resourcev1.ResourceSlice {
	var devices []resourcev1.Device
	for k := range 4 {
		devices = append(devices, resourcev1.Device{Name: "nic-" + strconv.Itoa(k)})
	}
	return sliceOf(otherDriver, node, 0, devices)
}

// classes are the device classes that users install, and one of the other driver.
func classes(t *testing.T) []*resourcev1.DeviceClass {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "deploy", "manifests", "divvy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := []*resourcev1.DeviceClass{{
		ObjectMeta: metav1.ObjectMeta{Name: otherDriver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", otherDriver)}},
		}},
	}}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: DeviceClass\n") {
			continue
		}
		var class resourcev1.DeviceClass
		if err := yaml.Unmarshal([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		all = append(all, &class)
	}
	return all
}

// run starts a scheduler of ours, by default the one that is shipped.
func (f *fleet) run(name, path string, env []string, args ...string) *plane.Process {
	f.t.Helper()
	prefix := os.Getenv("DIVVY_PREFIX")
	if prefix == "" {
		prefix = filepath.Join(checkout, "build")
	}
	prefix, err := filepath.Abs(prefix)
	if err != nil {
		f.t.Fatal(err)
	}
	path = filepath.Join(prefix, path)
	if _, err := os.Stat(path); err != nil {
		installtest.Missing(f.t, "build", err)
	}
	process, err := f.Run(f.t.Context(), plane.Program{
		Name: name, Path: path, Ports: 1, Scheme: "https", Ready: plane.Answers("/healthz"), Env: env,
		Args: func(ports []int) []string {
			return append([]string{
				"--kubeconfig=" + f.Kubeconfig(), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[0]),
				"--authentication-kubeconfig=" + f.Kubeconfig(), "--authorization-kubeconfig=" + f.Kubeconfig(),
				"--authentication-skip-lookup", "--cert-dir=" + filepath.Join(f.Dir(), name), "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
			}, args...)
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return process
}

const (
	shipped  = "libexec/divvy/divvy-scheduler"
	crashing = "test/scheduler/crashing"
)

// single has a scheduler lead at once.
const single = "--leader-elect=false"

// elected has a scheduler compete for the lease. Who holds it loses it only after longer than a machine or its disk stands still.
var elected = []string{
	"--leader-elect=true", "--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=500ms", "--leader-elect-resource-namespace=default",
}

// pod is one of ours that asks for a little of a node.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName,
			Containers: []corev1.Container{{
				Name: "main", Image: "pause",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
			}},
		},
	}
}

func (f *fleet) create(p *corev1.Pod) *corev1.Pod {
	f.t.Helper()
	made, err := f.client.CoreV1().Pods(p.Namespace).Create(f.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

// limit bounds each wait of a test.
const limit = 3 * time.Minute

// logs are the ends of what the schedulers wrote.
func (f *fleet) logs() string {
	var all strings.Builder
	for _, name := range []string{v1alpha1.SchedulerName, "first", "second"} {
		text, err := os.ReadFile(filepath.Join(f.Dir(), name+".log"))
		if err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", name, text[max(0, len(text)-4000):])
		}
	}
	return all.String()
}

// until waits for a condition.
func (f *fleet) until(what string, holds func(ctx context.Context) (bool, string)) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	seen := ""
	for {
		ok, now := holds(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			seen = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			f.t.Fatalf("%s: not within %v: %s\n%s", what, limit, seen, f.logs())
		}
	}
}

// bound waits until all pods that are there have a node.
func (f *fleet) bound(n int) []corev1.Pod {
	f.t.Helper()
	var all []corev1.Pod
	f.until(fmt.Sprintf("%d pods are bound", n), func(ctx context.Context) (bool, string) {
		list, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		have := 0
		var waits string
		for i := range list.Items {
			if list.Items[i].Spec.NodeName != "" {
				have++
			} else {
				waits = fmt.Sprintf("%s waits: %v", list.Items[i].Name, list.Items[i].Status.Conditions)
			}
		}
		all = list.Items
		return have == n, fmt.Sprintf("%d of %d; %s", have, len(list.Items), waits)
	})
	return all
}

// dead waits until a scheduler has ended.
func (f *fleet) dead(name string) {
	f.t.Helper()
	f.until(name+" is dead", func(context.Context) (bool, string) { return f.Process(name).Alive() != nil, "it lives" })
}
