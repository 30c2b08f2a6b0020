package chart_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/explanation"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestNodeIsShown asks a real API server about a node as people with different rights do: as divvy ls --cluster and divvy node.
func TestNodeIsShown(t *testing.T) {
	p := newPlane(t, "RBAC")
	if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	install(t, p, rendered(t, newest, ""), map[string]string{"ClusterRole": "clusterroles", "DeviceClass": "deviceclasses"})
	offer(t, p, v1alpha1.SchedulerName)
	grant(t, p)
	stop := serveMetrics(t, p)
	as := func(user string) explanation.Reader {
		config := p.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return explanation.Reader{Client: client}
	}
	if _, err := as("stranger").Overview(t.Context(), "n1", "default", time.Now()); !errors.Is(err, explanation.ErrMayNotLook) {
		t.Errorf("a stranger is told %v", err)
	}
	bindTo(t, p, "ada", "divvy-viewer")
	cluster, err := as("ada").Overview(t.Context(), "", "default", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(cluster.Nodes) != 1 || len(cluster.Waiting) != 1 || cluster.Waiting[0].Name != "pod" || cluster.Hidden != "" {
		t.Errorf("the cluster is %+v", cluster)
	}
	node, err := as("ada").Overview(t.Context(), "n1", "default", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	g := &node.Nodes[0].GPUs[0]
	if g.Granted != 8<<30 || g.Count != 1 || g.Cores != 30 || g.Shares[0].Pods[0] != "train" {
		t.Errorf("the GPU is %+v", g)
	}
	if err := as("ada").Use(t.Context(), &node.Nodes[0], namespace); err == nil || !strings.Contains(err.Error(), "you may not get pods/proxy in namespace "+namespace) {
		t.Errorf("without the right to ask the agent: %v", err)
	}
	bindTo(t, p, "ada", "cluster-admin")
	if err := as("ada").Use(t.Context(), &node.Nodes[0], namespace); err != nil {
		t.Fatal(err)
	}
	if g.Used == nil || *g.Used != 3<<30 || *g.Utilisation != 87 || *g.Shares[0].Used != 1<<30 || g.Count != 1 {
		t.Errorf("with use the GPU is %+v", g)
	}
	stop()
	if err := as("ada").Use(t.Context(), &node.Nodes[0], namespace); err == nil || !strings.Contains(err.Error(), "agents listen on 127.0.0.1 unless the chart's agent.metrics.host is 0.0.0.0") {
		t.Errorf("without an agent behind the port: %v", err)
	}
}

// bindTo gives a user a role, and waits until the API server's authorizer has heard of it.
func bindTo(t *testing.T, p *plane.Plane, user, role string) {
	t.Helper()
	api := p.Client().RbacV1()
	if _, err := api.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of, err := api.ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rule := of.Rules[0]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]},
	}}
	eventually(t, func() bool {
		answer, err := p.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed
	})
}

// grant makes a claim that has a part of the GPU of [offer], of which a pod makes use.
func grant(t *testing.T, p *plane.Plane) {
	t.Helper()
	slices, err := p.Client().ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims := p.Client().ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "train-gpu"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	share := types.UID("5b8f9b5e-2f4d-4f8e-9d5b-1f7f1f3c2a10")
	claim.Status = resourcev1.ResourceClaimStatus{
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "1"}},
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: v1alpha1.Driver, Pool: "n1", Device: slices.Items[0].Spec.Devices[0].Name, ShareID: &share,
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse("8Gi"), v1alpha1.CapacityCores: resource.MustParse("30"), v1alpha1.CapacitySlots: resource.MustParse("1")},
		}}}},
	}
	if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// told is what the agent of node n1 tells of the GPU of [offer].
const told = `divvy_agent_listing_success{node="n1"} 1
divvy_gpu_memory_used_bytes{node="n1",gpu="0",UUID="%[1]s"} 3221225472
divvy_gpu_utilization_ratio{node="n1",gpu="0",UUID="%[1]s"} 0.87
divvy_share_info{node="n1",gpu="0",UUID="%[1]s",namespace="default",pod="train",container="main",user="",claim="train-gpu",share="default/train-gpu",tenant="t1",policy="fixed"} 1
divvy_share_memory_used_bytes{node="n1",gpu="0",UUID="%[1]s",namespace="default",pod="train",container="main",user="",claim="train-gpu",share="default/train-gpu",tenant="t1"} 1073741824
`

// serveMetrics stands for the agent of node n1: a pod whose address is this machine's, and what it tells there, until stop is
// called.
func serveMetrics(t *testing.T, p *plane.Plane) (stop func()) {
	t.Helper()
	address := ownAddress(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = fmt.Fprintf(w, told, "GPU-00000000-0000-4333-8444-555555555555")
		}
	})}
	go func() { _ = server.Serve(listener) }()
	stop = func() { _ = server.Close() }
	t.Cleanup(stop)
	pods := p.Client().CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "divvy-agent-x", Labels: map[string]string{"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "agent"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "agent", Image: "none", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(listener.Addr().(*net.TCPAddr).Port)}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return stop
}

// ownAddress is one of this machine's that the API server takes for a pod's: the loopback interface's are refused.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	installtest.Missing(t, "network", errors.New("this machine has no address but the loopback interface's"))
	return ""
}
