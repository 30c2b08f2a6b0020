package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSlotsOnlyTheExtender tests the cluster's own scheduler with the extender, as the manual has an administrator set it up.
func TestSlotsOnlyTheExtender(t *testing.T) {
	l := newSlotsLab(t, slotsVersion(t), 1, "scheduler.replicas=1")
	l.scenario("slots-own-scheduler", slotsOwnScheduler)
}

const (
	extenderName = v1alpha1.SchedulerName + "-extender"
	// What the manual says of files and of the extender's address.
	manualFolder  = "/etc/kubernetes/divvy"
	manualConfig  = "/etc/kubernetes/scheduler.conf"
	manualAddress = "https://10.96.0.77"
)

// onlyValues are the chart's values of the manual.
type onlyValues struct {
	Slots struct {
		Extender struct {
			Only    bool
			Clients struct{ Names []string }
		}
	}
}

// slotsOwnScheduler has the chart run the extender alone. Pods with shares wait until the cluster's scheduler asks it, and then get
// their places by the name of that scheduler, as pods without shares do.
func slotsOwnScheduler(l *lab) {
	var values onlyValues
	l.must(yaml.Unmarshal([]byte(l.manual("slots:")), &values))
	clients := values.Slots.Extender.Clients.Names
	if !values.Slots.Extender.Only || len(clients) == 0 {
		l.t.Fatalf("the manual has the values %+v", values)
	}
	authority, err := os.ReadFile(l.Authority())
	l.must(err)
	l.must(l.Install(l.ctx, "mode=slots", "scheduler.replicas=1", "slots.extender.only=true",
		"slots.extender.clients.names={"+strings.Join(clients, ",")+"}", "slots.extender.clients.authority="+string(authority)))
	l.create(plain("early", "8Gi", ""))
	l.waitsFor("early", "the Binding has no annotation")
	l.must(l.ConfigureScheduler(l.ctx, l.extended()))
	l.running("early")
	l.run(plain("second", "6Gi", "30"))
	l.held(2)
	l.limited("second", "main", 6*gib, 1)
	for _, name := range []string{"early", "second"} {
		if p := l.found(name); p.Spec.SchedulerName != corev1.DefaultSchedulerName || p.Annotations[v1alpha1.AssignmentAnnotation] == "" {
			l.t.Errorf("%s is placed by %s, and has %q", name, p.Spec.SchedulerName, p.Annotations[v1alpha1.AssignmentAnnotation])
		}
	}
	l.run(plain("none", "", ""))
	if p := l.found("none"); p.Spec.SchedulerName != corev1.DefaultSchedulerName || p.Annotations[v1alpha1.AssignmentAnnotation] != "" {
		l.t.Errorf("a pod without a share is placed by %s, and has %q", p.Spec.SchedulerName, p.Annotations[v1alpha1.AssignmentAnnotation])
	}
	l.create(plain("third", "8Gi", ""))
	l.waitsFor("third", tooLittle)
	l.pending("third")
	l.recorded()
	l.remove("early")
	l.running("third")
	l.held(2)
	l.recorded()
	l.stranger()
}

// manual is the block of docs/kubernetes.md that begins with a line, in the section of the cluster's own scheduler.
func (l *lab) manual(first string) string {
	l.t.Helper()
	page, err := os.ReadFile(filepath.Join(l.root, "docs/kubernetes.md"))
	l.must(err)
	_, section, found := strings.Cut(string(page), "\n### The cluster's own scheduler with the extender\n")
	var text strings.Builder
	for line := range strings.Lines(section) {
		if code, is := strings.CutPrefix(line, "       "); is && (text.Len() > 0 || strings.HasPrefix(code, first)) {
			text.WriteString(code)
		} else if text.Len() > 0 {
			break
		}
	}
	if !found || text.Len() == 0 {
		l.t.Fatalf("the manual has no block that begins with %q", first)
	}
	return text.String()
}

// extended writes the files that the manual has beside the scheduler, and returns its configuration. Nothing in the lab translates
// the addresses of Services, so the extender's is that of its pod.
func (l *lab) extended() string {
	l.t.Helper()
	folder := l.t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		l.must(os.WriteFile(path, text, 0o600))
		return path
	}
	config, err := clientcmd.LoadFromFile(l.SchedulerKubeconfig())
	l.must(err)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	for name, from := range map[string]string{"scheduler.crt": user.ClientCertificate, "scheduler.key": user.ClientKey} {
		text, err := os.ReadFile(from)
		l.must(err)
		file(name, text)
	}
	text, err := base64.StdEncoding.DecodeString(l.kubectl("-n", cluster.Namespace, "get", "secret", extenderName+"-certificates", "-o", `jsonpath={.data.ca\.crt}`))
	l.must(err)
	file("extender.crt", text)
	written := strings.NewReplacer(manualFolder, folder, manualConfig, l.SchedulerKubeconfig(), manualAddress, l.extenderAddress()).Replace(l.manual("apiVersion: kubescheduler."))
	return file("scheduler.yaml", []byte(written))
}

// extenderAddress is where the replica answers that is ready.
func (l *lab) extenderAddress() string {
	l.t.Helper()
	address := ""
	l.eventually("the extender is ready", func() string {
		pods, err := l.Client().CoreV1().Pods(cluster.Namespace).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scheduler"})
		if err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if cluster.PodReady(p) && len(p.Spec.Containers) == 1 && p.DeletionTimestamp == nil {
				address = fmt.Sprintf("https://%s:%d", p.Status.PodIP, p.Spec.Containers[0].Ports[0].ContainerPort)
				return ""
			}
		}
		return fmt.Sprintf("none of %d is", len(pods.Items))
	})
	return address
}

// stranger asks the extender without a certificate, and is not answered.
func (l *lab) stranger() {
	l.t.Helper()
	conn, err := l.Dial(l.ctx, "tcp", strings.TrimPrefix(l.extenderAddress(), "https://"))
	l.must(err)
	defer func() { _ = conn.Close() }()
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}) //nolint:gosec // whom the server trusts is tested
	_, err = fmt.Fprint(secure, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err == nil {
		_, err = secure.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		l.t.Errorf("who has no certificate is answered: %v", err)
	}
}
