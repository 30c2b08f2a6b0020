package e2e

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Pods of gangs and of queues need claims. They wait, and say so.
func slotsForeign(l *lab) {
	const needs = "needs Kubernetes 1.36 and claims"
	l.create(gang("train", "one", "two")[0])
	l.waitsFor("one", needs)
	queued := plain("queued", "1Gi", "")
	queued.Labels = map[string]string{v1alpha1.QueueLabel: "vision"}
	l.create(queued)
	l.waitsFor("queued", needs)
	l.run(plain("beside", "1Gi", ""))
	l.recorded()
}

// slotsQuota takes the example of a quota, whose namespace is its own.
func slotsQuota(l *lab) {
	l.makeNamespace("quota")
	l.kubectl("apply", "-f", l.exampleFile("quota"))
	q := *l
	q.namespace = "quota"
	q.running("within")
	l.recorded()
	l.eventually("the quota counts the pod", func() string {
		_, err := l.Client().CoreV1().Pods("quota").Create(l.ctx, plain("beyond", "5Gi", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return "5 GiB beside 4 are admitted where 8 are allowed"
		}
		if !strings.Contains(err.Error(), "quota") {
			return err.Error()
		}
		l.t.Logf("beyond the quota: %v", err)
		return ""
	})
	q.run(plain("fits", "4Gi", "30"))
	l.recorded()
	q.clear()
}
