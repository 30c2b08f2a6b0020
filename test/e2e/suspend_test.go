package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSuspendedVictims has a department take a GPU back that another one borrows, on a node with memory of the host for it: the
// borrower's pod stays, its memory leaves the GPU and comes back by itself, and is as it was.
func TestSuspendedVictims(t *testing.T) {
	gate(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes: []cluster.Node{{
			Name: "n1", Machine: "a100-80g", Labels: map[string]string{v1alpha1.NodeLabel: ""},
			MachineFlags: []string{"--memory", "16Gi", "--set", "driver.version=570.124.06", "--set", "driver.cuda=12.8"},
		}},
		Images: images(t), Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := over(t, c, root)
	l.must(l.tryInstall("agent.swapMemory=12Gi", "agent.turnMemory=none", "scheduler.enabled=true"))
	l.ready()
	l.must(l.ApplyText(l.ctx, borrowing))
	l.observed("lender", "borrower")
	l.scenario("suspended", takenWithoutEnding)
	l.scenario("unsuspendable", refusedSuspension)
}

// borrowing are a queue to which the one GPU is guaranteed, and one that has nothing.
const borrowing = `{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: lender}, spec: {namespaces: [lender], grace: 5s, resources: [{guaranteed: 1}]}}
---
{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: borrower}, spec: {namespaces: [suspended, unsuspendable], grace: 5s, resources: [{guaranteed: 0}]}}
`

// sweeping goes through its memory again and again until it is told to compare it.
func sweeping(name string) *corev1.Pod {
	p := plain(name, "10Gi", "")
	p.Spec.SchedulerName = v1alpha1.SchedulerName
	p.Spec.Containers[0].Command = []string{"sh", "-c", "gpubench sweep --bytes=1Gi --pieces=8 --count=0 --ns=1000000; sleep infinity"}
	return p
}

// lending is the namespace of the queue that lends its GPU, which is gone in the end.
func (l *lab) lending() *lab {
	l.t.Helper()
	in := l.beside("lender")
	l.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), longest)
		defer cancel()
		after := *l
		after.ctx = ctx
		after.kubectl("delete", "namespace", "lender", "--ignore-not-found")
	})
	return in
}

// A pod with a pattern in its memory leaves its GPU for one to whose department the GPU is guaranteed. Whatever is killed meanwhile, it
// stays out until that pod has ended, and then goes on.
func takenWithoutEnding(l *lab) {
	n := l.Nodes[0]
	train := l.run(sweeping("train"))
	claim := l.claimOfPod("train")
	l.eventually("it uses its memory", func() string {
		if used := l.usedBy(n, claim); used < gib {
			return fmt.Sprintf("it has %d bytes", used)
		}
		return ""
	})
	l.computes(n) // once it has all of its memory
	before := l.usedBy(n, claim)
	lender := l.lending()
	infer := holding(plain("infer", "12Gi", ""))
	infer.Spec.SchedulerName = v1alpha1.SchedulerName
	lender.run(infer)
	l.says(claim, metav1.ConditionTrue, v1alpha1.SuspendedReason)
	l.stillThere(train)
	l.offFor(n, claim, "pod lender/infer of queue lender")
	l.settled()
	if _, err := n.Exec(l.ctx, "divvy", "resume", l.namespace+"/"+claim); err == nil || !strings.Contains(err.Error(), "lender/infer") {
		l.t.Errorf("by hand it comes back: %v", err)
	}
	if text, err := l.Kubectl(l.ctx, "annotate", "-n", l.namespace, "resourceclaim", claim, v1alpha1.SuspendAnnotation+"-"); err == nil {
		l.t.Errorf("somebody takes its order away: %s", text)
	}
	l.killAgent(n)
	l.ready()
	l.offFor(n, claim, "pod lender/infer of queue lender")
	l.says(claim, metav1.ConditionTrue, v1alpha1.SuspendedReason)
	l.settled()
	l.event("train", "ShareSuspended")

	lender.remove("infer")
	l.says(claim, metav1.ConditionFalse, v1alpha1.ResumedReason)
	l.stillThere(train)
	l.eventually("it has on its GPU what it had", func() string {
		if used := l.usedBy(n, claim); used != before {
			return fmt.Sprintf("%d bytes, had %d", used, before)
		}
		return ""
	})
	l.settled()
	l.unchanged("train")
	l.remove("train")
	l.free()
}

