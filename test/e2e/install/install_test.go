package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/version"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
	"github.com/divvy-gpu/divvy/test/e2e/desk"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	root    = "../../.."
	system  = "divvy-system"
	longest = 15 * time.Minute
	memory  = 4 << 30 // of docs/examples/share.yaml
)

// lab is a cluster and a test of it.
type lab struct {
	*cluster.Cluster
	t   *testing.T
	ctx context.Context
}

func start(t *testing.T, nodes ...cluster.Node) *lab {
	t.Helper()
	if os.Getenv("DIVVY_E2E") == "" {
		t.Skip("starts a Kubernetes cluster: run `make e2e` as root")
	}
	if err := cluster.Available(""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	build := os.Getenv("DIVVY_PREFIX")
	if build == "" {
		build = filepath.Join(root, "build")
	}
	var images []string
	for _, name := range []string{"divvy", "gpubench"} {
		images = append(images, filepath.Join(build, "images", name+".tar"))
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Images: images, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Cluster: c, t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			l.show()
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// show prints what a person would look at when something is wrong.
func (l *lab) show() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods,resourceclaims,resourceslices,daemonsets,deployments,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", system, "logs", "daemonset/divvy-agent", "--tail=40"},
		{"-n", system, "logs", "deployment/divvy-webhook", "--tail=40"},
		{"-n", system, "logs", "deployment/divvy-controller", "--tail=40"},
	} {
		out, err := l.Kubectl(ctx, args...)
		l.t.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, err)
	}
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// helm runs helm on the release.
func (l *lab) helm(command string, more ...string) (string, error) {
	return l.Helm(l.ctx, append([]string{command, "divvy", "--namespace", system}, more...)...)
}

// change is helm upgrade to this version.
func (l *lab) change(values ...string) {
	l.t.Helper()
	l.changeTo(filepath.Join(root, "deploy/chart"), values...)
}

// changeTo is helm upgrade to a chart, with what every installation here has.
func (l *lab) changeTo(chart string, values ...string) {
	l.t.Helper()
	args := []string{chart, "--install", "--create-namespace", "--wait", "--timeout", "5m"}
	values = append(values, "agent.simgpu.dir="+l.Nodes[0].SimgpuDir())
	for _, value := range values {
		args = append(args, "--set", value)
	}
	_, err := l.helm("upgrade", args...)
	l.must(err)
}

// as returns a client with the token of an agent's pod.
func (l *lab) as(pod *corev1.Pod) kubernetes.Interface {
	l.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	got, err := l.Client().CoreV1().ServiceAccounts(system).CreateToken(l.ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	l.must(err)
	config := rest.AnonymousClientConfig(l.Config())
	config.BearerToken = got.Status.Token
	config.Dial = l.Dial
	client, err := kubernetes.NewForConfig(config)
	l.must(err)
	return client
}

// agent returns the agent's pod on a node, once it is ready and no other is there: Helm does not wait for the last of several.
func (l *lab) agent(node string) *corev1.Pod {
	l.t.Helper()
	l.must(l.WaitInstalled(l.ctx))
	pods, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + node})
	l.must(err)
	if len(pods.Items) != 1 || !cluster.PodReady(&pods.Items[0]) {
		l.t.Fatalf("%d agents on node %s, and one should be ready", len(pods.Items), node)
	}
	return &pods.Items[0]
}

// offered waits until a node's one GPU is offered.
func (l *lab) offered(node string) {
	l.t.Helper()
	l.must(cluster.Wait(l.ctx, l.Client().ResourceV1().RESTClient(), "resourceslices", "", "", func(s *resourcev1.ResourceSlice) (bool, error) {
		return s != nil && s.Spec.NodeName != nil && *s.Spec.NodeName == node && len(s.Spec.Devices) == 1, nil
	}))
}

// trusted waits until the API server is told whom to trust, and asks the webhook.
func (l *lab) trusted() {
	l.t.Helper()
	client := l.Client().AdmissionregistrationV1().RESTClient()
	l.must(cluster.Wait(l.ctx, client, "mutatingwebhookconfigurations", "", "divvy-webhook", func(c *admissionregistrationv1.MutatingWebhookConfiguration) (bool, error) {
		return c != nil && len(c.Webhooks[0].ClientConfig.CABundle) > 0, nil
	}))
	l.must(cluster.Wait(l.ctx, client, "validatingwebhookconfigurations", "", "divvy-webhook", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) (bool, error) {
		return c != nil && !slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 }), nil
	}))
	l.must(l.WaitAsked(l.ctx))
}

