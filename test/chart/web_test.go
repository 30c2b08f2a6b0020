package chart_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/controller/web"
	"github.com/divvy-gpu/divvy/internal/webhook"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	"github.com/divvy-gpu/divvy/test/chart/render"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestWebIsOffAsItComes and takes nothing then.
func TestWebIsOffAsItComes(t *testing.T) {
	for _, word := range []string{"tokenreviews", "subjectaccessreviews", "services/proxy", "--web-address", "divvy-controller-certificates", "name: divvy-web\n"} {
		for kubernetes, values := range map[string]string{newest: "", oldest: ""} {
			if strings.Contains(joined(rendered(t, kubernetes, values)), word) {
				t.Errorf("%s with %q has %s", kubernetes, values, word)
			}
		}
		if !strings.Contains(joined(rendered(t, newest, "controller: {web: {enabled: true}}")), word) {
			t.Errorf("where it is on, %s is missing", word)
		}
	}
	policies := "controller: {web: {enabled: true}}\nnetworkPolicy: {enabled: true, callers: [{ipBlock: {cidr: 10.0.0.4/32}}]}"
	if n := strings.Count(joined(rendered(t, newest, policies)), "- {port: https}"); n != 2 {
		t.Errorf("%d components are reached by API servers, want the webhook and the controller", n)
	}
}

// TestRightsOfWeb holds in a golden what the page adds to the chart's rights. Nobody is bound to the Role that leads to it.
func TestRightsOfWeb(t *testing.T) {
	without := map[string]bool{}
	for _, role := range find[*rbacv1.ClusterRole](t, rendered(t, newest, "")) {
		without[role.Name] = true
	}
	for _, role := range find[*rbacv1.Role](t, rendered(t, newest, "")) {
		without[role.Name] = true
	}
	documents := rendered(t, newest, "controller: {web: {enabled: true}}")
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
	golden(t, "rights-web.yaml", all.Bytes())
	subjects := []rbacv1.Subject{}
	for _, b := range find[*rbacv1.ClusterRoleBinding](t, documents) {
		if !without[b.RoleRef.Name] {
			subjects = append(subjects, b.Subjects...)
		}
	}
	for _, b := range find[*rbacv1.RoleBinding](t, documents) {
		if b.RoleRef.Name == "divvy-web" {
			t.Errorf("%v are bound to the page's Role", b.Subjects)
		}
		if !without[b.RoleRef.Name] {
			subjects = append(subjects, b.Subjects...)
		}
	}
	for _, s := range subjects {
		if s.Kind != rbacv1.ServiceAccountKind || s.Name != "divvy-controller" || s.Namespace != namespace {
			t.Errorf("%v gets rights of the page's", s)
		}
	}
	if len(subjects) != 2 {
		t.Errorf("%d bindings, want the controller's two", len(subjects))
	}
}

// account makes a service account and returns a token of it.
func account(t *testing.T, client kubernetes.Interface, namespace, name string) string {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return tokenOf(t, client, namespace, name)
}

func tokenOf(t *testing.T, client kubernetes.Interface, namespace, name string) string {
	t.Helper()
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// with is the configuration of who has a token.
func with(p *plane.Plane, token string) *rest.Config {
	config := rest.AnonymousClientConfig(p.Config())
	config.BearerToken = token
	return config
}

// servePages serves the page with the rights that the chart gives the controller, and returns its address.
func servePages(t *testing.T, p *plane.Plane) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(with(p, tokenOf(t, p.Client(), namespace, "divvy-controller")))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- web.New(web.Options{
			Client: client, Reviews: client, Version: "test", Now: time.Now, Log: log,
			Certificate: webhook.Certificates(ctx, webhook.Serving{
				Client: client, Certificates: webhook.OwnCertificates, Namespace: namespace, Service: "divvy-controller", Secret: "divvy-controller-certificates", Log: log,
			}),
		}).Serve(ctx, listener, log)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// claimOn makes a claim that has 4Gi of node n1's GPU.
func claimOn(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	claims := client.ResourceV1().ResourceClaims(namespace)
	made, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: v1alpha1.Driver, Pool: "n1", Device: "gpu-0-whole",
	}}}}
	if _, err := claims.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWebShowsWhatAReaderMayList has an API server decide, with the chart's rights: a service account of one namespace sees
