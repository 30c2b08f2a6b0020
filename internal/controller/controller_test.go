package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// translated is what becomes of a pod that asks for an amount of memory.
func translated(t testing.TB, namespace, memory string) *dialect.Translation {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	pod := pending(t, "containers: [{name: main, resources: {limits: {divvy.dev/gpu-memory: "+memory+"}}}]")
	pod.Namespace = namespace
	made, err := translator.Translate(pod, dialect.Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	return &made
}

// templateOf is a template of a translated pod, last used at a time; zero is for one without a note.
func templateOf(t testing.TB, namespace string, used time.Time) *resourcev1.ResourceClaimTemplate {
	t.Helper()
	template := &translated(t, namespace, "4Gi").Templates[0]
	template.UID, template.ResourceVersion, template.CreationTimestamp = "t1", "7", metav1.NewTime(noon.Add(-48*time.Hour))
	if !used.IsZero() {
		template.Annotations = map[string]string{v1alpha1.UsedAnnotation: used.Format(time.RFC3339)}
	}
	return template
}

func userOf(template *resourcev1.ResourceClaimTemplate, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: "user"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}
	pod.Status.Phase = phase
	return pod
}

func TestUnused(t *testing.T) {
	old := noon.Add(-KeepUnused)
	for name, c := range map[string]struct {
		used   time.Time
		change func(*resourcev1.ResourceClaimTemplate)
		user   corev1.PodPhase
		want   bool
	}{
		"old":                       {used: old, want: true},
		"without a note, made long": {want: true},
		"without a note, just made": {change: func(r *resourcev1.ResourceClaimTemplate) { r.CreationTimestamp = metav1.NewTime(noon) }},
		"used a little later":       {used: old.Add(time.Second)},
		"used in the future":        {used: noon.Add(time.Hour)},
		"used by a pod":             {used: old, user: corev1.PodPending},
		"used by a running pod":     {used: old, user: corev1.PodRunning},
		"used by a finished pod":    {used: old, user: corev1.PodSucceeded, want: true},
		"a user's":                  {used: old, change: func(r *resourcev1.ResourceClaimTemplate) { r.Labels = nil }},
		"a user's, with our label":  {used: old, change: func(r *resourcev1.ResourceClaimTemplate) { r.Name = "divvy-mine" }},
		"of another content":        {used: old, change: func(r *resourcev1.ResourceClaimTemplate) { r.Spec.Spec.Devices.Requests[0].Exactly.Count = 2 }},
		"being deleted":             {used: old, change: func(r *resourcev1.ResourceClaimTemplate) { r.DeletionTimestamp = &metav1.Time{Time: noon} }},
	} {
		template := templateOf(t, "space", c.used)
		var pods []*corev1.Pod
		if c.user != "" {
			pods = append(pods, userOf(template, c.user))
		}
		// A pod of another namespace that names the same template uses another one.
		elsewhere := userOf(template, corev1.PodRunning)
		elsewhere.Namespace = "elsewhere"
		if c.change != nil {
			c.change(template)
		}
		if got := unused([]*resourcev1.ResourceClaimTemplate{template}, usesOf(append(pods, elsewhere)), noon); (len(got) == 1) != c.want {
			t.Errorf("%s: %d are unused", name, len(got))
		}
	}
}

// Of a namespace's unused templates only the last used are kept; those of pods do not count.
func TestUnusedAreBounded(t *testing.T) {
	var templates []*resourcev1.ResourceClaimTemplate
	uses := make(map[use]bool)
	for i := range mostUnused + 3 {
		template := translated(t, "space", fmt.Sprintf("%dMi", i+1)).Templates[0]
		template.Annotations = map[string]string{v1alpha1.UsedAnnotation: noon.Add(-time.Duration(i) * time.Second).Format(time.RFC3339)}
		templates = append(templates, &template)
		elsewhere := template
		elsewhere.Namespace = fmt.Sprint("space-", i%2)
		templates = append(templates, &elsewhere)
		uses[use{"space", template.Name}] = i == 0
	}
	got := unused(templates, uses, noon)
	if len(got) != 2 || got[0] != templates[len(templates)-4] || got[1] != templates[len(templates)-2] {
		t.Errorf("%d are unused: %v", len(got), got)
	}
}

