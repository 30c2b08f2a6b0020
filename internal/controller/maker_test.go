package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// carrying is an admitted pod that asked for an amount of memory.
func carrying(t testing.TB, name, memory string) *corev1.Pod {
	t.Helper()
	template := translated(t, "space", memory).Templates[0]
	text, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{template.Name: template.Spec.Spec})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "space", Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.TemplatesAnnotation: string(text)},
		},
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}},
	}
}

// making is a controller that watches a cluster, and whose pods are served by hand.
type making struct {
	*maker
	t      *testing.T
	ctx    context.Context
	client *fake.Clientset
	now    time.Time
	said   []string
}

func newMaking(t *testing.T, objects ...runtime.Object) *making {
	t.Helper()
	m := &making{t: t, client: fake.NewClientset(objects...), now: noon}
	m.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		event := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		m.said = append(m.said, event.Regarding.Name+": "+event.Reason+": "+event.Note)
		return false, nil, nil
	})
	c := newController(m.client, v1alpha1.SchedulerName, "me", silent(), prometheus.NewRegistry())
	c.reasons.now = func() time.Time { return m.now }
	m.maker = c.maker
	ctx, stop := context.WithCancel(context.Background())
	m.ctx = ctx
	if err := errors.Join(c.maker.watch(), c.known.start(ctx)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); c.maker.queue.ShutDown(); c.known.stop() })
	return m
}

// serveNext serves the next pod that comes.
func (m *making) serveNext() {
	m.t.Helper()
	if !m.next(m.ctx) {
		m.t.Fatal("no pod comes")
	}
}

func (m *making) templatesAre(names ...string) {
	m.t.Helper()
	list, err := m.client.ResourceV1().ResourceClaimTemplates("space").List(m.ctx, metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for i := range list.Items {
		got = append(got, list.Items[i].Name)
		if !managed(&list.Items[i]) {
			m.t.Errorf("template %s is not as a translation makes it: %+v", list.Items[i].Name, list.Items[i])
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		m.t.Errorf("templates %v, want %v", got, names)
	}
}

// wait returns once the cache shows what a test waits for.
func (m *making) wait(what string, shown func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); !shown(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("the cache never shows %s", what)
		}
	}
}

func (m *making) create(pod *corev1.Pod) {
	m.t.Helper()
	if _, err := m.client.CoreV1().Pods("space").Create(m.ctx, pod, metav1.CreateOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

func nameIn(pod *corev1.Pod) string { return *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName }

// TestMakesWhatAdmittedPodsCarry has pods of one shape come one after the other: the first has the template made, later
// ones have their use noted when the note is old.
func TestMakesWhatAdmittedPodsCarry(t *testing.T) {
	first := carrying(t, "first", "4Gi")
	m := newMaking(t, first)
	m.serveNext()
	m.templatesAre(nameIn(first))
	m.wait("the template", func() bool { _, err := m.known.template("space", nameIn(first)); return err == nil })
	for i, step := range []struct {
		pass time.Duration
		want string
	}{{time.Minute, ""}, {renewAfter, "patch"}, {time.Second, ""}} {
		m.now = m.now.Add(step.pass)
		m.client.ClearActions()
		m.create(carrying(t, fmt.Sprint("pod-", i), "4Gi"))
		m.serveNext()
		wrote := ""
		for _, action := range m.client.Actions() {
			if action.GetResource().Resource == "resourceclaimtemplates" && action.GetVerb() != "get" {
				wrote += action.GetVerb()
			}
		}
		if wrote != step.want {
			t.Errorf("after %s: wrote %q, want %q", step.pass, wrote, step.want)
		}
		stamp := m.templates.stamp()
		m.wait("the use", func() bool {
			template, err := m.known.template("space", nameIn(first))
			return err == nil && (step.want == "" || template.Annotations[v1alpha1.UsedAnnotation] == stamp)
		})
	}
	if len(m.said) != 0 {
		t.Errorf("said %v", m.said)
	}
}

func TestMakesNothingForPodsThatNeedNothing(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"being deleted": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon}; p.Finalizers = []string{"a/b"} },
		"finished":      func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"has its claim": func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &p.Name}}
		},
		"carries nothing": func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
	} {
		pod := carrying(t, "p", "4Gi")
		change(pod)
		m := newMaking(t, pod)
		if known, err := m.known.pod("space", "p"); err != nil || needs(known) {
			t.Errorf("%s: needs a template, %v", name, err)
		}
		if m.queue.Len() != 0 {
			t.Errorf("%s: comes into the queue", name)
		}
	}
}

