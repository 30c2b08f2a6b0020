package dra_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// sleeping is an agent with one tenancy, which it takes off its GPU and back at once.
type sleeping struct {
	tenancy agent.Tenancy
	mu      sync.Mutex
	ordered map[string]agent.Order
}

func (s *sleeping) Prepare(context.Context, agent.Tenancy) (edits.Edits, error) {
	return edits.Edits{}, nil
}
func (s *sleeping) Release(context.Context, string) error { return nil }
func (s *sleeping) Abandon(context.Context, string) error { return nil }
func (s *sleeping) Adopt(context.Context, string)         {}
func (s *sleeping) Tenancies() []agent.Tenancy            { return []agent.Tenancy{s.tenancy} }
func (s *sleeping) Expect(map[string]agent.Expected)      {}
func (s *sleeping) Changed() <-chan struct{}              { return nil }

func (s *sleeping) Suspend(_ context.Context, key string, o agent.Order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ordered[key] = o
	return nil
}

func (s *sleeping) Resume(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ordered, key)
	return nil
}

func (s *sleeping) Ordered() map[string]agent.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ordered)
}

// TestAgentsAnswers runs an agent's part that answers orders against an API server with the chart's rights and policies, with the token
// of its node: it hears of orders on its node alone, answers them, and may answer for no other node.
func TestAgentsAnswers(t *testing.T) {
	components, err := plane.Components("../../..")
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	p, err := plane.Start(t.Context(), plane.Options{Components: components, Authorization: "RBAC", Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "divvy-system"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mine, others := giveShare(t, p.Client(), "mine", "n1"), giveShare(t, p.Client(), "others", "n2")
	installRights(t, p)
	as := func(user, node string) kubernetes.Interface {
		config := p.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated", "system:serviceaccounts"}}
		if node != "" {
			config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	agents := as(agentUser, "n1")
	s := &sleeping{tenancy: agent.Tenancy{Key: string(mine.UID), Name: "default/mine", Namespace: "default", Claim: "mine"}, ordered: map[string]agent.Order{}}
	dir := t.TempDir()
	driver := dra.New(dra.Config{
		Node: "n1", Client: agents, Tenants: s, Suspender: s, Log: slog.New(slog.DiscardHandler), PluginDir: dir + "/plugin", RegistryDir: dir + "/registry", CDIDir: dir + "/cdi",
		Openings: dir + "/o", Handed: dir + "/h", Attached: dir + "/a", Remote: dir + "/r",
		Pool: func(ctx context.Context) (resourceslice.DriverResources, <-chan struct{}, error) {
			return resourceslice.DriverResources{}, ctx.Done(), nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := driver.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	awaitPolicies(t, p.Client())
	writes := as(schedulerUser, "")
	for order := int64(1); order <= 2; order++ {
		for _, claim := range []*resourcev1.ResourceClaim{mine, others} {
			writeOrder(t, writes, claim, order)
		}
		awaitAnswer(t, p.Client(), "mine", v1alpha1.SuspendedReason, order)
		for _, claim := range []*resourcev1.ResourceClaim{mine, others} {
			writeOrder(t, writes, claim, 0)
		}
		awaitAnswer(t, p.Client(), "mine", v1alpha1.ResumedReason, order)
	}
	if now, err := p.Client().ResourceV1().ResourceClaims("default").Get(t.Context(), "others", metav1.GetOptions{}); err != nil || len(now.Status.Devices) > 0 {
		t.Errorf("another node's claim has %+v, %v", now.Status.Devices, err)
	}
	status := []byte(`{"status":{"devices":[{"driver":"divvy.dev","pool":"n2","device":"` + pool.Name(gpuOfTests, pool.Shared) + `"}]}}`)
	if _, err := agents.ResourceV1().ResourceClaims("default").Patch(t.Context(), "others", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err == nil {
		t.Error("an agent answers for another node")
	}
}

// installRights makes the chart's rights and policies.
func installRights(t *testing.T, p *plane.Plane) {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../deploy/manifests/divvy-with-scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	made := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.Object == nil || kinds[object.GetKind()] == "" {
			continue
		}
		resource := object.GroupVersionKind().GroupVersion().WithResource(kinds[object.GetKind()])
		if _, err := client.Resource(resource).Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
			t.Fatalf("make %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		made++
	}
	if made < 4 {
		t.Fatalf("the manifest has %d of these objects", made)
	}
}

// awaitPolicies waits until the API server refuses the order of somebody who is no scheduler. It takes a moment to hear of a policy.
func awaitPolicies(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, value := range []string{`"{}"`, "null"} {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"divvy.dev/suspend":%s}}}`, value)
			_, err := client.ResourceV1().ResourceClaims("default").Patch(ctx, "others", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				return strings.Contains(err.Error(), "Divvy's scheduler alone") && value != "null", nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("anybody may order a suspension: %v", err)
	}
}

const (
	agentUser     = "system:serviceaccount:divvy-system:divvy-agent"
	schedulerUser = "system:serviceaccount:divvy-system:divvy-scheduler"
)

const gpuOfTests = "GPU-00000000-0000-4000-8000-000000000001"

// giveShare makes a claim that has a share on a node.
func giveShare(t *testing.T, client kubernetes.Interface, name, node string) *resourcev1.ResourceClaim {
	t.Helper()
	claims := client.ResourceV1().ResourceClaims("default")
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}
	made, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: v1alpha1.Driver, Pool: node, Device: pool.Name(gpuOfTests, pool.Shared)}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}
	made, err = claims.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// writeOrder writes an order as the scheduler does, and takes it away where it is 0.
func writeOrder(t *testing.T, client kubernetes.Interface, claim *resourcev1.ResourceClaim, order int64) {
	t.Helper()
	patch := `{"metadata":{"annotations":{"divvy.dev/suspend":null},"labels":{"divvy.dev/suspend-node":null}}}`
	if order > 0 {
		text, err := v1alpha1.Suspension{Order: order, For: "vision/train-0"}.Text()
		if err != nil {
			t.Fatal(err)
		}
		node := claim.Status.Allocation.Devices.Results[0].Pool
		patch = fmt.Sprintf(`{"metadata":{"annotations":{"divvy.dev/suspend":%q},"labels":{"divvy.dev/suspend-node":%q}}}`, text, v1alpha1.SuspendNode(node))
	}
	if _, err := client.ResourceV1().ResourceClaims("default").Patch(t.Context(), claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitAnswer waits until an order is answered so.
func awaitAnswer(t *testing.T, client kubernetes.Interface, name, reason string, order int64) {
	t.Helper()
	said := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := client.ResourceV1().ResourceClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(now.Status.Devices) == 0 {
			return false, err
		}
		c := v1alpha1.SuspensionAnswerOf(&now.Status.Devices[0])
		said = fmt.Sprintf("%+v", c)
		return c != nil && c.Reason == reason && c.ObservedGeneration == order, nil
	})
	if err != nil {
		t.Fatalf("wait for %s of order %d: %v; it is said: %s", reason, order, err, said)
	}
}
