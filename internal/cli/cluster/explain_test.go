package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

func TestExplanationPrinted(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	since := now.Add(-130 * time.Second)
	for name, e := range map[string]explanation.Explanation{
		"explain-waiting": {
			Namespace: "ns", Pod: "train-2", State: explanation.Waiting, Since: &since, Scheduler: v1alpha1.SchedulerName,
			Reason: "no rack has room", Next: "1 pod more of gang ns/llama", Queue: &explanation.QueuePlace{Name: "vision", Ahead: 2, Waiting: 7},
			Gang: &explanation.Gang{
				Name: "ns/llama", Size: 12, Minimum: 11, Topology: "rack=required",
				Bound:   []explanation.Member{{Pod: "train-0", Node: "n1"}},
				Waiting: []string{"train-1", "train-2", "train-3", "train-4", "train-5", "train-6", "train-7", "train-8", "train-9"}, Missing: 1,
			},
			Claims: []explanation.Claim{{Name: "divvy-aaaaaaaaaaaaaaaa", State: explanation.Unmade}},
		},
		"explain-bound": {
			Namespace: "ns", Pod: "train-0", State: explanation.Bound, Since: &since, Scheduler: v1alpha1.SchedulerName, Node: "n1",
			Gang: &explanation.Gang{Name: "ns/llama", Minimum: 2, Waiting: []string{"a", "b"}, Extra: []string{"c"}, Ended: 1},
			Claims: []explanation.Claim{{Name: "claim", State: explanation.Allocated, Devices: []explanation.Device{
				{Driver: v1alpha1.Driver, Pool: "n1", Device: "gpu-1-shared", Memory: 8 << 30, Cores: 30}, {Driver: "nic.example.com", Pool: "p", Device: "nic-1"},
			}}},
		},
		"explain-slots": {
			Namespace: "ns", Pod: "train-0", State: explanation.Bound, Since: &since, Scheduler: v1alpha1.SchedulerName, Node: "n1",
			Reason: "container main: CreateContainerError: GPU 1 has shares of backend mps",
			Shares: []explanation.Share{
				{Name: "main", GPUs: []explanation.Device{
					{Driver: v1alpha1.Driver, Pool: "n1", Device: "GPU-5", Memory: 8 << 30, Cores: 30}, {Driver: v1alpha1.Driver, Pool: "n1", Device: "GPU-6", Memory: 8 << 30},
				}},
				{Name: "side", Whole: true, GPUs: []explanation.Device{{Driver: v1alpha1.Driver, Pool: "n1", Device: "GPU-7", Memory: 15 << 30, Cores: 100}}},
			},
		},
	} {
		var got strings.Builder
		writeExplanation(&got, &e, now)
		golden(t, name, got.String())
	}
}

// TestExplainPod asks an API server that has one pod, in the namespace of the file's context.
func TestExplainPod(t *testing.T) {
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{SchedulerName: v1alpha1.SchedulerName}, Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no GPU is free"},
		}},
	}
	clusterOf(t, map[string]any{
		"/api/v1/namespaces/mine/pods/p":                pod,
		"/apis/events.k8s.io/v1/namespaces/mine/events": eventsv1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "EventList"}},
	})
	status, out, errOut := call("explain", "pod", "p")
	if status != 0 || !strings.Contains(out, "  reason:    no GPU is free\n") || errOut != "" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	var e explanation.Explanation
	status, out, _ = call("explain", "pod", "p", "-n", "mine", "-o", "json", "--kubeconfig", os.Getenv("KUBECONFIG"))
	if err := json.Unmarshal([]byte(out), &e); status != 0 || err != nil || e.Reason != "no GPU is free" || e.State != explanation.Waiting {
		t.Errorf("status %d, %v, %s", status, err, out)
	}
	status, out, errOut = call("explain", "pod", "p", "-n", "other")
	if status != program.ExitFailure || out != "" || !strings.Contains(errOut, "find pod p in namespace other: no such pod") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if status, _, errOut = call("explain", "pod", "p"); status != program.ExitFailure || !strings.Contains(errOut, "give --kubeconfig") {
		t.Errorf("without a cluster: status %d, %s", status, errOut)
	}
}
