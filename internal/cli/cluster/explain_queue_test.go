package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

func TestQueueExplanationPrinted(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	e := explanation.QueueExplanation{
		Queue: departments()[2], Path: []string{"all", "research"}, Namespaces: []string{"vision", "vision-test"},
		Grace:          explanation.Inherited{Time: v1alpha1.Duration(time.Minute), From: "research"},
		MinimumRunTime: explanation.Inherited{},
		Amounts: []explanation.AmountsOf{
			{Unit: v1alpha1.UnitGPUs, Lines: []explanation.AmountLine{{What: "guaranteed", Amount: "4", From: "as written"}, {What: "borrowed", Amount: "1.5", From: "lent by speech (1.5)"}, {What: "lent", Amount: "0"}}},
			{Model: "H100", Unit: v1alpha1.UnitMemory, Lines: []explanation.AmountLine{{What: "limit", Amount: "80Gi", From: "of queue all"}}},
		},
		Parts:    []explanation.Queue{{Name: "eu", Running: 1}},
		Sleeping: []explanation.Sleeper{{Namespace: "vision", Pod: "train-3", Since: now.Add(-90 * time.Second), Reason: "its turn, and room on its GPUs of node n1; it left them for pod speech/a of queue speech"}},
		Ending:   []explanation.EndingPod{{Namespace: "vision", Pod: "train-7", Until: now.Add(time.Minute), Reason: "ends within 1m0s for pod speech/a of queue speech"}},
	}
	for i := range 22 {
		e.Line = append(e.Line, explanation.Waiter{Namespace: "vision", Name: fmt.Sprint("p", i), Quota: v1alpha1.QuotaBorrowing, Since: now.Add(-time.Minute), Reason: "no room"})
	}
	e.Line[0].Name, e.Line[0].Pods, e.Line[0].Priority = "llama", 8, 100
	var text strings.Builder
	writeQueue(&text, &e, now)
	golden(t, "explain-queue", text.String())
}

func TestExplainQueue(t *testing.T) {
	vision := v1alpha1.Queue{Metadata: v1alpha1.QueueMetadata{Name: "vision"}, Spec: v1alpha1.QueueSpec{Namespaces: []string{"mine"}}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "p", UID: "u"}, Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}}
	pods := func(items ...corev1.Pod) corev1.PodList {
		return corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: items}
	}
	clusterOf(t, map[string]any{queuesPath: listOf(vision), "/api/v1/pods": pods(), "/api/v1/namespaces/mine/pods": pods(pod)})
	status, out, errOut := call("explain", "queue", "vision")
	if status != 0 || !strings.Contains(out, "queue vision: 0 running, 0 waiting\n") || !strings.Contains(out, "\np      mine       borrowing  0 ") || errOut != "" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	var e explanation.QueueExplanation
	status, out, _ = call("explain", "queue", "vision", "-n", "mine", "-o", "json")
	if err := json.Unmarshal([]byte(out), &e); status != 0 || err != nil || e.Name != "vision" || len(e.Line) != 1 || e.Grace.Time != v1alpha1.Duration(v1alpha1.DefaultGrace) {
		t.Errorf("status %d, %v, %s", status, err, out)
	}
	status, _, errOut = call("explain", "queue", "nobody")
	if status != program.ExitFailure || !strings.Contains(errOut, "find queue nobody: no such queue: `divvy queues` lists what there is") {
		t.Errorf("status %d, %s", status, errOut)
	}
}