func TestCollectDeletesWhatItSaw(t *testing.T) {
	template := templateOf(t, "space", noon.Add(-2*KeepUnused))
	for name, fault := range map[string]error{
		"":                     nil,
		"used since":           apierrors.NewConflict(resourcev1.Resource("resourceclaimtemplates"), template.Name, errors.New("the resourceVersion in the precondition does not match")),
		"collected by another": apierrors.NewNotFound(resourcev1.Resource("resourceclaimtemplates"), template.Name),
	} {
		client := fake.NewClientset(template)
		var given []metav1.DeleteOptions
		client.PrependReactor("delete", "resourceclaimtemplates", func(action clienttesting.Action) (bool, runtime.Object, error) {
			given = append(given, action.(clienttesting.DeleteActionImpl).DeleteOptions)
			return true, nil, fault
		})
		var text strings.Builder
		c := newController(client, v1alpha1.SchedulerName, "me", slog.New(slog.NewTextHandler(&text, nil)), prometheus.NewRegistry())
		c.now = func() time.Time { return noon }
		ctx, stop := context.WithCancel(context.Background())
		if err := c.known.start(ctx); err != nil {
			t.Fatal(err)
		}
		c.collect(ctx)
		stop()
		c.known.stop()
		if len(given) != 1 || given[0].Preconditions == nil || *given[0].Preconditions.UID != "t1" || *given[0].Preconditions.ResourceVersion != "7" {
			t.Errorf("%s: deleted with %+v", name, given)
		}
		if strings.Contains(text.String(), "level=ERROR") || strings.Contains(text.String(), "collected a claim template") != (fault == nil) {
			t.Errorf("%s: said %s", name, text.String())
		}
	}
}

