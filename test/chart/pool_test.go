package chart_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/remote/issuer"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestPoolIsOffAsItComes and takes nothing then.
func TestPoolIsOffAsItComes(t *testing.T) {
	for _, word := range []string{"tokenreviews", "--pool=all", "--pool-issuer=divvy-controller-pool.divvy-system.svc:443", "--pool-address", "divvy-pool-authority", "audience: divvy-pool"} {
		for kubernetes, values := range map[string]string{newest: "", oldest: ""} {
			if strings.Contains(joined(rendered(t, kubernetes, values)), word) {
				t.Errorf("%s with %q has %s", kubernetes, values, word)
			}
		}
		if !strings.Contains(joined(rendered(t, newest, "pool: {gpus: all}")), word) {
			t.Errorf("where it is on, %s is missing", word)
		}
	}
	hosts := joined(rendered(t, newest, `pool: {gpus: "0,1", hosts: "example.org/pool=true", selector: "zone in (a,b)"}`))
	for _, word := range []string{"--pool=0,1", "--pool-hosts=example.org/pool=true", "--pool-selector=zone in (a,b)"} {
		if !strings.Contains(hosts, word) {
			t.Errorf("%s is missing", word)
		}
	}
	policies := joined(rendered(t, newest, "pool: {gpus: all}\nnetworkPolicy: {enabled: true, callers: [{ipBlock: {cidr: 10.0.0.4/32}}]}"))
	if n := strings.Count(policies, "- {port: pool}"); n != 1 {
		t.Errorf("%d components answer agents", n)
	}
}

// TestRightsOfPool holds in a golden what it adds to the chart's rights: the controller alone reads the authority.
func TestRightsOfPool(t *testing.T) {
	without := map[string]bool{}
	for _, role := range find[*rbacv1.ClusterRole](t, rendered(t, newest, "")) {
		without[role.Name] = true
	}
	for _, role := range find[*rbacv1.Role](t, rendered(t, newest, "")) {
		without[role.Name] = true
	}
	documents := rendered(t, newest, "pool: {gpus: all}")
	var all bytes.Buffer
	for _, role := range find[*rbacv1.ClusterRole](t, documents) {
		if !without[role.Name] {
			writeRules(t, &all, "ClusterRole "+role.Name, role.Rules)
		}
	}
	for _, role := range find[*rbacv1.Role](t, documents) {
		if !without[role.Name] {
			writeRules(t, &all, "Role "+role.Name, role.Rules)
		}
	}
	golden(t, "rights-pool.yaml", all.Bytes())
}

