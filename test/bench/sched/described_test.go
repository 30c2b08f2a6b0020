package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const schedulersUser = "system:serviceaccount:divvy-system:divvy-scheduler"

// team is the namespace of a quota of 8 GiB.
type team struct {
	t   *testing.T
	ctx context.Context
	b   *bench
}

// openTeam starts an API server with the webhook, where Divvy's scheduler is said to run.
func openTeam(t *testing.T) *team {
	t.Helper()
	if _, err := plane.Components(checkout); err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	b, err := openIdle(ctx, options{root: checkout, build: checkout + "/build"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	team := &team{t, ctx, b}
	team.do(b.makeNamespace(ctx, "team"))
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "memory"}}
	quota.Spec.Hard = corev1.ResourceList{"requests.divvy.dev/gpu-memory": resource.MustParse("8Gi")}
	_, err = b.client.CoreV1().ResourceQuotas("team").Create(ctx, quota, metav1.CreateOptions{})
	team.do(err)
	team.do(b.publish(ctx))
	_, err = b.startWebhook(ctx, "{plain: {}}\nscheduler: {users: ['"+schedulersUser+"']}")
	team.do(err)
	return team
}

func (m *team) do(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// refused fails unless an error says this.
func (m *team) refused(what string, err error, why string) {
	m.t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		m.t.Errorf("%s passed, or was refused without %q: %v", what, why, err)
	}
}

// create has a pod of 4 GiB created, as a Deployment's controller does: without a name.
func (m *team) create(change func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := podOf(kind{name: "web"}, 0)
	pod.Namespace, pod.Name, pod.GenerateName = "team", "", "web-"
	pod.Spec.SchedulerName = ""
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("4Gi")}
	if change != nil {
		change(pod)
	}
	return m.b.client.CoreV1().Pods("team").Create(m.ctx, pod, metav1.CreateOptions{})
}

// annotate changes an annotation of a pod; nil removes it.
func (m *team) annotate(pod *corev1.Pod, name string, text *string) error {
	value := "null"
	if text != nil {
		value = fmt.Sprintf("%q", *text)
	}
	_, err := m.b.client.CoreV1().Pods("team").Patch(m.ctx, pod.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, name, value), metav1.PatchOptions{})
	return err
}

// as is a client of somebody.
func (m *team) as(user string) kubernetes.Interface {
	m.t.Helper()
	config := m.b.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(config)
	m.do(err)
	return client
}

// TestPodsOfTheScheduler has a real API server send its reviews of pods for Divvy's scheduler, and of the claims that it
// makes for them.
func TestPodsOfTheScheduler(t *testing.T) {
	m := openTeam(t)
	one, err := m.create(nil)
	m.do(err)
	two, err := m.create(nil)
	m.do(err)
	names := make(map[string]resourcev1.ResourceClaimSpec)
	for _, pod := range []*corev1.Pod{one, two} {
		specs, err := dialect.Described(pod)
		m.do(err)
		if pod.Spec.SchedulerName != v1alpha1.SchedulerName || len(specs) != 1 {
			t.Fatalf("scheduler %s, claims %v", pod.Spec.SchedulerName, specs)
		}
		for name, spec := range specs {
			names[name] = spec
		}
	}
	if len(names) != 2 {
		t.Errorf("two pods describe the claims %v", names)
	}
	_, err = m.create(nil)
	m.refused("a third pod of 4Gi", err, "8Gi are used")
	m.notes(one)
	// The scheduler makes the claims though the quota is full of them, and then they count in place of the pods.
	claim := func(client kubernetes.Interface, name string, spec resourcev1.ResourceClaimSpec) error {
		made := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err := client.ResourceV1().ResourceClaims("team").Create(m.ctx, made, metav1.CreateOptions{})
		return err
	}
	for name, spec := range names {
		m.refused("a claim by hand", claim(m.b.client, "by-hand", spec), "8Gi are used")
		m.refused("one that no pod describes", claim(m.as(schedulersUser), "web-extended-resources-abcde", spec), "8Gi are used")
		m.do(claim(m.as(schedulersUser), name, spec))
	}
	_, err = m.create(nil)
	m.refused("a third pod beside two claims", err, "8Gi are used")
	for name := range names {
		m.do(m.b.client.ResourceV1().ResourceClaims("team").Delete(m.ctx, name, metav1.DeleteOptions{}))
	}
	_, err = m.create(nil)
	m.refused("a third pod while two wait again", err, "8Gi are used")
	now := int64(0)
	m.do(m.b.client.CoreV1().Pods("team").Delete(m.ctx, one.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	for {
		if _, err = m.create(nil); err == nil {
			break
		}
		m.do(m.ctx.Err())
		time.Sleep(100 * time.Millisecond)
	}
}

// notes changes the annotations of a pod, and creates pods with others.
func (m *team) notes(pod *corev1.Pod) {
	m.t.Helper()
	larger := strings.Replace(pod.Annotations[v1alpha1.ClaimsAnnotation], "4Gi", "40Gi", 1)
	model, size := "A100", "2"
	m.refused("an edited claim", m.annotate(pod, v1alpha1.ClaimsAnnotation, &larger), "divvy.dev/claims does not change")
	m.refused("a removed claim", m.annotate(pod, v1alpha1.ClaimsAnnotation, nil), "divvy.dev/claims does not change")
	m.refused("a model", m.annotate(pod, v1alpha1.ModelsAnnotation, &model), "divvy.dev/gpu-models does not change")
	m.refused("half a gang", m.annotate(pod, v1alpha1.GangSizeAnnotation, &size), "needs divvy.dev/gang")
	m.do(m.annotate(pod, "example.com/other", &size))
	forged := func(annotation, text string) error {
		_, err := m.create(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = nil
			p.Annotations = map[string]string{annotation: text}
		})
		return err
	}
	m.refused("a claim that nobody names", forged(v1alpha1.ClaimsAnnotation, larger), "describes claims that the pod names")
	m.refused("a model that is none", forged(v1alpha1.ModelsAnnotation, "$"), "gpu-models")
	m.refused("a gang without a size", forged(v1alpha1.GangAnnotation, "g"), "gang-size is missing")
}