// A pod that the driver would not save ends for the other one, as without host memory. What a tenant writes on a claim is refused.
func refusedSuspension(l *lab) {
	l.run(sweeping("stopped"))
	claim := l.claimOfPod("stopped")
	l.eventually("it uses its memory", func() string {
		if used := l.usedBy(l.Nodes[0], claim); used < gib {
			return fmt.Sprintf("it has %d bytes", used)
		}
		return ""
	})
	order := v1alpha1.SuspendAnnotation + `={"version":1,"order":1,"for":"lender/infer"}`
	if text, err := l.Kubectl(l.ctx, "annotate", "-n", l.namespace, "resourceclaim", claim, order); err == nil || !strings.Contains(err.Error()+text, "Divvy's scheduler alone") {
		l.t.Errorf("somebody orders it to leave: %s, %v", text, err)
	}
	l.exec("stopped", "main", "sh", "-c", "kill -STOP $(pidof gpubench)")
	lender := l.lending()
	infer := holding(plain("infer", "12Gi", ""))
	infer.Spec.SchedulerName = v1alpha1.SchedulerName
	lender.create(infer)
	if why := l.event("stopped", "SuspensionRefused"); !strings.Contains(why, "is stopped, and answers nobody") {
		l.t.Errorf("the event does not say why: %s", why)
	}
	lender.running("infer")
	l.eventually("the stopped one has ended", func() string {
		list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Sprintf("there are %d pods", len(list.Items))
		}
		return reason(err)
	})
	l.settled()
	lender.remove("infer")
	l.free()
}

// claimOfPod is the name of the claim of a pod that runs.
func (l *lab) claimOfPod(pod string) string {
	l.t.Helper()
	list, err := l.Client().ResourceV1().ResourceClaims(l.namespace).List(l.ctx, metav1.ListOptions{})
	l.must(err)
	for i := range list.Items {
		for _, r := range list.Items[i].Status.ReservedFor {
			if r.Name == pod {
				return list.Items[i].Name
			}
		}
	}
	l.t.Fatalf("pod %s has no claim", pod)
	return ""
}

// usedBy is what a claim has of its node's GPU, by the driver's own record.
func (l *lab) usedBy(n *cluster.Machine, claim string) uint64 {
	l.t.Helper()
	used, err := l.used(n)
	l.must(err)
	t := l.tenantOfClaim(n, claim)
	if t == nil {
		return 0
	}
	return used[tenantOn(t.Dir, 0)]
}

// tenantOfClaim is the agent's tenant of a claim, nil for none.
func (l *lab) tenantOfClaim(n *cluster.Machine, claim string) *control.Tenant {
	l.t.Helper()
	listing, err := l.listing(n)
	if err != nil {
		return nil
	}
	for i := range listing.Tenants {
		if t := &listing.Tenants[i]; t.Namespace == l.namespace && t.Claim == claim {
			return t
		}
	}
	return nil
}

// says waits until a claim's device has the agent's answer.
func (l *lab) says(claim string, status metav1.ConditionStatus, reasonIs string) {
	l.t.Helper()
	l.eventually("claim "+claim+" is "+reasonIs, func() string {
		now, err := l.Client().ResourceV1().ResourceClaims(l.namespace).Get(l.ctx, claim, metav1.GetOptions{})
		if err != nil || len(now.Status.Devices) != 1 {
			return fmt.Sprintf("%d devices say something, %v", len(now.Status.Devices), err)
		}
		c := v1alpha1.SuspensionAnswerOf(&now.Status.Devices[0])
		if _, ordered := now.Annotations[v1alpha1.SuspendAnnotation]; c == nil || c.Status != status || c.Reason != reasonIs || ordered != (status == metav1.ConditionTrue) {
			return fmt.Sprintf("it says %+v, ordered: %t", c, ordered)
		}
		return ""
	})
}

// offFor checks that a claim has nothing on its GPU, and for whom.
func (l *lab) offFor(n *cluster.Machine, claim, whom string) {
	l.t.Helper()
	l.eventually("it is off its GPU for "+whom, func() string {
		t := l.tenantOfClaim(n, claim)
		if t == nil || t.Suspended == nil {
			return "it is not suspended"
		}
		if s := t.Suspended; s.State != control.SuspensionOut || s.For != whom || s.Bytes < gib {
			return fmt.Sprintf("it is %+v", s)
		}
		return ""
	})
	if used := l.usedBy(n, claim); used != 0 {
		l.t.Errorf("it has %d bytes on its GPU", used)
	}
}

// stillThere checks that a pod is the one that it was, and runs.
func (l *lab) stillThere(p *corev1.Pod) {
	l.t.Helper()
	now, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, p.Name, metav1.GetOptions{})
	l.must(err)
	if now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount > 0 {
		l.t.Errorf("pod %s is not as it was: %s, %+v", p.Name, now.UID, now.Status)
	}
}

// unchanged has a sweeping pod compare its memory with what it wrote there.
func (l *lab) unchanged(name string) {
	l.t.Helper()
	l.exec(name, "main", "sh", "-c", "kill -TERM $(pidof gpubench)")
	var swept struct {
		Result  string `json:"result"`
		Steps   int    `json:"steps"`
		Equal   bool   `json:"equal"`
		Changed int    `json:"changed_bytes"`
	}
	l.eventually(name+" has compared its memory", func() string {
		text, err := l.PodLogs(l.ctx, l.namespace, name, "main")
		if err == nil {
			err = decode(text, &swept)
		}
		if err == nil && swept.Result == "" {
			return "it goes on"
		}
		return reason(err)
	})
	if !swept.Equal || swept.Steps == 0 {
		l.t.Errorf("%s: %+v", name, swept)
	}
}
