package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const checkout = "../../.."

// No GPU of the fleet is two nodes'.
func TestFleet(t *testing.T) {
	fleet, err := fleetOf(3)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range fleet {
		n, err := fleet[i].node()
		if err != nil || len(fleet[i].gpus) != 8 {
			t.Fatalf("a node has %d GPUs: %v", len(fleet[i].gpus), err)
		}
		described, err := v1alpha1.ParseNodeGPUs(n.Annotations[v1alpha1.GPUsAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range described.GPUs {
			if seen[g.UUID] || g.Memory < 64<<30 {
				t.Errorf("node %d has %+v", i, g)
			}
			seen[g.UUID] = true
		}
		if slots := n.Status.Allocatable[v1alpha1.SlotResource]; slots.Value() != 512 {
			t.Errorf("node %d has %d slots", i, slots.Value())
		}
	}
}

// Pods ask what the webhook would have them ask; plain ones ask for nothing and have the same scheduler.
func TestKinds(t *testing.T) {
	kinds, err := bothKinds()
	if err != nil {
		t.Fatal(err)
	}
	small, plain := kinds[0].one("1", 7), kinds[1].one("1", 7)
	request, err := v1alpha1.ParsePodRequest(small.Annotations[v1alpha1.RequestAnnotation])
	if err != nil || request.Shares[0].Memory != 10<<30 || request.Shares[0].Cores != 5 {
		t.Errorf("a share asks for %+v: %v", request, err)
	}
	if slots := small.Spec.Containers[0].Resources.Limits[v1alpha1.SlotResource]; slots.Value() != 1 {
		t.Errorf("a share takes %d slots", slots.Value())
	}
	if len(plain.Spec.Containers[0].Resources.Limits) > 0 || plain.Spec.SchedulerName != small.Spec.SchedulerName {
		t.Errorf("a plain pod is %+v", plain.Spec)
	}
	whole, err := traceKind("Whole", &alloc.Request{Count: 2, Whole: true, Models: "T4|P100", CPU: 500, HostMemory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	pod := whole.one("1", 0)
	request, err = v1alpha1.ParsePodRequest(pod.Annotations[v1alpha1.RequestAnnotation])
	if err != nil || request.Shares[0].GPUs != 2 || !request.Shares[0].Whole || pod.Name != "whole-1-00000" {
		t.Errorf("%s asks for %+v: %v", pod.Name, request, err)
	}
	if cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse("500m")) != 0 {
		t.Errorf("%s asks for %s processors", pod.Name, cpu.String())
	}
	if models := pod.Annotations[v1alpha1.ModelsAnnotation]; models != "T4,P100" {
		t.Errorf("%s accepts models %q", pod.Name, models)
	}
}

// boundPod is one with a share of a GPU of the only node.
func boundPod(t *testing.T, name string, a asked, gpu int) *corev1.Pod {
	t.Helper()
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kindOf(name, a)
	if err != nil {
		t.Fatal(err)
	}
	pod := k.one("1", 0)
	pod.UID = types.UID(name)
	binding, err := bindingOf(pod, &fleet[0], gpu)
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Annotations[v1alpha1.AssignmentAnnotation] = binding.Annotations[v1alpha1.AssignmentAnnotation]
	return pod
}

func sharesOf(memory, cores string) asked {
	return asked{limits: corev1.ResourceList{
		v1alpha1.ResourceGPU: resource.MustParse("1"), v1alpha1.ResourceMemory: resource.MustParse(memory), v1alpha1.ResourceCores: resource.MustParse(cores),
	}}
}

// Each thing that may be wrong is found, and nothing else.
func TestLedger(t *testing.T) {
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		second asked
		gpu    int
		change func(pod *corev1.Pod)
		want   string
	}{
		"two shares":         {second: sharesOf("10Gi", "50")},
		"too much memory":    {second: sharesOf("60Gi", "10"), want: "bytes are given"},
		"too many cores":     {second: sharesOf("1Gi", "60"), want: "cores are given"},
		"on another GPU":     {second: sharesOf("60Gi", "60"), gpu: 1},
		"no assignment":      {second: sharesOf("1Gi", "1"), change: func(pod *corev1.Pod) { delete(pod.Annotations, v1alpha1.AssignmentAnnotation) }, want: errUnassigned.Error()},
		"another pod's":      {second: sharesOf("1Gi", "1"), change: func(pod *corev1.Pod) { pod.UID = "other" }, want: "was made for pod"},
		"another node's GPU": {second: sharesOf("1Gi", "1"), change: func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0001" }, want: "node node-0000 has it"},
		"a GPU of none": {second: sharesOf("1Gi", "1"), change: func(pod *corev1.Pod) {
			pod.Annotations[v1alpha1.AssignmentAnnotation] = strings.ReplaceAll(pod.Annotations[v1alpha1.AssignmentAnnotation], "GPU-00000000-0000", "GPU-00000000-0009")
		}, want: "no node has it"},
		"not bound": {second: sharesOf("60Gi", "60"), change: func(pod *corev1.Pod) { pod.Spec.NodeName = "" }},
		"has ended": {second: sharesOf("60Gi", "60"), change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
	} {
		l := newLedger(fleet)
		if faults := l.see(boundPod(t, "first", sharesOf("30Gi", "50"), 0), false); len(faults) > 0 {
			t.Fatalf("%s: %v", name, faults)
		}
		pod := boundPod(t, "second", test.second, test.gpu)
		if test.change != nil {
			test.change(pod)
		}
		err := errors.Join(l.see(pod, false)...)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: found %v, want %q", name, err, test.want)
		}
		l.see(pod, true)
		if err := errors.Join(l.see(boundPod(t, "third", sharesOf("40Gi", "50"), 0), false)...); err != nil {
			t.Errorf("%s: after it has gone: %v", name, err)
		}
	}
}

// A GPU that one has whole is nobody else's.
func TestLedgerOfWholeGPUs(t *testing.T) {
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(fleet)
	whole := boundPod(t, "whole", sharesOf("1Gi", "1"), 0)
	for _, name := range []string{v1alpha1.RequestAnnotation, v1alpha1.AssignmentAnnotation} {
		text := whole.Annotations[name]
		text = text[:strings.Index(text, `,"config"`)] + "}]}"
		text = strings.Replace(strings.Replace(strings.Replace(text, `,"cores":1`, "", 1), `,"memory":1073741824`, "", 1), `"name"`, `"whole":true,"name"`, 1)
		whole.Annotations[name] = strings.Replace(text, `444-555555555555"`, `444-555555555555","memory":1`, 1)
	}
	if faults := l.see(whole, false); len(faults) > 0 || l.given() != fleet[0].gpus[0].Memory {
		t.Fatalf("%v: %d bytes are given\n%v", faults, l.given(), whole.Annotations)
	}
	if err := errors.Join(l.see(boundPod(t, "second", sharesOf("1Gi", "1"), 0), false)...); err == nil || !strings.Contains(err.Error(), "given whole") {
		t.Errorf("found %v", err)
	}
}

// The record tells of each pod once, whatever else changes about it, and waits for conditions.
func TestRecord(t *testing.T) {
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord(fleet)
	round := r.begin("1")
	pod := boundPod(t, "first", sharesOf("1Gi", "1"), 0)
	delete(pod.Annotations, v1alpha1.AssignmentAnnotation)
	waits := pod.DeepCopy()
	waits.Spec.NodeName = ""
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	r.see(waits, false)
	if len(round.waiting) != 1 {
		t.Error("it does not wait")
	}
	for range 3 {
		r.see(pod, false)
	}
	if r.unassigned != 1 || r.twice != 0 || r.bound != 1 || !errors.Is(r.wrong(), errUnassigned) {
		t.Errorf("%d unassigned, %d twice, %d bound: %v", r.unassigned, r.twice, r.bound, r.wrong())
	}
	if err := r.when(t.Context(), func() bool { return len(round.bound) == 1 && len(round.waiting) == 0 }); err != nil {
		t.Error(err)
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i)*time.Millisecond)
	}
	if p := []float64{percentile(all, 50), percentile(all, 99)}; !slices.Equal(p, []float64{101, 199}) {
		t.Errorf("got %v", p)
	}
}
