package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func newKey(t *testing.T) func() (*tls.Certificate, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*tls.Certificate, error) { return &tls.Certificate{PrivateKey: key}, nil }
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// TestManyNamespaces asks of as many as it may, the reader's own among them.
func TestManyNamespaces(t *testing.T) {
	var claims []string
	for i := range 2 * mostNamespaces {
		claims = append(claims, fmt.Sprintf("team-%03d/claim", i))
	}
	w := newWorld(t, gpuNode("n1", claims...)...)
	own := fmt.Sprintf("team-%03d", 2*mostNamespaces-1)
	w.user("t", "system:serviceaccount:"+own+":reader", "pods/team-000", "pods/"+own)
	text := w.get("/cluster.json", "t").Body.String()
	if !strings.Contains(text, own) || !strings.Contains(text, "team-000") || strings.Contains(text, "team-001") || !strings.Contains(text, "100 namespaces alone") {
		t.Errorf("%s", text)
	}
	if w.asked != mostNamespaces+2 {
		t.Errorf("%d questions", w.asked)
	}
}

// TestSlimKeepsWhatIsRead has a pod of a stranger's that is larger than anything read of it.
func TestSlimKeepsWhatIsRead(t *testing.T) {
	pod := waitingPod("ns", "p")
	pod.Labels = map[string]string{"a": strings.Repeat("x", 1<<16)}
	pod.Annotations["other"] = strings.Repeat("x", 1<<16)
	pod.Annotations[v1alpha1.ClaimsAnnotation] = strings.Repeat("x", 1<<16)
	pod.Spec.Containers = []corev1.Container{{Image: strings.Repeat("x", 1<<16)}}
	pod.Spec.ResourceClaims = slices.Repeat([]corev1.PodResourceClaim{{Name: "c"}}, 1000)
	pod.Status.Conditions[0].Message = strings.Repeat("x", 1<<16)
	kept, err := slim(pod)
	if err != nil {
		t.Fatal(err)
	}
	slimmed, ok := kept.(*corev1.Pod)
	if !ok || slimmed.Size() > 2*largestKept || slimmed.Annotations[v1alpha1.ClaimsAnnotation] == "" || slimmed.Annotations[v1alpha1.RequestAnnotation] != "x" {
		t.Errorf("%d bytes are kept, %v", slimmed.Size(), slimmed.Annotations)
	}
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q", Labels: pod.Labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := slim(plain); err != nil || plain.Size() > 200 {
		t.Errorf("%d bytes are kept of a pod without GPUs, %v", plain.Size(), err)
	}
}
