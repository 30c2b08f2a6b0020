package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// schedulerRuns are the objects of a scheduler that leads and alone gives GPUs.
func schedulerRuns() (*appsv1.Deployment, *coordinationv1.Lease, *admissionregistrationv1.ValidatingAdmissionPolicy) {
	meta := metav1.ObjectMeta{Namespace: system, Name: schedulerName}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2))}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2}},
		&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("divvy-scheduler-1_5f0e"), RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: ptr.To(int32(15)),
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: allocationsName}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionregistrationv1.Validation{{
				Expression: `!variables.ours || request.userInfo.username in ["system:serviceaccount:divvy-system:divvy-scheduler"]`,
			}},
		}}
}

func TestScheduler(t *testing.T) {
	type objects struct {
		deployment *appsv1.Deployment
		lease      *coordinationv1.Lease
		policy     *admissionregistrationv1.ValidatingAdmissionPolicy
	}
	for name, c := range map[string]struct {
		change func(o *objects) []runtime.Object
		want   []string
	}{
		"all is well": {func(*objects) []runtime.Object { return nil }, []string{
			"ok the scheduler: 2 of 2", "ok who schedules: divvy-scheduler-1 leads", "ok who gives GPUs: system:serviceaccount:divvy-system:divvy-scheduler",
		}},
		"one of two is ready": {func(o *objects) []runtime.Object { o.deployment.Status.ReadyReplicas = 1; return nil }, []string{
			"warn the scheduler: 1 of 2", "ok who schedules", "ok who gives",
		}},
		"it does not run": {func(o *objects) []runtime.Object {
			o.deployment.Status.ReadyReplicas = 0
			o.lease.Spec.RenewTime.Time = time.Now().Add(-time.Hour)
			return nil
		}, []string{"fail the scheduler: 0 of 2", "fail who schedules: divvy-scheduler-1 led, and has not renewed its lease for 1h0m", "ok who gives"}},
		"it runs and does not lead": {func(o *objects) []runtime.Object { o.lease.Spec.HolderIdentity = ptr.To(""); return nil }, []string{
			"ok the scheduler", "fail who schedules: nobody has lease divvy-scheduler", "ok who gives",
		}},
		"it has never led": {func(o *objects) []runtime.Object { o.lease.Name = "another"; return nil }, []string{
			"ok the scheduler", "fail who schedules: no replica has led yet", "ok who gives",
		}},
		"two writers": {func(o *objects) []runtime.Object {
			o.policy.Spec.Validations[0].Expression = `x || request.userInfo.username in ["a","system:kube-scheduler"]`
			return nil
		}, []string{"ok the scheduler", "ok who schedules", "warn who gives GPUs: a and system:kube-scheduler: in the same moment"}},
		"another policy": {func(o *objects) []runtime.Object { o.policy.Spec.Validations = nil; return nil }, []string{
			"ok the scheduler", "ok who schedules", "warn who gives GPUs: policy divvy-allocations names nobody",
		}},
		"not installed": {func(o *objects) []runtime.Object { o.deployment.Name = "another"; return nil }, []string{"ok who gives"}},
		"not installed, and pods wait": {func(o *objects) []runtime.Object {
			o.deployment.Name = "another"
			waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"}, Spec: corev1.PodSpec{SchedulerName: schedulerName}}
			runs, other := waits.DeepCopy(), waits.DeepCopy()
			runs.Name, runs.Spec.NodeName = "runs", "n1"
			other.Name, other.Spec.SchedulerName = "other", "default-scheduler"
			return []runtime.Object{waits, runs, other}
		}, []string{"fail the scheduler: it is not installed in divvy-system, and 1 pods wait for it, such as train of namespace team", "ok who gives"}},
	} {
		t.Run(name, func(t *testing.T) {
			var o objects
			o.deployment, o.lease, o.policy = schedulerRuns()
			more := c.change(&o)
			client := fake.NewClientset(append(more, o.deployment, o.lease, o.policy)...)
			checks := Cluster{Client: client, Namespace: system}.scheduler(context.Background())
			var lines []string
			for _, check := range checks {
				lines = append(lines, fmt.Sprintf("%s %s: %s", check.Status, check.Name, check.Found))
				if check.Status != "ok" && check.Next == "" {
					t.Errorf("%s: nothing to do about it", check.Name)
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