// bound is a token of an agent's pod on a node, made with it, for an audience; "" is the API server's own.
func bound(t *testing.T, client kubernetes.Interface, node, audience string) string {
	t.Helper()
	pods := client.CoreV1().Pods(namespace)
	pod, err := pods.Get(t.Context(), "agent-"+node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "divvy-agent", Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "divvy-agent", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// issueTo serves certificates with the rights that the chart gives the controller, and returns what asks with a token.
func issueTo(t *testing.T, p *plane.Plane) func(token string) *issuer.Client {
	t.Helper()
	client, err := kubernetes.NewForConfig(with(p, tokenOf(t, p.Client(), namespace, "divvy-controller")))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- issuer.Serve(ctx, listener, issuer.Options{
			Client: client, Namespace: namespace, Agents: agent, Names: []string{"127.0.0.1"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(token string) *issuer.Client {
		dir, authority := t.TempDir(), ""
		eventually(t, func() bool {
			told, err := p.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), issuer.ConfigMap, metav1.GetOptions{})
			if err == nil {
				authority = told.Data[issuer.FileAuthority]
			}
			return authority != ""
		})
		for name, text := range map[string]string{issuer.FileToken: token, issuer.FileAuthority: authority} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return &issuer.Client{Address: listener.Addr().String(), Dir: dir}
	}
}

// TestPoolWithAnAPIServer has a real one decide, with the chart's rights and policies: who may publish GPUs that others reach,
// whose token is whose, and that a certificate is for the node whose pod has the claim.
func TestPoolWithAnAPIServer(t *testing.T) {
	p := newPlane(t, "RBAC")
	client := p.Client()
	for _, name := range []string{namespace, "team"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	install(t, p, rendered(t, newest, "pool: {gpus: all}"), map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings", "DeviceClass": "deviceclasses",
		"ServiceAccount": "serviceaccounts", "Secret": "secrets", "ConfigMap": "configmaps",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	})
	publishRemote(t, p, "gpu-1", "gpu-1", "")
	publishRemote(t, p, "n1", "gpu-2", "may only write slices of its own node")
	claim := claimRemote(t, p, "n1")
	as := issueTo(t, p)
	bundle, err := as(bound(t, client, "n1", issuer.Audience)).Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if node, uid, ok := v1alpha1.ParseRemoteClient(bundle.Name()); !ok || node != "n1" || uid != string(claim.UID) {
		t.Errorf("the certificate is for %s", bundle.Name())
	}
	for what, token := range map[string]string{"another node": bound(t, client, "gpu-1", issuer.Audience), "a token for the API": bound(t, client, "n1", ""), "no token of its": "x"} {
		if _, err := as(token).Claim(t.Context(), claim); !errors.Is(err, issuer.ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	host, err := as(bound(t, client, "gpu-1", issuer.Audience)).Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(host.Certificate.Leaf.VerifyHostname("gpu-1"), host.Certificate.Leaf.VerifyHostname("10.0.0.7")); err != nil {
		t.Error(err)
	}
	agents, err := kubernetes.NewForConfig(with(p, bound(t, client, "n1", "")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agents.CoreV1().Secrets(namespace).Get(t.Context(), issuer.Secret, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an agent reads the authority: %v", err)
	}
}

// publishRemote has the agent of a node publish a GPU of a host, which is refused with a reason, "" for none.
func publishRemote(t *testing.T, p *plane.Plane, node, host, refusal string) {
	t.Helper()
	agents, err := kubernetes.NewForConfig(with(p, bound(t, p.Client(), node, "")))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := pool.RemoteSpec(pool.Host{Node: host, Address: netip.MustParseAddrPort("10.0.0.7:7117")}, []pool.GPU{{UUID: "GPU-00000000-0000-4000-8000-000000000001", Memory: 16 << 30, Form: pool.Remote}})
	if err != nil {
		t.Fatal(err)
	}
	class, err := agents.ResourceV1().DeviceClasses().Get(t.Context(), v1alpha1.ClassRemote, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { // the API server has taken up the policy a moment after it was made
		_, err = agents.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice(host), OwnerReferences: []metav1.OwnerReference{{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass", Name: class.Name, UID: class.UID}}},
			Spec:       *spec,
		}, metav1.CreateOptions{})
		if refusal == "" {
			return err == nil
		}
		if err == nil {
			if err := p.Client().ResourceV1().ResourceSlices().Delete(t.Context(), v1alpha1.RemoteSlice(host), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			return false
		}
		return strings.Contains(err.Error(), refusal)
	})
}

// claimRemote makes a claim that has a GPU of gpu-1 and is reserved for a pod of a node, whose objects are there.
func claimRemote(t *testing.T, p *plane.Plane, node string) issuer.Claim {
	t.Helper()
	client := p.Client()
	pod, err := client.CoreV1().Pods("team").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.ResourceV1().ResourceClaims("team").Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassRemote, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := p.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:kube-scheduler", Groups: []string{"system:masters"}}
	scheduling, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: v1alpha1.Driver, Pool: v1alpha1.RemotePool("gpu-1"), Device: "gpu-00000000-0000-4000-8000-000000000001-remote",
	}}}}
	made.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	if _, err := scheduling.ResourceV1().ResourceClaims("team").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return issuer.Claim{Namespace: "team", Name: "c", UID: made.UID}
}