// that alone. It asks directly, and through the API server where this machine has an address that it proxies to.
func TestWebShowsWhatAReaderMayList(t *testing.T) {
	p := newPlane(t, "RBAC")
	client := p.Client()
	for _, name := range []string{namespace, "red", "blue"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	install(t, p, rendered(t, newest, "controller: {web: {enabled: true}}"), map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings", "DeviceClass": "deviceclasses",
		"ServiceAccount": "serviceaccounts", "Secret": "secrets",
	})
	publish(t, client)
	claimOn(t, client, "red", "train")
	claimOn(t, client, "blue", "infer")
	reader, viewer := account(t, client, "red", "reader"), account(t, client, "red", "viewer")
	pods := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}
	if _, err := client.RbacV1().Roles("red").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: pods}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, client, "red", "pods", "reader")
	bind(t, client, namespace, "divvy-web", "reader")
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "divvy-viewer"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "red", Name: "viewer"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	port := servePages(t, p)
	direct := func(token string) (int, string) { return askDirectly(t, port, token) }
	eventually(t, func() bool { code, _ := direct(viewer); return code == http.StatusOK })
	eventually(t, func() bool { _, text := direct(reader); return strings.Contains(text, "train") }) // whose bindings are of another kind
	for token, want := range map[string][2]string{reader: {"train", "infer"}, viewer: {"infer", "You see"}} {
		if code, text := direct(token); code != http.StatusOK || !strings.Contains(text, want[0]) || strings.Contains(text, want[1]) {
			t.Errorf("%d %s, want %s and no %s", code, text, want[0], want[1])
		}
	}
	refusesOtherTokens(t, p, port)
	if code, text := direct("unknown"); code != http.StatusUnauthorized || strings.Contains(text, "train") {
		t.Errorf("an unknown token: %d %s", code, text)
	}
	throughProxy(t, p, port, reader)
}

// publish makes a node with a GPU.
func publish(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, NodeName: new("n1"), Pool: resourcev1.ResourcePool{Name: "n1", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0-whole", Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("40Gi")}}}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func bind(t *testing.T, client kubernetes.Interface, in, role, name string) {
	t.Helper()
	if _, err := client.RbacV1().RoleBindings(in).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "red", Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, longest, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
		t.Fatal(err)
	}
}

// askDirectly asks for the overview as a program does that trusts the page's certificate.
func askDirectly(t *testing.T, port, token string) (int, string) {
	t.Helper()
	config := &rest.Config{Host: "https://127.0.0.1:" + port, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	asking, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer asking.CloseIdleConnections()
	answer, err := asking.Get(config.Host + "/cluster.json")
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// throughProxy asks by way of the API server, as `divvy ls --cluster` does. API servers proxy to no loopback address.
func throughProxy(t *testing.T, p *plane.Plane, port, token string) {
	t.Helper()
	address := ""
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if prefix, ok := a.(*net.IPNet); ok && prefix.IP.IsGlobalUnicast() && prefix.IP.To4() != nil {
			address = prefix.IP.String()
		}
	}
	if address == "" {
		t.Log("this machine has no address beyond its loopback interface: the API server's proxy is not asked")
		return
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	// API servers proxy to the addresses of pods alone.
	pod, err := p.Client().CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "page"}, Spec: corev1.PodSpec{
		NodeName: "n1", ServiceAccountName: "divvy-controller", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "page", Image: "page"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	if _, err := p.Client().CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "divvy-controller"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Client().CoreV1().Endpoints(namespace).Create(t.Context(), &corev1.Endpoints{ //nolint:staticcheck // the API server's proxy reads these
		ObjectMeta: metav1.ObjectMeta{Name: "divvy-controller"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "page"}}}, Ports: []corev1.EndpointPort{{Name: "https", Port: int32(number)}}}}, //nolint:gosec,staticcheck // a port
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(with(p, token))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	ask := func(path, header string) error {
		text, err = client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("services").Name("https:divvy-controller:https").SubResource("proxy").Suffix(path).
			SetHeader(web.TokenHeader, header).DoRaw(t.Context())
		return err
	}
	eventually(t, func() bool {
		err := ask("cluster.json", "Bearer "+token)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	if !strings.Contains(string(text), "train") || strings.Contains(string(text), "infer") {
		t.Errorf("through the proxy: %s", text)
	}
	if err := ask("", ""); err != nil || !strings.Contains(string(text), `action="session"`) || strings.Contains(string(text), "train") {
		t.Errorf("without the header, the proxy's own token shows nothing: %v %s", err, text)
	}
}

// Where there are no claims to show, who asks for the page is told.
func TestPageNeedsClaims(t *testing.T) {
	for kubernetes, values := range map[string]string{oldest: "", newest: "mode: slots\n"} {
		_, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: kubernetes, Values: values + "controller: {web: {enabled: true}}"})
		if err == nil || !strings.Contains(err.Error(), "controller.web.enabled: the web page shows claims") {
			t.Errorf("%s: %v", kubernetes, err)
		}
	}
}

// Helm's notes say how to see the cluster, in a browser where the page is served, and nothing of a page that cannot be.
func TestNotesNameThePage(t *testing.T) {
	const address = "/namespaces/" + namespace + "/services/https:divvy-controller:https/proxy/"
	for _, c := range []struct {
		kubernetes, values string
		listed, off, on    bool
	}{
		{newest, "", true, true, false},
		{newest, "controller: {web: {enabled: true}}", true, false, true},
		{oldest, "", false, false, false},
	} {
		notes, err := render.Notes(dir, render.Options{Namespace: namespace, Kubernetes: c.kubernetes, Values: c.values})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(notes, "divvy ls --cluster") != c.listed || strings.Contains(notes, "controller.web.enabled") != c.off || strings.Contains(notes, address) != c.on {
			t.Errorf("%s, %q:\n%s", c.kubernetes, c.values, notes)
		}
	}
}
