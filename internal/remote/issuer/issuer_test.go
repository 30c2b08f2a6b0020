package issuer

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

const (
	system = "divvy-system"
	agents = "system:serviceaccount:divvy-system:divvy-agent"
	uid    = "8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e"
)

// cluster is an API server with a claim that has a GPU of host gpu-1 and is reserved for a pod of node n1.
type cluster struct {
	*fake.Clientset
	reviews map[string]authenticationv1.TokenReviewStatus
	away    error
}

func user(name, node string) authenticationv1.TokenReviewStatus {
	s := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{Audience}, User: authenticationv1.UserInfo{Username: name}}
	if node != "" {
		s.User.Extra = map[string]authenticationv1.ExtraValue{nodeExtra: {node}}
	}
	return s
}

func claimOf(pool, pod string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: uid}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: v1alpha1.Driver, Pool: pool, Device: "gpu-1-remote"}, {Driver: "other", Pool: "remote/else"},
	}}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "apps", Resource: "pods", Name: "p", UID: "p"}, {Resource: "pods", Name: pod, UID: "p"}}
	return c
}

func podOn(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
}

func newCluster(objects ...runtime.Object) *cluster {
	none := authenticationv1.TokenReviewStatus{}
	elsewhere := user(agents, "n1")
	elsewhere.Audiences = []string{"https://kubernetes.default.svc"}
	c := &cluster{reviews: map[string]authenticationv1.TokenReviewStatus{
		"n1": user(agents, "n1"), "n2": user(agents, "n2"), "gpu-1": user(agents, "gpu-1"), "controller": user(agents, "localhost"),
		"unbound": user(agents, ""), "scheduler": user("system:serviceaccount:divvy-system:divvy-scheduler", "n1"), "api": elsewhere, "nobody": none,
	}}
	c.Clientset = fake.NewClientset(append(objects,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: Secret}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: ConfigMap}})...)
	c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if !slices.Equal(review.Spec.Audiences, []string{Audience}) {
			return true, nil, errors.New("another audience")
		}
		review.Status = c.reviews[review.Spec.Token]
		return true, review, nil
	})
	c.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return c.away != nil && a.GetNamespace() != system, nil, c.away
	})
	return c
}

// serve runs a server until the test ends, and returns a client for each token.
func (c *cluster) serve(t *testing.T) func(token string) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, Options{Client: c, Namespace: system, Agents: agents, Names: []string{"localhost", "127.0.0.1"}, Log: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(token string) *Client {
		// The first question waits in the listener until the server has its authority.
		dir := t.TempDir()
		for {
			told, err := c.CoreV1().ConfigMaps(system).Get(t.Context(), ConfigMap, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if told.Data[keyAuthority] == "" {
				time.Sleep(time.Millisecond)
				continue
			}
			write(t, dir, FileAuthority, told.Data[keyAuthority])
			break
		}
		write(t, dir, FileToken, token+"\n")
		return &Client{Address: l.Addr().String(), Dir: dir}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var wanted = Claim{Namespace: "team", Name: "c", UID: uid}

// A client of one node and claim and a host speak to each other with what the controller issued, and know each other's names.
func TestClientAndHost(t *testing.T) {
	as := newCluster(claimOf("remote/gpu-1", "p"), podOn("n1", corev1.PodRunning), sliceOf("gpu-1", "10.0.0.7:7117"), sliceOf("gpu-2", "10.0.0.8:7117")).serve(t)
	bundle, err := as("n1").Claim(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(bundle.NotAfter()); left > ClientFor || left < ClientFor-time.Minute || !slices.Equal(bundle.Hosts, []string{"gpu-1"}) {
		t.Errorf("valid for %s, for hosts %v", left, bundle.Hosts)
	}
	host, err := as("gpu-1").Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name, err := handshake(t, identity.ServerConfig(host.Authority, func() (*tls.Certificate, error) { return host.Certificate, nil }), bundle.Config("gpu-1"))
	if node, claim, ok := v1alpha1.ParseRemoteClient(name); err != nil || !ok || claim != uid || node != "n1" {
		t.Errorf("the host sees %q, %v", name, err)
	}
	for name, want := range map[string]bool{"10.0.0.7:7117": true, "gpu-2": false, "10.0.0.8:7117": false} {
		_, err := handshake(t, identity.ServerConfig(host.Authority, func() (*tls.Certificate, error) { return host.Certificate, nil }), bundle.Config(name))
		if (err == nil) != want {
			t.Errorf("host gpu-1 is known as %s: %v, want %t", name, err, want)
		}
	}
}

// sliceOf is what a host publishes.
func sliceOf(host, address string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice(host)}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, Pool: resourcev1.ResourcePool{Name: v1alpha1.RemotePool(host)},
		Devices: []resourcev1.Device{{Name: "a", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeAddress: {StringValue: &address}}}},
	}}
}

// handshake returns the name of the client as the server sees it.
func handshake(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close() //nolint:errcheck // a pipe
	defer b.Close() //nolint:errcheck // a pipe
	one, other := tls.Server(a, server), tls.Client(b, client)
	failed := make(chan error, 1)
	go func() {
		err := other.HandshakeContext(t.Context())
		if err != nil {
			_ = b.Close()
		}
		failed <- err
	}()
	err := one.HandshakeContext(t.Context())
	if err != nil {
		_ = a.Close()
	}
	if err := errors.Join(err, <-failed); err != nil {
		return "", err
	}
	return identity.Client(one.ConnectionState())
}

func TestWhoIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		claim  Claim
		has    *resourcev1.ResourceClaim
		pod    *corev1.Pod
		reason string
	}{
		"no token":            {"", wanted, nil, nil, "no token"},
		"nobody":              {"nobody", wanted, nil, nil, "does not know the token"},
		"a token for the API": {"api", wanted, nil, nil, "does not know the token"},
		"another account":     {"scheduler", wanted, nil, nil, "divvy-scheduler, and agents are"},
		"no node":             {"unbound", wanted, nil, nil, "bound to no node"},
		"another node":        {"n2", wanted, nil, nil, "no pod that runs on node n2"},
		"another UID":         {"n1", Claim{"team", "c", "8dd5f44a"}, nil, nil, "there is no claim"},
		"no such claim":       {"n1", Claim{"team", "d", uid}, nil, nil, "there is no claim"},
		"no name":             {"n1", Claim{"team", "../c", uid}, nil, nil, "no claim can be named"},
		"a local GPU":         {"n1", wanted, claimOf("n1", "p"), nil, "no GPU of another host"},
		"not allocated":       {"n1", wanted, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: uid}}, nil, "no GPU of another host"},
		"reserved for nobody": {"n1", wanted, claimOf("remote/gpu-1", "q"), nil, "no pod that runs on node n1"},
		"a pod elsewhere":     {"n1", wanted, nil, podOn("n2", corev1.PodRunning), "no pod that runs on node n1"},
		"a pod that ended":    {"n1", wanted, nil, podOn("n1", corev1.PodSucceeded), "no pod that runs on node n1"},
		"another pod":         {"n1", wanted, nil, func() *corev1.Pod { p := podOn("n1", corev1.PodRunning); p.UID = "q"; return p }(), "no pod that runs on node n1"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.has == nil {
				c.has = claimOf("remote/gpu-1", "p")
			}
			if c.pod == nil {
				c.pod = podOn("n1", corev1.PodRunning)
			}
			_, err := newCluster(c.has, c.pod).serve(t)(c.token).Claim(t.Context(), c.claim)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%v, want %q", err, c.reason)
			}
		})
	}
	as := newCluster(sliceOf("gpu-1", "10.0.0.7:7117"), sliceOf("gpu-2", "10.0.0.7:7000")).serve(t)
	if _, err := as("gpu-1").Host(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "gpu-2") {
		t.Errorf("two hosts with one address: %v", err)
	}
	if _, err := as("controller").Host(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("a host with the controller's name: %v", err)
	}
	if _, err := as("nobody").Host(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("nobody's host: %v", err)
	}
}

// What the API server does not answer is nobody's fault, and says nothing of why.
func TestAPIServerAway(t *testing.T) {
	c := newCluster(claimOf("remote/gpu-1", "p"), podOn("n1", corev1.PodRunning))
	client := c.serve(t)("n1")
	c.away = errors.New("secret reason")
	if _, err := client.Claim(t.Context(), wanted); err == nil || errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// A controller that somebody else's authority certifies gets no token.
func TestAnotherController(t *testing.T) {
	as := newCluster().serve(t)
	client := as("n1")
	other, err := identity.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := other.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, client.Dir, FileAuthority, string(text))
	if _, err := client.Host(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

func TestOtherRequests(t *testing.T) {
	s := newServer(Options{Client: newCluster(), Agents: agents, Log: slog.New(slog.DiscardHandler)}, nil)
	for _, r := range []struct{ method, path, body string }{
		{"GET", pathHost, ""}, {"POST", "/", ""}, {"POST", pathHost + "?a=b", ""}, {"POST", pathClaim, "{}{}"}, {"POST", pathClaim, `{"node":"n2"}`}, {"POST", pathClaim, ""},
		{"POST", pathClaim, `{"name":"` + strings.Repeat("a", mostBytes) + `"}`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer n1")
		if _, err := s.answer(request); !errors.Is(err, ErrRefused) {
			t.Errorf("%s %s: %v", r.method, r.path, err)
		}
	}
}

// Replicas that begin at once have one authority, and one that begins later has the same. A damaged one is never replaced.
func TestReplicasHaveOneAuthority(t *testing.T) {
	c := newCluster()
	conflicts := 0
	var mu sync.Mutex
	c.PrependReactor("update", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if conflicts++; conflicts == 1 { // another replica was faster
			other := a.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).DeepCopy()
			if err := fill(other); err != nil {
				return true, nil, err
			}
			if err := c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), other, system); err != nil {
				return true, nil, err
			}
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, Secret, errors.New("older"))
		}
		return false, nil, nil
	})
	one, err := open(t.Context(), c, system)
	if err != nil {
		t.Fatal(err)
	}
	two, err := open(t.Context(), c, system)
	if err != nil || !one.Certificate().Equal(two.Certificate()) || conflicts != 1 {
		t.Errorf("%v; they differ: %t; %d writes", err, !one.Certificate().Equal(two.Certificate()), conflicts)
	}
	secret, err := c.CoreV1().Secrets(system).Get(t.Context(), Secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data[keyPrivate] = []byte("gone")
	if _, err := c.CoreV1().Secrets(system).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if a, err := open(t.Context(), c, system); err == nil {
		t.Errorf("a damaged authority became %v", a.Certificate().Subject)
	}
}

// The server's own certificate is made anew in the middle of its time.
func TestOwnCertificate(t *testing.T) {
	a, err := identity.NewAuthority(authorityFor)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(Options{Names: []string{"localhost"}, Log: slog.New(slog.DiscardHandler)}, a)
	now := time.Now()
	first, err := s.certificate(now)
	if err != nil {
		t.Fatal(err)
	}
	same, err := s.certificate(now.Add(hostFor / 3))
	other, failed := s.certificate(now.Add(hostFor/2 + time.Minute))
	if err != nil || failed != nil || same != first || other == first {
		t.Errorf("%v, %v: kept %t, renewed %t", err, failed, same == first, other != first)
	}
}