// TestWork lets a controller watch a cluster: a pod that does not fit is told so once, and told anew when that changes.
func TestWork(t *testing.T) {
	slice := nodeOf(t, "n1", gib(16))
	var objects []runtime.Object
	for i, s := range slice {
		s.Name = "s" + string(rune('0'+i))
		objects = append(objects, s)
	}
	for _, class := range classes {
		objects = append(objects, class)
	}
	for _, node := range named("n1") {
		objects = append(objects, node)
	}
	taken := given(t, "n1/0 12Gi 0")
	taken.Namespace, taken.Name = "space", "taken"
	own := claimOf(t, share("memory: 8Gi"))
	own.Namespace, own.Name, own.UID = "space", "p-gpu", "c1"
	isController := true
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u1", Controller: &isController}}
	pod := pending(t, "resourceClaims: [{name: gpu, resourceClaimTemplateName: x}]")
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &own.Name}}
	client := fake.NewClientset(append(objects, taken, own, pod)...)
	said := make(chan string, 16)
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		event := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		said <- event.Regarding.Name + ": " + event.Note
		return false, nil, nil
	})
	c := newController(client, v1alpha1.SchedulerName, "me", silent(), prometheus.NewRegistry())
	var mu sync.Mutex
	now := noon
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	c.now, c.reasons.now = clock, clock
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.work(ctx) }()
	if got := <-said; got != "p: no GPU has 8Gi of memory free: the most is 4Gi on node n1 (GPU 0); 1 node has GPUs" {
		t.Error(got)
	}
	mu.Lock()
	now = now.Add(quiet)
	mu.Unlock()
	more := given(t, "n1/0 2Gi 0")
	more.Namespace, more.Name = "space", "more"
	if _, err := client.ResourceV1().ResourceClaims("space").Create(ctx, more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-said; got != "p: no GPU has 8Gi of memory free: the most is 2Gi on node n1 (GPU 0); 1 node has GPUs" {
		t.Error(got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(said) != 0 {
		t.Errorf("and %s", <-said)
	}
}

// TestOneReplicaWorks has two replicas compete for the lease: the second works when the first has ended.
func TestOneReplicaWorks(t *testing.T) {
	client, asked := fake.NewClientset(), make(chan struct{}, 100)
	theirs := fake.NewClientset() // of the same cluster, and tells of every look at the lease
	theirs.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "get" {
			asked <- struct{}{}
		}
		return clienttesting.ObjectReaction(client.Tracker())(action)
	})
	works := make(chan string)
	replica := func(name string, client *fake.Clientset) (context.CancelFunc, chan error) {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := lead(ctx, Options{Leases: client.CoordinationV1(), Namespace: "divvy-system", Log: silent()}, name, func(ctx context.Context) error {
				works <- name
				<-ctx.Done()
				return nil
			})
			ended <- err
		}()
		return stop, ended
	}
	stopFirst, first := replica("first", client)
	if got := <-works; got != "first" {
		t.Error(got)
	}
	stopSecond, second := replica("second", theirs)
	for range 2 { // after the first it would work, were it not for the lease
		select {
		case got := <-works:
			t.Fatalf("%s works too", got)
		case <-asked:
		}
	}
	stopFirst()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got := <-works; got != "second" {
		t.Error(got)
	}
	stopSecond()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestRunEndsAndAnswersProbes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	client, ended := fake.NewClientset(), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Client: client, Leases: client.CoordinationV1(), Namespace: "divvy-system", Plain: listener, Log: silent()})
	}()
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		response, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || path == "/metrics" && !strings.Contains(string(text), "divvy_controller_templates_collected_total 0") {
			t.Errorf("%s: %d %s %v", path, response.StatusCode, text, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestInUse(t *testing.T) {
	held := given(t, "n1/0 12Gi 0")
	held.Namespace, held.Name = "space", "held"
	held.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "a", UID: "1"}}
	other := given(t, "n1/0")
	other.Name = "other"
	other.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
	waits := claimOf(t, share("memory: 1Gi"))
	waits.Name = "waits"
	slotted := pending(t, `nodeName: n1, initContainers: [{name: i}], containers: [{name: main, resources: {limits: {divvy.dev/shares: 1}}}]`)
	unbound := pending(t, `containers: [{name: main, resources: {limits: {divvy.dev/shares: 1}}}]`)
	unbound.Name = "unbound"
	plain := pending(t, `nodeName: n1, containers: [{name: main}]`)
	plain.Name = "plain"
	machine := pending(t, `nodeName: n2, containers: [{name: main, resources: {limits: {divvy.dev/vgpu_471: 1, divvy.dev/passthrough_10de_2331: 2, divvy.dev/vf_1002_74b9: 0}}}]`)
	machine.Name = "virt-launcher"
	foreign := pending(t, `nodeName: n2, containers: [{name: main, resources: {limits: {example.com/vgpu_471: 1, divvy.dev/gpu: 1}}}]`)
	foreign.Name = "foreign"
	client := fake.NewClientset(held, other, waits, slotted, unbound, plain, machine, foreign)
	lines, err := ClaimsInUse(context.Background(), client)
	if want := "claim space/held holds 1 GPU, used by pods/a"; err != nil || len(lines) != 1 || lines[0] != want {
		t.Errorf("%q, %v", lines, err)
	}
	lines, err = SlotsInUse(context.Background(), client)
	want := []string{"pod space/p holds shares on node n1", "pod space/virt-launcher holds divvy.dev/passthrough_10de_2331, divvy.dev/vgpu_471 on node n2"}
	if slices.Sort(lines); err != nil || !slices.Equal(lines, want) {
		t.Errorf("%q, %v, want %q", lines, err, want)
	}
}