// total returns the memory that a program in the tenant's container sees.
func (l *lab) total(pod string) string {
	l.t.Helper()
	out, err := l.PodExec(l.ctx, "default", pod, "", "gpubench", "info")
	l.must(err)
	return out
}

func TestChartThroughItsLife(t *testing.T) {
	labels := map[string]string{v1alpha1.NodeLabel: ""}
	l := start(t,
		cluster.Node{Name: "gpu-1", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}, Labels: labels},
		cluster.Node{Name: "gpu-2", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}, Labels: labels},
	)
	l.changeTo(l.earlier())
	l.offered("gpu-1")
	l.offered("gpu-2")
	l.trusted()
	l.confined()

	l.must(l.Apply(l.ctx, filepath.Join(root, "docs/examples/share.yaml")))
	tenant, err := l.WaitRunning(l.ctx, "default", "share")
	l.must(err)
	l.limited(tenant)

	before, held := l.agent(tenant.Spec.NodeName), l.holders(tenant)
	l.isVersion(before, earlierVersion)
	l.change("agent.outside=stop", "dialects.hami.memoryFactor=1")
	l.trusted()
	after := l.agent(tenant.Spec.NodeName)
	if after.UID == before.UID {
		t.Error("the upgrade left the agent as it was")
	}
	l.isVersion(after, version.Number())
	l.limited(tenant)
	l.holdsAs(tenant, held)
	_, err = l.helm("rollback", "--wait", "--timeout", "5m")
	l.must(err)
	l.trusted()
	after = l.agent(tenant.Spec.NodeName)
	if after.Annotations["divvy.dev/config"] != before.Annotations["divvy.dev/config"] {
		t.Error("the rollback left the agent as it was")
	}
	l.isVersion(after, earlierVersion)
	l.limited(tenant)
	l.holdsAs(tenant, held)
	l.refused(tenant)
	l.forced(tenant)
	l.removed()

	pages, cancel := l.bounded()
	defer cancel()
	const name = "test/e2e/install.TestChartThroughItsLife"
	pages.pages(desk.Open(t, l.Cluster, "docs/kubernetes.md", name), desk.Open(t, l.Cluster, "docs/doctor.md", name))
}

// limited checks that the tenant runs as it did, with its limit, and that the node's agent knows it.
func (l *lab) limited(tenant *corev1.Pod) {
	l.t.Helper()
	now, err := l.Client().CoreV1().Pods("default").Get(l.ctx, tenant.Name, metav1.GetOptions{})
	l.must(err)
	if s := now.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount != 0 || !s[0].Ready {
		l.t.Errorf("the tenant noticed: %+v", s)
	}
	if out := l.total(tenant.Name); !strings.Contains(out, fmt.Sprintf(`"total_bytes":%d`, memory)) {
		l.t.Errorf("the container sees %s and not 4Gi", out)
	}
	out, err := l.PodExec(l.ctx, system, l.agent(tenant.Spec.NodeName).Name, "", "divvy", "ls", "-o", "json")
	l.must(err)
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	l.must(json.Unmarshal([]byte(out), &document))
	if len(document.Agents) != 1 || !slices.ContainsFunc(document.Agents[0].Tenants, func(t control.Tenant) bool {
		return t.Namespace == "default" && slices.Equal(t.Pods, []string{tenant.Name}) && len(t.Shares) == 1 && t.Shares[0].Limit == memory
	}) {
		l.t.Errorf("divvy ls does not know the tenant and its share:\n%s", out)
	}
}

