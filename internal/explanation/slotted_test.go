package explanation

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// asking makes a pod one that asks by slots, and that has a node unless it is to wait.
func asking(node string, change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[v1alpha1.RequestAnnotation] = "x"
		if p.Spec.NodeName = node; node != "" {
			p.Status = condition(corev1.ConditionTrue, "", "")
		}
		if change != nil {
			change(p)
		}
	}
}

func waitingFor(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func endedBy(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message}}
}

// A pod with slots says what the kubelet says of its containers.
func TestHalted(t *testing.T) {
	const (
		stopped = "failed to create containerd task: mkdir /proc/divvy-agent-away-or-NRI-off: no such file or directory"
		served  = "it starts when the agent of node n1 answers and the container runtime asks it: `divvy doctor --kubernetes` says which does not"
		creates = "CreateContainerError"
		mps     = "prepare default/honest1: GPU 1 has shares of backend mps"
	)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	one := func(state, last corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "side", State: running}, {Name: "main", State: state, LastTerminationState: last}}
		}
	}
	none := corev1.ContainerState{}
	for _, c := range []struct {
		name         string
		change       func(*corev1.Pod)
		more         []runtime.Object
		reason, next string
	}{
		{"the agent refuses", one(waitingFor(creates, mps), none), nil, "container main: CreateContainerError: " + mps, ""},
		{"without a message", one(waitingFor("ImagePullBackOff", ""), none), nil, "container main: ImagePullBackOff", ""},
		{
			"the agent is away", one(waitingFor("CreateContainerConfigError", "device plugin PreStartContainer rpc failed with err: unavailable"), none), nil,
			"container main: CreateContainerConfigError: device plugin PreStartContainer rpc failed with err: unavailable", served,
		},
		{"the agent died in that moment", one(waitingFor("CrashLoopBackOff", "back-off 10s"), endedBy("StartError", stopped)), nil, "container main: StartError: " + stopped, served},
		{"it is about to start again", one(endedBy("StartError", stopped), none), nil, "container main: StartError: " + stopped, served},
		{"something else by now", one(waitingFor(creates, mps), endedBy("StartError", stopped)), nil, "container main: CreateContainerError: " + mps, ""},
		{"the program fails", one(waitingFor("CrashLoopBackOff", "back-off 10s"), endedBy("Error", "")), nil, "container main: CrashLoopBackOff: back-off 10s", ""},
		{"an init container", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: waitingFor(creates, mps)}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waitingFor("PodInitializing", "")}}
		}, nil, "container first: CreateContainerError: " + mps, ""},
		{"what would change a terminal", one(waitingFor(creates, "a\n\x1b[31mb"), none), nil, `container main: CreateContainerError: a \x1b[31mb`, ""},
		{"nothing yet", one(waitingFor("ContainerCreating", ""), none), nil, "its containers have not started yet", ""},
		{
			"an event tells more", one(waitingFor("ContainerCreating", ""), none),
			[]runtime.Object{event("p", "p", "Pulling", "Pulling image", 0), event("p", "p", "FailedCreatePodSandBox", "no network", time.Minute), event("p", "p", "Other", "else", time.Hour)},
			"no network", "",
		},
		{
			"the event is older than what is said now", one(waitingFor(creates, mps), none),
			[]runtime.Object{event("p", "p", "Failed", "Error: something else", time.Hour)}, "container main: CreateContainerError: " + mps, "",
		},
		{"it runs", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			one(running, endedBy("StartError", stopped))(p)
		}, []runtime.Object{event("p", "p", "Failed", "solved since", 0)}, "", ""},
		{"one of its containers does not", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			one(waitingFor("CrashLoopBackOff", "back-off 10s"), endedBy("StartError", stopped))(p)
		}, nil, "container main: StartError: " + stopped, served},
		{
			"it has ended without a start", func(p *corev1.Pod) { one(endedBy("StartError", stopped), none)(p); p.Status.Phase = corev1.PodFailed }, nil,
			"Failed: container main: StartError: " + stopped, "create it again: a pod that is never started again ends when its node's agent is away in that moment",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := reader(append(c.more, podWith("p", asking("n1", c.change)))...).Pod(t.Context(), "ns", "p")
			if err != nil || e.Reason != c.reason || e.Next != c.next {
				t.Errorf("%q, %q, %v; want %q, %q", e.Reason, e.Next, err, c.reason, c.next)
			}
		})
	}
}

// Pods with claims are explained by claims and the agent's events alone.
func TestHaltedWithClaims(t *testing.T) {
	e, err := reader(podWith("p", func(p *corev1.Pod) {
		asking("n1", nil)(p)
		delete(p.Annotations, v1alpha1.RequestAnnotation)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waitingFor("CreateContainerError", "x")}}
	})).Pod(t.Context(), "ns", "p")
	if err != nil || e.Reason != "its containers have not started yet" || e.Shares != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

// A pod with slots says what it has, unless that was assigned to another pod.
func TestShares(t *testing.T) {
	config := &v1alpha1.ShareConfig{Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline, Weight: 1, Backend: v1alpha1.BackendSlice}
	for owner, want := range map[string][]Share{
		"p": {
			{Name: "main", GPUs: []Device{{v1alpha1.Driver, "n1", "GPU-5", 3 << 30, 20}, {v1alpha1.Driver, "n1", "GPU-6", 3 << 30, 20}}},
			{Name: "side", Whole: true, GPUs: []Device{{v1alpha1.Driver, "n1", "GPU-7", 15 << 30, 0}}},
		},
		"another": nil,
	} {
		text, err := v1alpha1.PodAssignment{Pod: owner, Shares: []v1alpha1.ShareAssigned{
			{Name: "main", Containers: []string{"main"}, GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-5", Memory: 3 << 30, Cores: 20}, {UUID: "GPU-6", Memory: 3 << 30, Cores: 20}}, Config: config},
			{Name: "side", Containers: []string{"side"}, GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-7", Memory: 15 << 30}}, Whole: true},
		}}.Text()
		if err != nil {
			t.Fatal(err)
		}
		e, err := reader(podWith("p", asking("n1", func(p *corev1.Pod) {
			p.Annotations[v1alpha1.AssignmentAnnotation], p.Status.Phase = text, corev1.PodRunning
		}))).Pod(t.Context(), "ns", "p")
		if err != nil || !reflect.DeepEqual(e.Shares, want) {
			t.Errorf("assigned to %s: %+v, %v; want %+v", owner, e.Shares, err, want)
		}
	}
}

// What a gang lacks is nothing that a pod with slots waits for: no gang is placed there.
func TestGangWithSlots(t *testing.T) {
	const needs = "a gang needs Kubernetes 1.36 and claims"
	pod := member("p", "", v1alpha1.RequestAnnotation, "x")
	pod.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, needs)
	e, err := reader(pod).Pod(t.Context(), "ns", "p")
	if err != nil || e.Reason != needs || e.Next != "" || e.Gang == nil || e.Gang.Missing != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}
