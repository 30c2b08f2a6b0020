package chart_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	"github.com/divvy-gpu/divvy/test/chart/render"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// warnings are those that the API server gives.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeaderWithContext implements [rest.WarningHandlerWithContext].
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take returns what was given since the last call.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.all, "; ")
	w.all = nil
	return text
}

// serveWebhook runs the webhook as the chart does, with its user's rights alone, and has the API server ask it.
func serveWebhook(t *testing.T, p *plane.Plane, documents []render.Document) {
	t.Helper()
	program, err := filepath.Abs("../../build/libexec/divvy/divvy-cluster")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		installtest.Missing(t, "build", err)
	}
	kubeconfig, config := kubeconfigAs(t, p, "system:serviceaccount:"+namespace+":divvy-webhook"), filepath.Join(p.Dir(), "webhook")
	if err := os.WriteFile(config, []byte(configured(t, documents, "webhook.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	// The Secret is one that the chart makes, empty.
	install(t, p, documents, map[string]string{"Secret": "secrets"})
	process, err := p.Run(t.Context(), plane.Program{
		Name: "divvy-webhook", Path: program, Ports: 2, Scheme: "http", Ready: plane.Answers("/readyz"),
		Args: func(ports []int) []string {
			return []string{
				"webhook", "--config=" + config, "--kubeconfig=" + kubeconfig, "--namespace=" + namespace, "--host=127.0.0.1", "--linger=0s",
				fmt.Sprintf("--metrics-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--address=127.0.0.1:%d", ports[1]),
			}
		},
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(p.Dir(), "divvy-webhook.log"))
		t.Fatalf("%v\n%s", err, log)
	}
	secret, err := p.Client().CoreV1().Secrets(namespace).Get(t.Context(), "divvy-webhook-certificates", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	move := func(client *admissionregistrationv1.WebhookClientConfig) {
		url := fmt.Sprintf("https://127.0.0.1:%d%s", process.Port(1), *client.Service.Path)
		*client = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: secret.Data["ca.crt"]}
	}
	registration := p.Client().AdmissionregistrationV1()
	for _, c := range find[*admissionregistrationv1.MutatingWebhookConfiguration](t, documents) {
		for i := range c.Webhooks {
			move(&c.Webhooks[i].ClientConfig)
		}
		if _, err := registration.MutatingWebhookConfigurations().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range find[*admissionregistrationv1.ValidatingWebhookConfiguration](t, documents) {
		for i := range c.Webhooks {
			move(&c.Webhooks[i].ClientConfig)
		}
		if _, err := registration.ValidatingWebhookConfigurations().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueuesAtTheDoor writes queues, and pods that name them, at an API server that asks the webhook as the chart says.
func TestQueuesAtTheDoor(t *testing.T) {
	p := newPlane(t, "RBAC")
	if _, err := p.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	queuesOf(t, p)
	documents := rendered(t, newest, "scheduler: {enabled: true}\ndialects: {kai: {}}\nallocators: []")
	install(t, p, documents, map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings", "DeviceClass": "deviceclasses",
	})
	serveWebhook(t, p, documents)

	var said warnings
	config := p.Config()
	config.WarningHandlerWithContext = &said
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	queues := client.Resource(schema.GroupVersionResource{Group: v1alpha1.Domain, Version: "v1alpha1", Resource: v1alpha1.QueueResources})
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("default")
	expect := func(what string, err error, refused, warned string) {
		t.Helper()
		if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v, want %q", what, err, refused)
		}
		if got := said.take(); !strings.Contains(got, warned) || warned == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", what, got, warned)
		}
	}
	write := func(name, spec string) error {
		_, err := queues.Create(t.Context(), queueOf(t, name, spec), metav1.CreateOptions{})
		return err
	}
	change := func(name, patch string, sub ...string) error {
		_, err := queues.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
	// The API server learns of its webhooks, and the webhook of queues, soon: until then nothing is refused.
	until := func(what string, try func() error) {
		t.Helper()
		refused := func(context.Context) (bool, error) { return try() != nil, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, longest, true, refused); err != nil {
			t.Fatalf("wait until %s is refused: %v", what, err)
		}
		said.take()
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	expect("a queue", write("speech", "{namespaces: [talk, default], resources: [{guaranteed: 4}]}"), "", "")
	until("a namespace of another queue", func() error {
		_, err := queues.Create(t.Context(), queueOf(t, "vision", "{namespaces: [talk]}"), dry)
		return err
	})
	expect("a parent to come", write("vision", "{parent: research, resources: [{guaranteed: 5}], namespaces: [look]}"), "", "there is no queue research")
	until("a queue above its parent", func() error {
		_, err := queues.Create(t.Context(), queueOf(t, "research", "{parent: vision}"), dry)
		return err
	})
	expect("a circle", write("research", "{parent: vision, resources: [{guaranteed: 4}]}"), "queue research: it would be its own ancestor: research → vision → research", "")
	expect("too little", write("research", "{resources: [{guaranteed: 4}]}"), "the parts of queue research would have 5 GPUs guaranteed (vision 5), and research itself has 4", "")
	expect("enough", write("research", "{resources: [{guaranteed: 8}]}"), "", "")
	expect("a namespace of another queue", change("vision", `{"spec":{"namespaces":["talk"]}}`), "namespace talk is queue speech's", "")
	expect("a label", change("vision", `{"metadata":{"labels":{"a":"b"}}}`), "", "")
	expect("a status", change("speech", `{"status":{"running":3,"waiting":1}}`, "status"), "", "")

	pod := func(name string, labels map[string]string, fields string) error {
		object := queueOf(t, name, "{containers: [{name: main, image: none}]"+fields+"}")
		object.SetAPIVersion("v1")
		object.SetKind("Pod")
		object.SetLabels(labels)
		_, err := pods.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	label := func(name, key, value string) error {
		_, err := pods.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value), metav1.PatchOptions{})
		return err
	}
	type labels = map[string]string
	const claims = ", resourceClaims: [{name: gpu, resourceClaimName: mine}], schedulerName: "
	expect("another department's queue", pod("a", labels{v1alpha1.QueueLabel: "vision"}, ""), "queue vision is for pods of namespace look, and this one is of default, whose queue is speech", "")
	expect("a queue to come", pod("a", labels{v1alpha1.QueueLabel: "sound"}, ""), "", "there is no queue sound: the pod waits")
	expect("no quota", pod("b", labels{v1alpha1.QuotaLabel: "best"}, ""), "choose guaranteed, borrowing or opportunistic", "")
	expect("another scheduler", pod("b", nil, claims+"other"), "whose limits only scheduler divvy-scheduler keeps", "")
	expect("Divvy's scheduler", pod("b", nil, claims+"divvy-scheduler"), "", "")
	expect("a pod of its queue", pod("c", labels{v1alpha1.QueueLabel: "speech"}, ", nodeName: n1"), "", "")
	expect("another queue later", label("a", v1alpha1.QueueLabel, "vision"), "queue vision is for pods of namespace look", "")
	expect("its queue later", label("a", v1alpha1.QueueLabel, "speech"), "", "")
	expect("another quota later", label("a", v1alpha1.QuotaLabel, "guaranteed"), "does not change once the pod is created", "")
	expect("another queue on a node", label("c", v1alpha1.QueueLabel, "sound"), "does not change once the pod has a node", "")
	expect("another label", label("c", "app", "x"), "", "")

	object := &unstructured.Unstructured{Object: queueOf(t, "d", "{schedulerName: kai-scheduler, containers: [{name: main, image: none}]}").Object}
	object.SetAPIVersion("v1")
	object.SetKind("Pod")
	object.SetAnnotations(labels{"gpu-memory": "2000"})
	object.SetLabels(labels{"kai.scheduler/queue": "speech", "kai.scheduler/preemptibility": "non-preemptible"})
	made, err := pods.Create(t.Context(), object, metav1.CreateOptions{})
	if expect("KAI's", err, "", ""); err == nil && (made.GetLabels()[v1alpha1.QueueLabel] != "speech" || made.GetLabels()[v1alpha1.QuotaLabel] != string(v1alpha1.QuotaGuaranteed)) {
		t.Errorf("KAI's pod has labels %v", made.GetLabels())
	}
	expect("a queue with parts that goes", queues.Delete(t.Context(), "research", metav1.DeleteOptions{}), "", "its parts (vision) have no guarantee")
	expect("a queue in use that goes", queues.Delete(t.Context(), "speech", metav1.DeleteOptions{}), "", "3 of its pods run")
	log, err := os.ReadFile(filepath.Join(p.Dir(), "divvy-webhook.log"))
	if err != nil || slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool { return strings.Contains(line, "is forbidden") }) {
		t.Errorf("%v\n%s", err, log)
	}
}
