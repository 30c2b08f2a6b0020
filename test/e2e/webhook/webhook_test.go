package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// longest bounds the whole, on a busy machine.
const longest = 20 * time.Minute

// lab is one cluster with Divvy and two replicas of its webhook.
type lab struct {
	*cluster.Cluster
	t   *testing.T
	ctx context.Context
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// namespace makes a namespace.
func (l *lab) namespace(name string) {
	l.t.Helper()
	l.must(l.ApplyText(l.ctx, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, name)))
}

const container = `{name: main, image: "ghcr.io/divvy-gpu/gpubench:0.1.0", command: [sleep, infinity], resources: {limits: {%s}}}`

// pod is a pod that asks, in YAML.
func pod(namespace, name, limits string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s}, spec: {terminationGracePeriodSeconds: 0, containers: [`+container+`]}}`, namespace, name, limits)
}

func (l *lab) templates(namespace string) []resourcev1.ResourceClaimTemplate {
	l.t.Helper()
	list, err := l.Client().ResourceV1().ResourceClaimTemplates(namespace).List(l.ctx, metav1.ListOptions{})
	l.must(err)
	return list.Items
}

// TestWebhook tries it all in one cluster: starting one takes most of the time.
func TestWebhook(t *testing.T) {
	if os.Getenv("DIVVY_E2E") == "" {
		t.Skip("starts a Kubernetes cluster: run `make e2e` as root")
	}
	if err := cluster.Available(""); err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, name := range []string{"divvy", "gpubench"} {
		image, err := cluster.Image(name)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes:  []cluster.Node{{Name: "n1", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}, Labels: map[string]string{v1alpha1.NodeLabel: ""}}},
		Images: images, Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(c.Install(ctx, "webhook.replicas=2"), c.WaitAsked(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name string
		try  func(*lab)
	}{
		{"DryRun", dryRun},
		{"Conditions", conditions},
		{"Collect", collect},
		{"Quota", quota},
		{"Rejected", rejected},
		{"Certificates", certificates},
		{"Callers", callers},
		{"Away", away},
	} {
		t.Run(part.name, func(t *testing.T) { part.try(&lab{c, t, ctx}) })
	}
}

// dryRun makes nothing, and answers as the real one does.
func dryRun(l *lab) {
	l.namespace("dry")
	manifest := pod("dry", "one", "divvy.dev/gpu-memory: 1Gi")
	read := func(args ...string) *corev1.Pod {
		cmd := l.Command(l.ctx, "kubectl", append([]string{"create", "-f", "-", "-o", "json"}, args...)...)
		cmd.Stdin = strings.NewReader("---\n" + manifest)
		out, err := l.Output(cmd)
		l.must(err)
		var made corev1.Pod
		l.must(json.Unmarshal([]byte(out), &made))
		return &made
	}
	dry := read("--dry-run=server")
	if made := l.templates("dry"); len(made) != 0 {
		l.t.Errorf("a dry run made %d templates", len(made))
	}
	wet := read()
	_, err := l.WaitRunning(l.ctx, "dry", "one")
	l.must(err)
	made := l.templates("dry")
	if len(made) != 1 || len(dry.Spec.ResourceClaims) != 1 || *dry.Spec.ResourceClaims[0].ResourceClaimTemplateName != made[0].Name ||
		*wet.Spec.ResourceClaims[0].ResourceClaimTemplateName != made[0].Name {
		l.t.Errorf("templates %v, dry %v, real %v", made, dry.Spec.ResourceClaims, wet.Spec.ResourceClaims)
	}
	// Ephemeral containers and updates of a translated pod are none of the server's business.
	_, err = l.Kubectl(l.ctx, "-n", "dry", "debug", "one", "--image=ghcr.io/divvy-gpu/gpubench:0.1.0", "--image-pull-policy=IfNotPresent", "--quiet", "--attach=false", "--", "true")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "-n", "dry", "annotate", "pod", "one", "gpu-fraction=0.5")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "delete", "namespace", "dry", "--wait=false")
	l.must(err)
}

// conditions are evaluated by the API server itself: objects that are none of Divvy's pass, whatever they look like.
func conditions(l *lab) {
	l.namespace("others")
	for _, manifest := range []string{
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: others, name: empty}, spec: {}}`,
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: others, name: nic}, spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]}}}`,
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: others, name: ways}, spec: {spec: {devices: {requests: [{name: nic, firstAvailable: [{name: a, deviceClassName: nic.example.com}]}]}}}}`,
		pod("others", "plain", ""),
		pod("others", "cpu", "cpu: 1m"),
	} {
		if err := l.ApplyText(l.ctx, manifest); err != nil {
			l.t.Errorf("%s: %v", manifest, err)
		}
	}
	for manifest, says := range map[string]string{
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: others, name: mig}, spec: {devices: {requests: [{name: a, firstAvailable: [{name: a, deviceClassName: mig.divvy.dev, count: 2}]}]}}}`:                                                    "2 MIG instances: ask for one in each request",
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: others, name: bad}, spec: {spec: {devices: {requests: [{name: a, exactly: {deviceClassName: own.example.com}}], config: [{opaque: {driver: divvy.dev, parameters: {a: b}}}]}}}}`: "unknown field",
		pod("others", "bad", "divvy.dev/gpu-cores: 101"): "container",
	} {
		if err := l.ApplyText(l.ctx, manifest); err == nil || !strings.Contains(err.Error(), says) {
			l.t.Errorf("%s: %v, want %q", manifest, err, says)
		}
	}
	_, err := l.Kubectl(l.ctx, "delete", "namespace", "others", "--wait=false")
	l.must(err)
}