// TestTemplateThatVanishes deletes a template while its pod still waits for the claim.
func TestTemplateThatVanishes(t *testing.T) {
	pod := carrying(t, "p", "4Gi")
	m := newMaking(t, pod)
	m.serveNext()
	m.wait("the template", func() bool { _, err := m.known.template("space", nameIn(pod)); return err == nil })
	if err := m.client.ResourceV1().ResourceClaimTemplates("space").Delete(m.ctx, nameIn(pod), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.serveNext()
	m.templatesAre(nameIn(pod))
}

// TestForgedAnnotations has users write what only a translation writes: nothing is made, and the pod is told once.
func TestForgedAnnotations(t *testing.T) {
	spec := func(change func(*resourcev1.ResourceClaimSpec)) resourcev1.ResourceClaimSpec {
		s := *translated(t, "space", "4Gi").Templates[0].Spec.Spec.DeepCopy()
		change(&s)
		return s
	}
	yes := true
	for name, forged := range map[string]resourcev1.ResourceClaimSpec{
		"admin access": spec(func(s *resourcev1.ResourceClaimSpec) { s.Devices.Requests[0].Exactly.AdminAccess = &yes }),
		"another driver": spec(func(s *resourcev1.ResourceClaimSpec) {
			s.Devices.Requests[0].Exactly.DeviceClassName = "nic.example.com"
		}),
		"toleration": spec(func(s *resourcev1.ResourceClaimSpec) {
			s.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		}),
		"nothing": {},
	} {
		pod := carrying(t, "p", "4Gi")
		template := resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: forged}}
		real, err := dialect.TemplateName(&template.Spec.Spec)
		if err != nil {
			t.Fatal(err)
		}
		pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = &real
		text, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{real: forged})
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[v1alpha1.TemplatesAnnotation] = string(text)
		m := newMaking(t, pod)
		m.serveNext()
		m.templatesAre()
		if len(m.said) != 1 || !strings.Contains(m.said[0], "p: NoClaimTemplate: ") || !strings.Contains(m.said[0], "is written by Divvy") {
			t.Errorf("%s: said %q", name, m.said)
		}
		if m.queue.NumRequeues(cache.ObjectName{Namespace: "space", Name: "p"}) != 0 {
			t.Errorf("%s: tried again", name)
		}
	}
}

// TestTemplateFaults has making a template fail: the pod is told after some tries, in one line, and served when the
// fault is over.
func TestTemplateFaults(t *testing.T) {
	resource := resourcev1.Resource("resourceclaimtemplates")
	for _, c := range []struct {
		verb  string
		fault error
		says  string
	}{
		{"create", apierrors.NewForbidden(resource, "x", errors.New("exceeded quota: few, requested: count/resourceclaimtemplates.resource.k8s.io=1")), "exceeded quota: few"},
		{"create", apierrors.NewInternalError(errors.New("etcd is\naway")), "etcd is; away"},
		{"get", apierrors.NewTooManyRequests("slow down", 0), "slow down"},
	} {
		pod := carrying(t, "p", "4Gi")
		m := newMaking(t, pod)
		tries := 0
		m.client.PrependReactor(c.verb, "resourceclaimtemplates", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return tries <= sayAfter, nil, c.fault
		})
		for range sayAfter {
			m.serveNext()
		}
		if len(m.said) != 1 || !strings.Contains(m.said[0], c.says) || strings.Contains(m.said[0], "\n") {
			t.Errorf("%v: said %q", c.fault, m.said)
		}
		m.templatesAre()
		m.serveNext()
		m.templatesAre(nameIn(pod))
	}
}

// TestTemplateOfAnotherContent has somebody make a template of the name that a pod carries.
func TestTemplateOfAnotherContent(t *testing.T) {
	pod := carrying(t, "p", "4Gi")
	other := translated(t, "space", "8Gi").Templates[0]
	other.Name = nameIn(pod)
	m := newMaking(t, pod, &other)
	for range sayAfter {
		m.serveNext()
	}
	if len(m.said) != 1 || !strings.Contains(m.said[0], "has another content than this pod needs") {
		t.Errorf("said %q", m.said)
	}
}

// TestTemplatesOfANamespaceAreBounded has pods come with ever other amounts.
func TestTemplatesOfANamespaceAreBounded(t *testing.T) {
	var objects []runtime.Object
	for i := range mostTemplates - 2 {
		template := translated(t, "space", fmt.Sprintf("%dMi", i+1)).Templates[0]
		objects = append(objects, &template)
	}
	const more = 5
	for i := range more {
		objects = append(objects, carrying(t, fmt.Sprint("p-", i), fmt.Sprintf("%dGi", 100+i)))
	}
	m := newMaking(t, objects...)
	for range more + (more-2)*(sayAfter-1) { // two of them find room
		m.serveNext()
	}
	list, err := m.client.ResourceV1().ResourceClaimTemplates("space").List(m.ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != mostTemplates {
		t.Errorf("%d templates, %v", len(list.Items), err)
	}
	if len(m.said) != more-2 || !strings.Contains(m.said[0], "has 1000 claim templates of pods already") {
		t.Errorf("said %q", m.said)
	}
}
