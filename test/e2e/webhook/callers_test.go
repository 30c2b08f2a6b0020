package webhook

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// rejected has something else refuse a pod after the webhook let it through: nothing of the pod is left.
func rejected(l *lab) {
	l.must(l.ApplyText(l.ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}}`))
	for i := range 3 {
		err := l.ApplyText(l.ctx, pod("strict", "refused", fmt.Sprintf("divvy.dev/gpu-memory: %dGi", i+1)))
		if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			l.t.Fatalf("a pod that Pod Security does not allow: %v", err)
		}
	}
	// Whoever makes templates makes that of a later pod after those of earlier ones.
	l.namespace("lenient")
	l.must(l.ApplyText(l.ctx, pod("lenient", "admitted", "divvy.dev/gpu-memory: 1Gi")))
	_, err := l.WaitRunning(l.ctx, "lenient", "admitted")
	l.must(err)
	if made := l.templates("lenient"); len(made) != 1 {
		l.t.Errorf("an admitted pod has %d templates", len(made))
	}
	if left := l.templates("strict"); len(left) != 0 {
		l.t.Errorf("refused pods leave %d templates", len(left))
	}
	claims, err := l.Client().ResourceV1().ResourceClaims("strict").List(l.ctx, metav1.ListOptions{})
	l.must(err)
	if len(claims.Items) != 0 {
		l.t.Errorf("refused pods leave %d claims", len(claims.Items))
	}
	_, err = l.Kubectl(l.ctx, "delete", "namespaces", "strict", "lenient")
	l.must(err)
}

// callers closes the webhook's port to all but the API server. The doctor says what is so.
func callers(l *lab) {
	l.namespace("callers")
	own, err := l.ClientCertificate()
	l.must(err)
	admin, err := tls.X509KeyPair(l.Config().CertData, l.Config().KeyData)
	l.must(err)
	served := func(who string, want bool, shows ...tls.Certificate) {
		l.t.Helper()
		for _, address := range l.addresses() {
			if got, why := l.served(address, shows...); got != want {
				l.t.Errorf("%s: served by %s: %t, want %t: %v", who, address, got, want, why)
			}
		}
	}
	served("a stranger at the open port", true)
	if says := l.doctor(); !strings.Contains(says, "it is open: whoever reaches it may ask for reviews") || !strings.Contains(says, "(asked pod ") {
		l.t.Errorf("the doctor says of the open port: %s", says)
	}

	l.must(l.Install(l.ctx, "webhook.replicas=2", "webhook.clients.authority="+string(l.Config().CAData), "webhook.clients.names={"+cluster.ClientName+"}"))
	l.must(l.WaitAsked(l.ctx))
	served("a stranger", false)
	served("a client of the cluster that is not named", false, admin)
	served("the API server", true, own)
	for i := range 4 { // of two replicas
		name := fmt.Sprintf("p%d", i)
		l.must(l.ApplyText(l.ctx, pod("callers", name, "divvy.dev/gpu-memory: 1Gi")))
		_, err := l.WaitRunning(l.ctx, "callers", name)
		l.must(err)
	}
	if err := l.ApplyText(l.ctx, pod("callers", "bad", "divvy.dev/gpu-cores: 101")); err == nil || !strings.Contains(err.Error(), "GPU request refused") {
		l.t.Errorf("a pod with 101 cores: %v", err)
	}
	if says := l.doctor(); !strings.Contains(says, "it serves only who shows a client certificate of "+cluster.ClientName) {
		l.t.Errorf("the doctor says of the closed port: %s", says)
	}
	l.must(l.Install(l.ctx, "webhook.replicas=2"))
	l.must(l.WaitAsked(l.ctx))
	_, err = l.Kubectl(l.ctx, "delete", "namespace", "callers")
	l.must(err)
}

// addresses are those at which the webhook's replicas that are not about to end take reviews.
func (l *lab) addresses() []string {
	l.t.Helper()
	pods, err := l.Client().CoreV1().Pods(cluster.Namespace).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=webhook"})
	l.must(err)
	var all []string
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			all = append(all, net.JoinHostPort(pods.Items[i].Status.PodIP, "8443"))
		}
	}
	if len(all) != 2 {
		l.t.Fatalf("the webhook's replicas are at %v", all)
	}
	return all
}

// served connects with client certificates, or none, and reports whether the webhook answers, or why it does not. That a
// certificate is refused the client hears when it reads. The test fails where the webhook is not reached.
func (l *lab) served(address string, shows ...tls.Certificate) (answered bool, why error) {
	l.t.Helper()
	raw, err := l.Dial(l.ctx, "tcp", address)
	l.must(err)
	defer raw.Close()
	l.must(raw.SetDeadline(time.Now().Add(time.Minute)))
	// Whose certificate the webhook has is not what is asked.
	connection := tls.Client(raw, &tls.Config{Certificates: shows, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	_, err = connection.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	if err == nil {
		_, err = connection.Read(make([]byte, 1))
	}
	var alert *net.OpError
	if err != nil && (!errors.As(err, &alert) || alert.Op != "remote error") {
		l.t.Fatalf("ask %s: %v", address, err)
	}
	return err == nil, err
}

// doctor returns what `divvy doctor` says of the webhook's port.
func (l *lab) doctor() string {
	l.t.Helper()
	program, err := cluster.Built("bin/divvy")
	l.must(err)
	out, err := l.Output(l.Command(l.ctx, program, "doctor", "--kubernetes", "--kubeconfig", l.Kubeconfig(), "-o", "json"))
	l.must(err)
	var said struct {
		Checks []struct{ Name, Found string }
	}
	l.must(json.Unmarshal([]byte(out), &said))
	for _, check := range said.Checks {
		if check.Name == "the webhook's port" {
			return check.Found
		}
	}
	l.t.Fatalf("the doctor says nothing of the webhook's port: %s", out)
	return ""
}
