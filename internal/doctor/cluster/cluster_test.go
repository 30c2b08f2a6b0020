package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/version"
)

const system = "divvy-system"

// installed are the objects of a cluster in which all is well but for who may ask the webhook.
func installed() []runtime.Object {
	two, bundle := int32(2), admissionregistrationv1.WebhookClientConfig{CABundle: []byte("x")}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: system, Name: name} }
	deployment := func(name string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"x"}}}
		return d
	}
	return []runtime.Object{
		deployment(webhookName), deployment(controllerName),
		&appsv1.DaemonSet{ObjectMeta: meta(agentName), Status: appsv1.DaemonSetStatus{NumberReady: 3, DesiredNumberScheduled: 3}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookName},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "pods.divvy.dev", ClientConfig: bundle}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookName},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "claims.divvy.dev", ClientConfig: bundle}}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "w1", Labels: map[string]string{"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "webhook"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3"},
		},
	}
}

func unreachable(context.Context, string) (bool, error) { return false, errors.New("no route") }

func find[T runtime.Object](objects []runtime.Object) (found T) {
	for _, object := range objects {
		if one, ok := object.(T); ok {
			return one
		}
	}
	return found
}

func TestCluster(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]runtime.Object) []runtime.Object
		port   func(context.Context, string) (bool, error)
		want   []string // checks that are not ok, and what they say
	}{
		"open": {nil, unreachable, []string{"warn the webhook's port: it is open: whoever reaches it may ask"}},
		"open, as a pod says": {nil, func(_ context.Context, address string) (bool, error) {
			return address == "10.1.2.3:8443", nil
		}, []string{"no client certificate is asked for (asked pod w1)"}},
		"one of two is open": {func(o []runtime.Object) []runtime.Object {
			other := find[*corev1.Pod](o).DeepCopy()
			other.Name, other.Status.PodIP = "w2", "10.1.2.4"
			return append(o, other)
		}, func(_ context.Context, address string) (bool, error) {
			return address == "10.1.2.3:8443", nil
		}, []string{"no client certificate is asked for (asked pod w1)"}},
		"an open one is about to end": {func(o []runtime.Object) []runtime.Object {
			old, ending := find[*corev1.Pod](o).DeepCopy(), metav1.Unix(1, 0)
			old.Name, old.Status.PodIP, old.DeletionTimestamp, old.Finalizers = "w0", "10.1.2.4", &ending, []string{"a/b"}
			return append(o, old)
		}, func(_ context.Context, address string) (bool, error) {
			return address == "10.1.2.4:8443", nil
		}, nil},
		"closed, as a pod says": {nil, func(context.Context, string) (bool, error) { return false, nil }, nil},
		"closed, as its arguments say": {func(o []runtime.Object) []runtime.Object {
			container := &find[*appsv1.Deployment](o).Spec.Template.Spec.Containers[0]
			container.Args = append(container.Args, "--client-authority=/x", "--client-name=kube-apiserver")
			return o
		}, unreachable, nil},
		"closed as it should be, open as a pod says": {func(o []runtime.Object) []runtime.Object {
			container := &find[*appsv1.Deployment](o).Spec.Template.Spec.Containers[0]
			container.Args = append(container.Args, "--client-name=kube-apiserver")
			return o
		}, func(context.Context, string) (bool, error) { return true, nil }, []string{"warn the webhook's port: it is open"}},
		"callers named": {func(o []runtime.Object) []runtime.Object {
			https, metrics := intstr.FromString("https"), intstr.FromString("metrics")
			return append(o, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: webhookName}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: []networkingv1.NetworkPolicyPort{{Port: &metrics}}},
				{Ports: []networkingv1.NetworkPolicyPort{{Port: &https}}, From: make([]networkingv1.NetworkPolicyPeer, 3)},
			}}})
		}, unreachable, []string{"a network policy names 3 callers"}},
		"no webhook": {func(o []runtime.Object) []runtime.Object {
			find[*appsv1.Deployment](o).Status.ReadyReplicas = 0
			return o
		}, unreachable, []string{"fail the webhook: 0 of 2 replicas are ready", "warn the webhook's port"}},
		"nothing": {func([]runtime.Object) []runtime.Object { return nil }, unreachable, []string{"fail the webhook: ", "fail the controller: ", "fail agents: "}},
		"no trust": {func(o []runtime.Object) []runtime.Object {
			find[*admissionregistrationv1.ValidatingWebhookConfiguration](o).Webhooks[0].ClientConfig.CABundle = nil
			return o
		}, unreachable, []string{"fail the webhook's certificate: the API server trusts nobody for claims.divvy.dev", "warn the webhook's port"}},
		"slots, one node without": {func(o []runtime.Object) []runtime.Object {
			set := find[*appsv1.DaemonSet](o)
			set.Status.NumberReady = 2
			set.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--mode=slots"}}}
			return append(append(o[:1:1], o[2:]...), slotted(true).objects()...)
		}, unreachable, []string{"warn the webhook's port", "warn agents: 2 of 3 nodes"}},
		"slots that nobody places": {func(o []runtime.Object) []runtime.Object {
			find[*appsv1.DaemonSet](o).Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--mode=slots"}}}
			return append(o[:1:1], o[2:]...)
		}, unreachable, []string{"warn the webhook's port", "fail the scheduler: "}},
		"two versions": {func(o []runtime.Object) []runtime.Object {
			other := find[*corev1.Pod](o).DeepCopy()
			other.Name, other.Labels[versionLabel] = "w2", "0.0.2"
			find[*corev1.Pod](o).Labels[versionLabel] = version.Number()
			return append(o, other)
		}, unreachable, []string{"warn the webhook's port", "warn versions: 0.0.2 in 1 pods, such as w2; " + version.Number() + " in 1 pods"}},
		"another version": {func(o []runtime.Object) []runtime.Object {
			find[*corev1.Pod](o).Labels[versionLabel] = "0.0.2"
			return o
		}, unreachable, []string{"warn the webhook's port", "and this program is " + version.Number()}},
		"this version": {func(o []runtime.Object) []runtime.Object {
			find[*corev1.Pod](o).Labels[versionLabel] = version.Number()
			return o
		}, unreachable, []string{"warn the webhook's port"}},
		"no nodes": {func(o []runtime.Object) []runtime.Object {
			find[*appsv1.DaemonSet](o).Status = appsv1.DaemonSetStatus{}
			return o
		}, unreachable, []string{"warn the webhook's port", "warn agents: 0 of 0 nodes"}},
	} {
		objects := installed()
		if c.change != nil {
			objects = c.change(objects)
		}
		checks := Cluster{Client: fake.NewClientset(objects...), Namespace: system, Port: c.port}.Run(t.Context())
		var wrong []string
		for _, check := range checks {
			line := fmt.Sprintf("%s %s: %s", check.Status, check.Name, check.Found)
			if check.Status != doctor.OK {
				wrong = append(wrong, line)
				if check.Next == "" && !strings.Contains(line, "agents") {
					t.Errorf("%s: %s, and nothing to do about it", name, line)
				}
			}
		}
		matches := len(wrong) == len(c.want)
		for i := range wrong {
			matches = matches && strings.Contains(wrong[i], c.want[i])
		}
		if !matches {
			t.Errorf("%s: %q, want %q", name, wrong, c.want)
		}
	}
}

func TestClusterThatDoesNotAnswer(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	checks := Cluster{Client: client, Namespace: system}.Run(t.Context())
	if len(checks) != 1 || checks[0].Status != doctor.Fail {
		t.Errorf("%+v", checks)
	}
}

// serving is a server with TLS on the loopback.
func serving(t *testing.T, change func(*tls.Config)) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	change(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), TLSConfig: config, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return listener.Addr().String()
}

func TestOpen(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tls.Config)
		open   bool
	}{
		"to everybody":                 {func(*tls.Config) {}, true},
		"to clients with certificates": {func(c *tls.Config) { c.ClientAuth = tls.RequireAndVerifyClientCert }, false},
		"the same by TLS 1.2": {func(c *tls.Config) {
			c.ClientAuth, c.MaxVersion = tls.RequireAndVerifyClientCert, tls.VersionTLS12
		}, false},
	} {
		if open, err := Open(t.Context(), serving(t, c.change)); err != nil || open != c.open {
			t.Errorf("%s: open %v, %v", name, open, err)
		}
	}
	if _, err := Open(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("a port that nobody has is known")
	}
}
