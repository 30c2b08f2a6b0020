package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const (
	checkout = "../../.."
	// namespace is where all pods are.
	namespace = "default"
	// gpuMemory is what each GPU has.
	gpuMemory = 80 << 30
	// account is who the schedulers are to the API server.
	account = "system:serviceaccount:divvy-system:divvy-scheduler"
	// refused begins the names of pods whose claims an admission policy refuses.
	refused = "refused"
)

// replicas are the schedulers that run, one of which leads.
var replicas = []string{"first", "second"}

// world is a cluster whose API server, schedulers and nodes can be troubled.
type world struct {
	*plane.Plane
	t      *testing.T
	client kubernetes.Interface
	front  *front
	nodes  int
	gpus   int // of each node
	// crash are the steps after which the schedulers that are started next kill themselves.
	crash  string
	starts int
	frozen string // the scheduler that is stopped
	// single has the first replica alone, which leads at once.
	single bool
}

// newWorld starts an API server with nodes, and Kubernetes' controllers of claims. It skips where Kubernetes' programs were
// not built.
func newWorld(t *testing.T, nodes, gpus int) *world {
	t.Helper()
	components, err := plane.Components(checkout)
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	p, err := plane.Start(t.Context(), plane.Options{Components: components, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Plane: p, t: t, client: p.Client(), nodes: nodes, gpus: gpus}
	w.front = newFront(t, p.Process(plane.APIServer).URL())
	w.must(p.StartManager(t.Context(), "resourceclaim-controller,garbage-collector-controller"))
	w.install()
	for i := range nodes {
		w.must(w.addNode(i))
		w.must(w.publish(i, nil))
	}
	return w
}

// must ends the test on an error of the test's own doing.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// install makes the device classes and the policy of what users install, and a policy that refuses some claims.
func (w *world) install() {
	w.t.Helper()
	ctx := w.t.Context()
	text, err := os.ReadFile(filepath.Join(checkout, "deploy", "manifests", "divvy-with-scheduler.yaml"))
	w.must(err)
	registration := w.client.AdmissionregistrationV1()
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		switch {
		case strings.Contains(document, "\nkind: DeviceClass\n"):
			var class resourcev1.DeviceClass
			w.must(yaml.Unmarshal([]byte(document), &class))
			_, err = w.client.ResourceV1().DeviceClasses().Create(ctx, &class, metav1.CreateOptions{})
		case strings.Contains(document, "\nkind: ValidatingAdmissionPolicy\n") && strings.Contains(document, "name: divvy-allocations\n"):
			var policy admissionv1.ValidatingAdmissionPolicy
			w.must(yaml.Unmarshal([]byte(document), &policy))
			_, err = registration.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
		case strings.Contains(document, "\nkind: ValidatingAdmissionPolicyBinding\n") && strings.Contains(document, "name: divvy-allocations\n"):
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			w.must(yaml.Unmarshal([]byte(document), &binding))
			_, err = registration.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
		}
		w.must(err)
	}
	w.refuse()
}

// refuse has an admission policy refuse allocations of claims of pods with certain names.
func (w *world) refuse() {
	w.t.Helper()
	ctx, registration := w.t.Context(), w.client.AdmissionregistrationV1()
	fail, equivalent := admissionv1.Fail, admissionv1.Equivalent
	_, err := registration.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: refused},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{MatchPolicy: &equivalent, ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceclaims/status"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("!has(object.status) || !has(object.status.allocation) || !has(object.metadata.ownerReferences) || "+
					"!object.metadata.ownerReferences.exists(o, o.name.startsWith('%s'))", refused),
				Message: "this pod gets nothing",
			}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = registration.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: refused},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: refused, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	w.must(err)
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// addNode makes a ready node.
func (w *world) addNode(i int) error {
	name := nodeName(i)
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("500"),
	}
	_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, v1alpha1.NodeLabel: ""}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}, metav1.CreateOptions{})
	return err
}

// publish has a node publish its GPUs but for one that is lost. It replaces what the node published before.
func (w *world) publish(node int, lost *int) error {
	ctx, all := w.t.Context(), w.client.ResourceV1().ResourceSlices()
	name := nodeName(node)
	var gpus []pool.GPU
	for k := range w.gpus {
		if lost == nil || *lost != k {
			gpus = append(gpus, pool.GPU{
				UUID: fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", node, k), Index: k, Model: "NVIDIA H100 80GB HBM3",
				Architecture: "Hopper", Memory: gpuMemory, DriverVersion: "550.54.15", CUDA: 12040,
			})
		}
	}
	resources, err := pool.Resources(name, gpus)
	if err != nil {
		return err
	}
	published := resources.Pools[name]
	if len(published.Slices) != 1 {
		return fmt.Errorf("node %s has %d slices", name, len(published.Slices))
	}
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: &name, Devices: published.Slices[0].Devices,
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	before, err := all.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, slice, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	slice.ResourceVersion, slice.Spec.Pool.Generation = before.ResourceVersion, before.Spec.Pool.Generation+1
	_, err = all.Update(ctx, slice, metav1.UpdateOptions{})
	return err
}

