package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

// placers are the objects of what places pods with shares.
type placers struct {
	deployment          *appsv1.Deployment
	scheduler, extender *coordinationv1.Lease
	first, second       *corev1.Pod
}

// slotted are two replicas as the chart makes them, with a scheduler beside the extender, or of the extender alone.
func slotted(beside bool) *placers {
	deployment, scheduler, _ := schedulerRuns()
	o := &placers{deployment: deployment, scheduler: scheduler, extender: scheduler.DeepCopy()}
	o.extender.Name, o.extender.Spec.HolderIdentity = extenderLease, ptr.To("divvy-scheduler-1")
	names := []string{extenderContainer}
	if beside {
		names = []string{schedulerContainer, extenderContainer}
	}
	o.first = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "divvy-scheduler-1", Labels: map[string]string{
		"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "scheduler",
	}}}
	for _, name := range names {
		deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, corev1.Container{Name: name})
		o.first.Status.ContainerStatuses = append(o.first.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	o.second = o.first.DeepCopy()
	o.second.Name = "divvy-scheduler-2"
	if !beside {
		deployment.Status.ReadyReplicas, o.second.Status.ContainerStatuses[0].Ready, o.scheduler = 1, false, nil
	}
	return o
}

func (o *placers) objects() []runtime.Object {
	all := []runtime.Object{o.deployment, o.extender, o.first, o.second}
	if o.scheduler != nil {
		all = append(all, o.scheduler)
	}
	return all
}

func TestPlacing(t *testing.T) {
	for name, c := range map[string]struct {
		alone  bool
		change func(o *placers)
		want   []string
	}{
		"all is well": {false, func(*placers) {}, []string{
			"ok the scheduler: 2 of 2", "ok who schedules: divvy-scheduler-1 leads", "ok who chooses GPUs: divvy-scheduler-1 leads",
		}},
		"scaled to nothing": {false, func(o *placers) {
			o.deployment.Spec.Replicas, o.deployment.Status.ReadyReplicas = ptr.To(int32(0)), 0
			o.scheduler.Spec.HolderIdentity = ptr.To("")
			o.extender.Spec.RenewTime.Time = time.Now().Add(-time.Hour)
		}, []string{
			"fail the scheduler: 0 of 0 replicas are ready; pods with shares wait: `kubectl -n divvy-system scale deployment divvy-scheduler --replicas=2`",
			"fail who schedules: nobody has lease divvy-scheduler", "fail who chooses GPUs: divvy-scheduler-1 led, and has not renewed its lease for 1h0m",
		}},
		"none is ready": {false, func(o *placers) { o.deployment.Status.ReadyReplicas = 0 }, []string{
			"fail the scheduler: 0 of 2 replicas are ready; pods with shares wait: `kubectl -n divvy-system describe pods", "ok who schedules", "ok who chooses",
		}},
		"the extender beside the leader hangs": {false, func(o *placers) {
			o.deployment.Status.ReadyReplicas, o.first.Status.ContainerStatuses[1].Ready = 1, false
		}, []string{
			"warn the scheduler: 1 of 2 replicas are ready; `kubectl", "ok who schedules",
			"fail who chooses GPUs: divvy-scheduler-1 leads, and its container extender is not ready; pods with shares wait: `kubectl -n divvy-system describe pod divvy-scheduler-1`",
		}},
		"the scheduler that leads hangs": {false, func(o *placers) {
			o.deployment.Status.ReadyReplicas, o.first.Status.ContainerStatuses[0].Ready = 1, false
		}, []string{"warn the scheduler: 1 of 2", "fail who schedules: divvy-scheduler-1 leads, and its container scheduler is not ready", "ok who chooses"}},
		"the extender that only stands by hangs": {false, func(o *placers) {
			o.deployment.Status.ReadyReplicas, o.second.Status.ContainerStatuses[1].Ready = 1, false
		}, []string{"warn the scheduler: 1 of 2", "ok who schedules", "ok who chooses"}},
		"no extender has led": {false, func(o *placers) { o.extender.Name = "another" }, []string{
			"ok the scheduler", "ok who schedules",
			"fail who chooses GPUs: no replica has led yet; pods that ask for GPUs wait: `kubectl -n divvy-system logs deployment/divvy-scheduler -c extender`",
		}},
		"the leader's pod has just gone": {false, func(o *placers) { o.first.Name = "another" }, []string{"ok the scheduler", "ok who schedules", "ok who chooses"}},
		"removed":                        {false, func(o *placers) { o.deployment.Name = "another" }, []string{"fail the scheduler: "}},
		"alone": {true, func(*placers) {}, []string{
			"ok the extender: 2 of 2 replicas run, and one answers", "ok who chooses GPUs: divvy-scheduler-1 leads",
		}},
		"alone, and none answers": {true, func(o *placers) {
			o.deployment.Status.ReadyReplicas, o.first.Status.ContainerStatuses[0].Ready = 0, false
		}, []string{"fail the extender: 0 of 2 replicas are ready; pods with shares wait", "fail who chooses GPUs: divvy-scheduler-1 leads, and its container extender is not ready"}},
		"alone, and the other does not run": {true, func(o *placers) {
			o.second.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}, []string{"warn the extender: 1 of 2 replicas run, and one answers; `kubectl", "ok who chooses"}},
		"alone, and the other has no node": {true, func(o *placers) { o.second.Status.ContainerStatuses = nil }, []string{"warn the extender: 1 of 2", "ok who chooses"}},
		"alone, scaled to nothing": {true, func(o *placers) {
			o.deployment.Spec.Replicas, o.deployment.Status.ReadyReplicas = ptr.To(int32(0)), 0
			o.extender.Spec.HolderIdentity = ptr.To("")
		}, []string{"fail the extender: 0 of 0 replicas are ready; pods with shares wait: `kubectl -n divvy-system scale", "fail who chooses GPUs: nobody has lease divvy-scheduler-extender"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := slotted(!c.alone)
			c.change(o)
			checks := Cluster{Client: fake.NewClientset(o.objects()...), Namespace: system}.placing(t.Context(), &version.Info{Major: "1", Minor: "35", GitVersion: "v1.35.4"})
			var lines []string
			for _, check := range checks {
				lines = append(lines, fmt.Sprintf("%s %s: %s; %s", check.Status, check.Name, check.Found, check.Next))
				if (check.Status == doctor.OK) != (check.Next == "") {
					t.Errorf("%s is %s, and what is to be done is %q", check.Name, check.Status, check.Next)
				}
			}
			matches := len(lines) == len(c.want)
			for i := range lines {
				matches = matches && strings.HasPrefix(lines[i], c.want[i])
			}
			if !matches {
				t.Errorf("got %q, want %q", lines, c.want)
			}
		})
	}
}

