package program

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// refuse has the API server refuse what matches an expression, until the returned function is called.
func (f *fleet) refuse(name, resource string, operation admissionv1.OperationType, expression string) (end func()) {
	f.t.Helper()
	ctx, deny := f.t.Context(), admissionv1.Fail
	group := "resource.k8s.io"
	if strings.HasPrefix(resource, "pods") {
		group = ""
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &deny,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "!(" + expression + ")", Message: "refused by the test"}},
	}}
	policies, bindings := f.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), f.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return func() {
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// refusing waits until a policy is in force: the API server takes it up a moment after it was made.
func (f *fleet) refusing(what string, try func(ctx context.Context) error) {
	f.t.Helper()
	f.until(what+" is refused", func(ctx context.Context) (bool, string) {
		err := try(ctx)
		return err != nil && strings.Contains(err.Error(), "refused by the test"), fmt.Sprint(err)
	})
}

// A gang of which one claim is refused has no member bound and holds nothing, and is bound once the claim is let.
func TestGangWithARefusedClaim(t *testing.T) {
	f := newFleet(t, 2, 4)
	var members []*corev1.Pod
	for i := range 4 {
		members = append(members, gangOf(t, "four", 4, i, 60))
	}
	end := f.refuse("claim", "resourceclaims/status", admissionv1.Update, fmt.Sprintf("object.metadata.name == %q || object.metadata.name == 'probe'", *members[2].Spec.ResourceClaims[0].ResourceClaimName))
	probe := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: namespace}, Spec: share(8, 10)}
	claims := f.client.ResourceV1().ResourceClaims(namespace)
	made, err := claims.Create(t.Context(), probe, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.refusing("a claim's status", func(ctx context.Context) error {
		_, err := claims.UpdateStatus(ctx, made, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for _, member := range members {
		f.create(member)
	}
	f.says("four-2", "refused by the test")
	f.says("four-0", "refused by the test")
	// While the claim is refused, no claim keeps devices: what is written before the refusal is cleared.
	f.until("nothing is held", func(ctx context.Context) (bool, string) {
		all, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range all.Items {
			if all.Items[i].Status.Allocation != nil {
				return false, all.Items[i].Name + " has devices"
			}
		}
		return true, ""
	})
	pods, err := f.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			t.Errorf("%s is bound", pods.Items[i].Name)
		}
	}
	end()
	f.bound(4)
	if sums := f.check(); len(sums) != 4 {
		t.Errorf("four members are on %d GPUs", len(sums))
	}
}

// A gang of which one pod can never be bound is ended whole after the first members were bound. The members that are made in
// their place are not bound before all can be.
func TestGangWithARefusedBinding(t *testing.T) {
	f := newFleet(t, 2, 4)
	pods := f.client.CoreV1().Pods(namespace)
	f.create(pod("probe")) // of nobody
	end := f.refuse("binding", "pods/binding", admissionv1.Create, "request.name in ['four-2', 'probe']")
	f.refusing("a binding", func(ctx context.Context) error {
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Target: corev1.ObjectReference{Name: nodeName(0)}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	now := int64(0)
	if err := pods.Delete(t.Context(), "probe", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 4 {
		f.create(gangOf(t, "four", 4, i, 60))
	}
	for _, i := range []int{0, 1, 3} {
		name := fmt.Sprint("four-", i)
		f.until(name+" was bound and ends", func(ctx context.Context) (bool, string) {
			got, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil || got.Spec.NodeName == "" || got.DeletionTimestamp == nil {
				return false, fmt.Sprint(err)
			}
			for _, c := range got.Status.Conditions {
				if c.Type == corev1.DisruptionTarget {
					return c.Reason == "GangEnded" && strings.Contains(c.Message, "pod four-2 cannot be bound"), c.Message
				}
			}
			return false, "it has no condition"
		})
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	f.says("four-2", "gang default/four waits for members: 1 of 4 are there; gang was ended: pod four-2 cannot be bound")
	f.until("an event tells of it", func(ctx context.Context) (bool, string) {
		all, err := f.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=GangEnded,involvedObject.name=four-2"})
		return err == nil && len(all.Items) > 0, fmt.Sprint(err)
	})
	for _, i := range []int{0, 1, 3} {
		f.create(gangOf(t, "four", 4, i, 60))
	}
	f.says("four-0", "refused by the test")
	f.says("four-2", "refused by the test")
	f.bound(0)
	end()
	f.bound(4)
	if sums := f.check(); len(sums) != 4 {
		t.Errorf("four members are on %d GPUs", len(sums))
	}
}
