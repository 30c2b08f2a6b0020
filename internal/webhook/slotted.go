package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// nodeStore returns where nodes are put whose agents say what they have, in mode slots. Nodes change all the time, and what they
// have hardly ever.
func (f *fleet) nodeStore() *store[string] {
	put := func(node brief[string]) {
		if f.said[node.name] == node.of {
			return
		}
		f.said[node.name] = node.of
		f.slices[node.name] = publishedSlice{Published: dialect.PublishedOfNode(node.name, node.of)}
	}
	return &store[string]{
		read: func(object metav1.Object) (string, error) {
			node, err := as[*corev1.Node](object)
			if err != nil {
				return "", err
			}
			return node.Annotations[v1alpha1.GPUsAnnotation], nil
		},
		put: func(node brief[string]) {
			if !f.says(node) {
				f.change(func() { put(node) })
			}
		},
		drop: func(node brief[string]) {
			f.change(func() {
				delete(f.said, node.name)
				delete(f.slices, node.name)
			})
		},
		replace: func(all []brief[string]) {
			f.change(func() {
				clear(f.said)
				clear(f.slices)
				for _, node := range all {
					put(node)
				}
			})
		},
	}
}

// says reports whether a node is known to say this.
func (f *fleet) says(node brief[string]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said[node.name] == node.of
}

// slottedStore returns where pods are put in mode slots. Each is counted as a claim of its name is in mode claims.
func (a *accounts) slottedStore() *store[dialect.Counted] {
	return &store[dialect.Counted]{
		named: true,
		read: func(object metav1.Object) (dialect.Counted, error) {
			pod, err := as[*corev1.Pod](object)
			if err != nil {
				return dialect.Counted{}, err
			}
			return dialect.CountedOfPod(pod), nil
		},
		put: a.put, drop: a.drop, keep: a.keep,
	}
}

// validateSlotted checks what a pod that is created asks in mode slots, as it is stored, and holds the quotas of its namespace.
func (j *judge) validateSlotted(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, "", "pods") {
		return admission{}, nil
	}
	pod := &corev1.Pod{}
	if err := readObject(request, pod); err != nil {
		return admission{}, err
	}
	inventory := j.fleet.inventory()
	translations := inventory.translations
	translations.Handlers, translations.Ranges, translations.Counting = j.runtimes.all(), j.ranges.of(request.Namespace), inventory.sizes
	asked, err := j.translator.CheckSlotted(pod, translations)
	if err != nil || asked == nil {
		return admission{}, err
	}
	// The quota comes last: a pod that it lets through counts.
	dryRun := request.DryRun != nil && *request.DryRun
	return admission{}, j.quotas.checkSlotted(request.Namespace, pod.Name, dialect.CountedOfRequest(asked), inventory.sizes, dryRun)
}

// checkSlotted checks a pod of mode slots, and counts it from now on unless it is a dry run.
func (q *quotas) checkSlotted(namespace, name string, asked dialect.Counted, sizes *dialect.Sizes, dryRun bool) error {
	held := q.held.of(namespace)
	if len(held) == 0 {
		return nil
	}
	use, _ := asked.Use(sizes)
	return q.accounts.checkClaim(namespace, name, held, use, !dryRun && name != "")
}

// validateBinding refuses a Binding without GPUs for a pod that asks for some. The pod is read anew: what was followed may be
// behind who binds it.
func (j *judge) validateBinding(ctx context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	binds := request.Resource.Resource == "pods" && request.SubResource == "binding" || request.Resource.Resource == "bindings"
	if request.Operation != admissionv1.Create || request.Resource.Group != "" || !binds {
		return admission{}, nil
	}
	binding := &corev1.Binding{}
	if err := readObject(request, binding); err != nil {
		return admission{}, err
	}
	if _, ok := binding.Annotations[v1alpha1.AssignmentAnnotation]; ok {
		return admission{}, nil
	}
	pod, err := j.specs.client.CoreV1().Pods(request.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admission{}, nil // there is nothing to bind, as the API server will say
	}
	if err != nil {
		return admission{}, fmt.Errorf("read the pod that is bound: %w", err)
	}
	return admission{}, j.translator.CheckBinding(pod)
}

// slotted are the webhooks of mode slots that change nothing. While the server does not answer, pods with GPUs are refused, and so is
// binding by those who bind them. Whoever else binds a pod is let through: that is nearly always a pod without a GPU, and agents
// refuse the others.
func slotted(client func(path string) admissionregistrationv1.WebhookClientConfig, translator *dialect.Translator) []admissionregistrationv1.ValidatingWebhook {
	hook := func(name, path string, timeout int32, policy admissionregistrationv1.FailurePolicyType, checked []admissionregistrationv1.RuleWithOperations, conditions ...admissionregistrationv1.MatchCondition) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name + "." + v1alpha1.Domain, ClientConfig: client(path), Rules: checked,
			FailurePolicy: ptr(policy), MatchPolicy: ptr(admissionregistrationv1.Equivalent),
			SideEffects:             ptr(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr(timeout),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         conditions,
		}
	}
	bindings := rules("", "pods/binding")
	bindings[0].Resources = append(bindings[0].Resources, "bindings") // its older form
	none := condition("gives-no-gpu", dialect.BindingCondition())[0]
	all := []admissionregistrationv1.ValidatingWebhook{
		hook("slots", PathValidateSlotted, 10, admissionregistrationv1.Fail, rules("", "pods"), condition("concerns-divvy", dialect.SlottedCondition())...),
	}
	if by := translator.BinderCondition(); by != "" {
		all = append(all, hook("bindings", PathValidateBindings, 10, admissionregistrationv1.Fail, bindings, append(condition("by-a-binder", by), none)...))
	}
	return append(all, hook("other-bindings", PathValidateBindings, othersSeconds, admissionregistrationv1.Ignore, bindings,
		append(condition("by-another", translator.OthersCondition()), none)...))
}

// othersSeconds is how long a Binding of a scheduler waits that binds no pods with GPUs.
const othersSeconds = 2