// collect deletes a template that was used long ago, and leaves those that are used; the next pod has it made again.
func collect(l *lab) {
	l.namespace("collect")
	for _, name := range []string{"kept", "dropped"} {
		limits := "divvy.dev/gpu-memory: 1Gi"
		if name == "dropped" {
			limits = "divvy.dev/gpu-memory: 2Gi"
		}
		l.must(l.ApplyText(l.ctx, pod("collect", name, limits)))
		_, err := l.WaitRunning(l.ctx, "collect", name)
		l.must(err)
	}
	used, err := l.Client().CoreV1().Pods("collect").Get(l.ctx, "dropped", metav1.GetOptions{})
	l.must(err)
	dropped := *used.Spec.ResourceClaims[0].ResourceClaimTemplateName
	_, err = l.Kubectl(l.ctx, "-n", "collect", "annotate", "resourceclaimtemplates", "--all", "--overwrite", "divvy.dev/used=2020-01-01T00:00:00Z")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "-n", "collect", "delete", "pod", "dropped")
	l.must(err)
	l.must(cluster.Gone[resourcev1.ResourceClaimTemplate](l.ctx, l.Client().ResourceV1().RESTClient(), "resourceclaimtemplates", "collect", dropped))
	if left := l.templates("collect"); len(left) != 1 || left[0].Name == dropped {
		l.t.Errorf("left: %v", left)
	}
	l.must(l.ApplyText(l.ctx, pod("collect", "again", "divvy.dev/gpu-memory: 2Gi")))
	_, err = l.WaitRunning(l.ctx, "collect", "again")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "delete", "namespace", "collect")
	l.must(err)
}