// confined tries what an agent that somebody took over could try.
func (l *lab) confined() {
	l.t.Helper()
	agent := l.as(l.agent("gpu-1"))
	slice := func(node, pool string) error {
		_, err := agent.ResourceV1().ResourceSlices().Create(l.ctx, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "tried-"},
			Spec: resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, NodeName: &node,
				Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	label := func(node, key string) error {
		_, err := agent.CoreV1().Nodes().Patch(l.ctx, node, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"x"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	others, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=gpu-2"})
	l.must(err)
	_, secrets := agent.CoreV1().Secrets(system).List(l.ctx, metav1.ListOptions{})
	for what, err := range map[string]error{
		"a slice of another node":    slice("gpu-2", "gpu-2"),
		"a slice of another's pool":  slice("gpu-1", "gpu-2"),
		"another node's slice":       agent.ResourceV1().ResourceSlices().Delete(l.ctx, others.Items[0].Name, metav1.DeleteOptions{}),
		"a label of another node":    label("gpu-2", v1alpha1.CountLabel),
		"a foreign label":            label("gpu-1", "pool"),
		"the label that asks for it": label("gpu-1", v1alpha1.NodeLabel),
		"its node's defaults":        label("gpu-1", v1alpha1.DefaultPolicyLabel),
		"secrets":                    secrets,
	} {
		if !apierrors.IsForbidden(err) {
			l.t.Errorf("%s: %v, and it should be forbidden", what, err)
		}
	}
	l.must(slice("gpu-1", "gpu-1"))
	l.must(label("gpu-1", v1alpha1.CountLabel))
}

// refused checks that Divvy is not taken away from under the tenant.
func (l *lab) refused(tenant *corev1.Pod) {
	l.t.Helper()
	if out, err := l.helm("uninstall", "--wait", "--timeout", "2m"); err == nil {
		l.t.Fatalf("uninstalled from under a tenant: %s", out)
	}
	logs, err := l.Kubectl(l.ctx, "-n", system, "logs", "job/divvy-uninstall")
	l.must(err)
	if !strings.Contains(logs, "pods/"+tenant.Name) {
		l.t.Errorf("the job does not say who holds a GPU: %s", logs)
	}
	l.limited(tenant)
}

// uninstall is helm uninstall until no process of Divvy's is left.
func (l *lab) uninstall(how ...string) {
	l.t.Helper()
	_, err := l.helm("uninstall", append(how, "--wait", "--timeout", "5m")...)
	l.must(err)
	_, err = l.Kubectl(l.ctx, "-n", system, "wait", "--for=delete", "pods", "-l", "app.kubernetes.io/component in (agent,webhook,controller)", "--timeout=5m")
	l.must(err)
}

// forced takes Divvy away from under the tenant all the same: the limit stays, the pod cannot end, and does so once
// Divvy is back.
func (l *lab) forced(tenant *corev1.Pod) {
	l.t.Helper()
	l.uninstall("--no-hooks")
	if out := l.total(tenant.Name); !strings.Contains(out, fmt.Sprintf(`"total_bytes":%d`, memory)) {
		l.t.Errorf("without Divvy the container sees %s and not 4Gi", out)
	}
	l.must(l.Client().CoreV1().Pods("default").Delete(l.ctx, tenant.Name, metav1.DeleteOptions{}))
	_, err := l.WaitPod(l.ctx, "default", tenant.Name, "its container has ended", func(p *corev1.Pod) (bool, error) {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Terminated != nil, nil
	})
	l.must(err)
	l.change()
	l.must(l.WaitGone(l.ctx, "default", tenant.Name))
	for _, claim := range tenant.Status.ResourceClaimStatuses {
		_, err = l.Kubectl(l.ctx, "wait", "--for=delete", "resourceclaim/"+*claim.ResourceClaimName, "--timeout=3m")
		l.must(err)
	}
}

// removed takes Divvy away when nothing holds a GPU.
func (l *lab) removed() {
	l.t.Helper()
	l.uninstall()
	// The pod of the job that asked whether anything holds a GPU goes after the job.
	_, err := l.Kubectl(l.ctx, "-n", system, "wait", "--for=delete", "pods", "-l", "app.kubernetes.io/component=uninstall", "--timeout=5m")
	l.must(err)
	left, err := l.Kubectl(l.ctx, "get", "all,configmaps,secrets,serviceaccounts,deviceclasses,clusterroles,validatingadmissionpolicies,"+
		"mutatingwebhookconfigurations,validatingwebhookconfigurations", "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=divvy")
	l.must(err)
	if left != "" {
		l.t.Errorf("what is left: %s", left)
	}
}
