package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// namespace is where all pods are.
	namespace = "default"
	// gpuMemory is what each GPU has.
	gpuMemory = 80 << 30
	// account is who the schedulers are to the API server.
	account = "system:serviceaccount:divvy-system:divvy-scheduler"
	// refused begins the names of pods whose claims an admission policy refuses.
	refused = "refused"
	// refusal is what that policy says.
	refusal = "this pod gets nothing"
)

// world is a cluster whose API server, schedulers and nodes can be troubled.
type world struct {
	*plane.Plane
	t      *testing.T
	client kubernetes.Interface
	front  *front
	nodes  int
	gpus   int // of each node
	*starts
	frozen string // the scheduler that is stopped
	// single has the first replica alone, which leads at once. patient has leases that nobody loses while the machine or its disk
	// stands still for some seconds.
	single, patient bool
}

// newWorld starts an API server with nodes, and Kubernetes' controllers of claims. It skips where Kubernetes' programs were
// not built.
func newWorld(t *testing.T, nodes, gpus int) *world {
	t.Helper()
	components, err := plane.Components(checkout)
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	p, err := plane.Start(t.Context(), plane.Options{Components: components, Log: t.Logf, APIServer: audited(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Plane: p, t: t, client: p.Client(), nodes: nodes, gpus: gpus, starts: &starts{begins: map[string]*atomic.Bool{}}}
	for _, name := range replicas {
		w.begins[name] = &atomic.Bool{}
	}
	t.Cleanup(w.starting.Wait) // the test's context has ended by then
	w.front = newFront(t, p.Process(plane.APIServer).URL())
	w.connect()
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
	w.inForce()
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
				Message: refusal,
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