// quota is held while a Deployment makes its pods as fast as it can.
func quota(l *lab) {
	l.namespace("team")
	l.must(l.ApplyText(l.ctx, `{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: team, name: gpus}, spec: {hard: {requests.divvy.dev/gpu-memory: 5Gi}}}`))
	spec := fmt.Sprintf(`{metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 0, containers: [`+container+`]}}`, "divvy.dev/gpu-memory: 2Gi")
	l.must(l.ApplyText(l.ctx, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: team, name: web}, spec: {replicas: 4, selector: {matchLabels: {app: web}}, template: `+spec+`}}`))
	l.must(cluster.Wait(l.ctx, l.Client().AppsV1().RESTClient(), "deployments", "team", "web", func(d *appsv1.Deployment) (bool, error) {
		return d != nil && d.Status.ReadyReplicas == 2, nil
	}))
	l.must(cluster.Wait(l.ctx, l.Client().CoreV1().RESTClient(), "events", "team", "", func(e *corev1.Event) (bool, error) {
		return e != nil && strings.Contains(e.Message, `quota "gpus" allows 5Gi of requests.divvy.dev/gpu-memory: 4Gi are used, and 2Gi more would be 6Gi`), nil
	}))
	claims, err := l.Client().ResourceV1().ResourceClaims("team").List(l.ctx, metav1.ListOptions{})
	l.must(err)
	if len(claims.Items) != 2 {
		l.t.Errorf("%d claims of 2Gi in a quota of 5Gi", len(claims.Items))
	}
	// A smaller one still has room.
	l.must(l.ApplyText(l.ctx, pod("team", "small", "divvy.dev/gpu-memory: 1Gi")))
	_, err = l.WaitRunning(l.ctx, "team", "small")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "delete", "namespace", "team")
	l.must(err)
}

// certificates come back when somebody takes them away, and both replicas go on answering.
func certificates(l *lab) {
	l.namespace("trust")
	registration := l.Client().AdmissionregistrationV1()
	before, err := registration.MutatingWebhookConfigurations().Get(l.ctx, "divvy-webhook", metav1.GetOptions{})
	l.must(err)
	first := string(before.Webhooks[0].ClientConfig.CABundle)
	_, err = l.Client().CoreV1().Secrets(cluster.Namespace).Patch(l.ctx, "divvy-webhook-certificates", types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	l.must(err)
	l.must(cluster.Wait(l.ctx, registration.RESTClient(), "mutatingwebhookconfigurations", "", "divvy-webhook", func(m *admissionregistrationv1.MutatingWebhookConfiguration) (bool, error) {
		bundle := string(m.Webhooks[0].ClientConfig.CABundle)
		return bundle != "" && bundle != first, nil
	}))
	_, err = registration.ValidatingWebhookConfigurations().Patch(l.ctx, "divvy-webhook", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	l.must(err)
	l.must(cluster.Wait(l.ctx, registration.RESTClient(), "validatingwebhookconfigurations", "", "divvy-webhook", func(v *admissionregistrationv1.ValidatingWebhookConfiguration) (bool, error) {
		return len(v.Webhooks[0].ClientConfig.CABundle) > 0, nil
	}))
	// Either replica may be asked; one that has not noticed yet serves what is not trusted any more, for a while.
	asked := 0
	for start := time.Now(); asked < 10; {
		if err := l.ApplyText(l.ctx, pod("trust", fmt.Sprintf("p%d", asked), "divvy.dev/gpu-memory: 1Mi")); err != nil {
			if time.Since(start) > longest {
				l.t.Fatal(err)
			}
			asked = 0
			continue
		}
		asked++
	}
	_, err = l.Kubectl(l.ctx, "delete", "namespace", "trust")
	l.must(err)
}

// away has no server: what needs it is refused with a reason, nothing else notices, and it goes on afterwards.
func away(l *lab) {
	l.namespace("away")
	l.must(l.ApplyText(l.ctx, pod("away", "before", "divvy.dev/gpu-memory: 1Gi")))
	_, err := l.WaitRunning(l.ctx, "away", "before")
	l.must(err)
	_, err = l.Kubectl(l.ctx, "-n", cluster.Namespace, "scale", "deployment", cluster.Webhook, "--replicas=0")
	l.must(err)
	// A replica that ends answers for a while: those that are gone do not.
	list, err := l.Client().CoreV1().Pods(cluster.Namespace).List(l.ctx, metav1.ListOptions{})
	l.must(err)
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, cluster.Webhook) {
			l.must(l.WaitGone(l.ctx, cluster.Namespace, name))
		}
	}
	if err := l.ApplyText(l.ctx, pod("away", "gpu", "divvy.dev/gpu-memory: 1Gi")); err == nil || !strings.Contains(err.Error(), "pods.divvy.dev") {
		l.t.Errorf("a pod that asks passed a server that is away: %v", err)
	}
	for _, manifest := range []string{
		pod("away", "plain", ""),
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: away, name: nic}, spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]}}}`,
	} {
		if err := l.ApplyText(l.ctx, manifest); err != nil {
			l.t.Errorf("%s: %v", manifest, err)
		}
	}
	_, err = l.Kubectl(l.ctx, "-n", cluster.Namespace, "scale", "deployment", cluster.Webhook, "--replicas=2")
	l.must(err)
	l.must(l.WaitInstalled(l.ctx))
	l.must(l.WaitAsked(l.ctx))
	l.must(l.ApplyText(l.ctx, pod("away", "gpu", "divvy.dev/gpu-memory: 1Gi")))
	_, err = l.WaitRunning(l.ctx, "away", "gpu")
	l.must(err)
	running, err := l.Client().CoreV1().Pods("away").Get(l.ctx, "before", metav1.GetOptions{})
	if err != nil || !cluster.PodReady(running) {
		l.t.Errorf("the pod that ran before: %v", err)
	}
}