func TestFenced(t *testing.T) {
	at := func(name, node, kind, reason string, ago time.Duration) runtime.Object {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Type: corev1.EventTypeWarning, Reason: reason,
			Note:      "GPU GPU-" + name + " takes no more shares: its agent says something else",
			Regarding: corev1.ObjectReference{Kind: kind, Name: node}, EventTime: metav1.NewMicroTime(time.Now().Add(-ago)),
		}
	}
	for name, c := range map[string]struct {
		events []runtime.Object
		want   string
	}{
		"nothing":  {nil, ""},
		"one":      {[]runtime.Object{at("a", "n1", "Node", v1alpha1.ReasonFenced, 3*time.Minute)}, "tell of 1 nodes, the newest of n1, 3m0s ago: GPU GPU-a takes no more shares: its agent says something else"},
		"several":  {[]runtime.Object{at("a", "n1", "Node", v1alpha1.ReasonFenced, 5*time.Minute), at("b", "n2", "Node", v1alpha1.ReasonFenced, time.Minute), at("c", "n2", "Node", v1alpha1.ReasonFenced, 2*time.Minute)}, "tell of 2 nodes, the newest of n2, 1m0s ago: GPU GPU-b"},
		"long ago": {[]runtime.Object{at("a", "n1", "Node", v1alpha1.ReasonFenced, 2*time.Hour)}, ""},
		"others":   {[]runtime.Object{at("a", "n1", "Node", "Rebooted", time.Minute), at("b", "p", "Pod", v1alpha1.ReasonFenced, time.Minute)}, ""},
	} {
		check := Cluster{Client: fake.NewClientset(c.events...)}.fenced(t.Context())
		if (check.Status == doctor.Warn) != (c.want != "") || (check.Next != "") != (c.want != "") || !strings.Contains(check.Found, c.want) {
			t.Errorf("%s: %+v", name, check)
		}
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	if check := (Cluster{Client: client}).fenced(t.Context()); check.Status != doctor.Warn || check.Found != "forbidden" || check.Next == "" {
		t.Errorf("without the right: %+v", check)
	}
}

// The chart's scheduler is of the API server's minor version, or of the one before.
func TestKubeSchedulersVersion(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-scheduler:v1.35.4":                 "",
		"registry.k8s.io/kube-scheduler:v1.34.0":                 "",
		"here:5000/scheduler:v1.35.4-1@sha256:0123":              "",
		"here:5000/scheduler@sha256:0123":                        "", // nothing tells
		"here:5000/scheduler":                                    "",
		"here/scheduler:latest":                                  "",
		"registry.k8s.io/kube-scheduler:v1.36.3":                 "kube-scheduler v1.36.3 does not serve Kubernetes v1.35.4-gke.1",
		"registry.k8s.io/kube-scheduler:v1.33.7":                 "kube-scheduler v1.33.7 does not serve Kubernetes v1.35.4-gke.1",
		"registry.k8s.io/kube-scheduler:v1.32.1-rc.1@sha256:012": "kube-scheduler v1.32.1-rc.1 does not serve",
	} {
		deployment, _, _ := schedulerRuns()
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: schedulerContainer, Image: image}, {Name: extenderContainer, Image: "divvy:v0.1.0"}}
		checks := suits(deployment, &version.Info{Major: "1", Minor: "35+", GitVersion: "v1.35.4-gke.1"})
		switch {
		case want == "" && len(checks) == 0:
		case want == "" || len(checks) != 1 || checks[0].Status != doctor.Warn || !strings.HasPrefix(checks[0].Found, want) || checks[0].Next == "":
			t.Errorf("%s: %+v", image, checks)
		}
	}
}