// withdraw takes a node away, and what it published.
func (w *world) withdraw(node int) error {
	if err := w.client.CoreV1().Nodes().Delete(w.t.Context(), nodeName(node), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.client.ResourceV1().ResourceSlices().Delete(w.t.Context(), nodeName(node), metav1.DeleteOptions{})
}

// kubeconfig is for the schedulers: it leads to the front.
func (w *world) kubeconfig() string {
	path := filepath.Join(w.Dir(), "front")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	file := api.NewConfig()
	file.Clusters["front"] = &api.Cluster{Server: w.front.URL, InsecureSkipTLSVerify: true}
	file.AuthInfos["front"] = &api.AuthInfo{Token: w.Config().BearerToken, Impersonate: account}
	file.Contexts["front"] = &api.Context{Cluster: "front", AuthInfo: "front"}
	file.CurrentContext = "front"
	w.must(clientcmd.WriteToFile(*file, path))
	return path
}

// start starts those schedulers that do not run.
func (w *world) start() {
	w.t.Helper()
	for _, name := range replicas {
		if p := w.Process(name); p != nil && p.Alive() == nil || w.single && name != replicas[0] {
			continue
		}
		w.starts++
		ctx, cancel := context.WithTimeout(w.t.Context(), startLimit)
		// One that is to kill itself, or finds no API server, may end before it answers. It is started again later.
		if err := w.run(ctx, name); err != nil {
			w.t.Logf("%v", err)
		}
		cancel()
	}
	w.crash = ""
}

// startLimit bounds how long a scheduler's start is waited for.
const startLimit = 10 * time.Second

func (w *world) run(ctx context.Context, name string) error {
	prefix := os.Getenv("DIVVY_PREFIX")
	if prefix == "" {
		prefix = filepath.Join(checkout, "build")
	}
	path, err := filepath.Abs(filepath.Join(prefix, "test", "scheduler", "crashing"))
	if err != nil {
		return err
	}
	marks := filepath.Join(w.Dir(), fmt.Sprintf("marks-%d", w.starts))
	if err := os.MkdirAll(marks, 0o700); err != nil {
		return err
	}
	elect := []string{
		"--leader-elect=true", "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		"--leader-elect-resource-namespace=" + namespace,
	}
	if w.single {
		elect = []string{"--leader-elect=false"}
	}
	_, err = w.Run(ctx, plane.Program{
		Name: name, Path: path, Ports: 1, Scheme: "https",
		// What is on its way to the API server may be lost, so that it need not be ready.
		Ready: plane.Answers("/metrics"),
		Env:   []string{"DIVVY_CRASH_AFTER=" + w.crash, "DIVVY_CRASH_MARKS=" + marks},
		Args: func(ports []int) []string {
			return append([]string{
				"--kubeconfig=" + w.kubeconfig(), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[0]),
				"--authentication-kubeconfig=" + w.kubeconfig(), "--authorization-kubeconfig=" + w.kubeconfig(),
				"--authentication-skip-lookup", "--cert-dir=" + filepath.Join(w.Dir(), name), "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
			}, elect...)
		},
	})
	return err
}

// leads is a scheduler's figure of its lease.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`)

// leader is the scheduler that leads, "" where none says so.
func (w *world) leader() string {
	for _, name := range replicas {
		if name == w.frozen || w.Process(name) == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		text, err := w.Process(name).Get(ctx, "/metrics")
		cancel()
		if err == nil && (w.single || leads.Match(text)) {
			return name
		}
	}
	return ""
}

// freeze stops a scheduler in the middle of what it does, thaw lets it go on.
func (w *world) freeze(name string) {
	if w.Process(name).Signal(syscall.SIGSTOP) == nil {
		w.frozen = name
	}
}

func (w *world) thaw() {
	if w.frozen != "" {
		_ = w.Process(w.frozen).Signal(syscall.SIGCONT) // it may be dead
		w.frozen = ""
	}
}

// until waits for a condition. It fails the test after the limit, with what was seen last.
func (w *world) until(what string, limit time.Duration, holds func() (bool, string)) {
	w.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(limit); ; <-ticker.C {
		ok, seen := holds()
		if ok {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s: not within %v: %s\n%s", what, limit, seen, w.logs())
		}
	}
}

// logs are the ends of what the schedulers wrote.
func (w *world) logs() string {
	var all strings.Builder
	for _, name := range replicas {
		if text, err := os.ReadFile(filepath.Join(w.Dir(), name+".log")); err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", name, text[max(0, len(text)-6000):])
		}
	}
	return all.String()
}
