package webhook

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// manager is the name under which the server's writes are recorded.
const manager = v1alpha1.ManagedBy

// DefaultConfiguration is the default name of both webhook configurations.
const DefaultConfiguration = "divvy-webhook"

// Configurations returns the webhook configurations, which tell the API server which objects to send where. Each
// webhook's conditions select objects that concern Divvy, so that no other object waits for the server. The trusted
// authorities are left out: the server or cert-manager adds them.
//
// While the server does not answer, the objects that it must check are refused: pods in an enabled dialect would run
// without a GPU, and claims would exceed their quota. Pods that use claims pass, because the agent refuses the same
// faults.
func Configurations(name, namespace, service string, translator *dialect.Translator) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	client := clientsOf(namespace, service)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "webhook"}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pods." + v1alpha1.Domain, ClientConfig: client(PathMutatePods), Rules: rules("", "pods"),
			FailurePolicy: ptr(admissionregistrationv1.Fail), MatchPolicy: ptr(admissionregistrationv1.Equivalent),
			SideEffects:             ptr(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy:      ptr(admissionregistrationv1.IfNeededReinvocationPolicy),
			TimeoutSeconds:          ptr[int32](10),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         condition("names-an-enabled-dialect", translator.Condition()),
		}},
	}
	if translator.Slots() {
		return mutating, &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
			ObjectMeta: meta, Webhooks: slotted(client, translator),
		}
	}
	for _, hook := range []struct{ name, path, resource, condition string }{
		{"claims." + v1alpha1.Domain, PathMutateClaims, "resourceclaims", translator.Classes().AdminClaimCondition()},
		{"templates." + v1alpha1.Domain, PathMutateTemplates, "resourceclaimtemplates", translator.Classes().AdminTemplateCondition()},
	} {
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: hook.name, ClientConfig: client(hook.path), Rules: rules(resourcev1.GroupName, hook.resource),
			FailurePolicy: ptr(admissionregistrationv1.Fail), MatchPolicy: ptr(admissionregistrationv1.Equivalent),
			SideEffects:             ptr(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr[int32](10),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         condition("asks-for-admin-access", hook.condition),
		})
	}
	return mutating, &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: meta, Webhooks: validating(client, translator),
	}
}

// clientsOf says where a path of the server is.
func clientsOf(namespace, service string) func(path string) admissionregistrationv1.WebhookClientConfig {
	return func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: service, Path: &path, Port: ptr[int32](443)},
		}
	}
}

// validating are the webhooks that change nothing.
func validating(client func(path string) admissionregistrationv1.WebhookClientConfig, translator *dialect.Translator) []admissionregistrationv1.ValidatingWebhook {
	var all []admissionregistrationv1.ValidatingWebhook
	for _, hook := range []struct {
		name, path, group, resource string
		policy                      admissionregistrationv1.FailurePolicyType
		conditions                  []admissionregistrationv1.MatchCondition
	}{
		{"claims." + v1alpha1.Domain, PathValidateClaims, resourcev1.GroupName, "resourceclaims", admissionregistrationv1.Fail,
			append(condition("concerns-divvy", translator.Classes().ClaimCondition()), byOthers(translator)...)},
		{"templates." + v1alpha1.Domain, PathValidateTemplates, resourcev1.GroupName, "resourceclaimtemplates", admissionregistrationv1.Fail,
			condition("concerns-divvy", translator.Classes().TemplateCondition())},
		{"containers." + v1alpha1.Domain, PathValidatePods, "", "pods", admissionregistrationv1.Ignore, condition("concerns-divvy", dialect.ContainerCondition())},
		{"annotations." + v1alpha1.Domain, PathValidateNotes, "", "pods", admissionregistrationv1.Fail, condition("concerns-divvy", noteCondition(translator))},
	} {
		checked := rules(hook.group, hook.resource)
		if hook.path == PathValidateNotes {
			checked[0].Operations = append(checked[0].Operations, admissionregistrationv1.Update)
		}
		all = append(all, admissionregistrationv1.ValidatingWebhook{
			Name: hook.name, ClientConfig: client(hook.path), Rules: checked,
			FailurePolicy: ptr(hook.policy), MatchPolicy: ptr(admissionregistrationv1.Equivalent),
			SideEffects:             ptr(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr[int32](10),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         hook.conditions,
		})
	}
	if translator.Queues() {
		all = append(all, ofQueues(client))
	}
	return all
}

// ofQueues is the webhook of queues. While it does not answer queues pass, because the scheduler finds the same faults.
func ofQueues(client func(path string) admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: v1alpha1.QueueResources + "." + v1alpha1.Domain, ClientConfig: client(PathValidateQueues),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{queueResource.Group}, APIVersions: []string{queueResource.Version}, Resources: []string{queueResource.Resource},
				Scope: ptr(admissionregistrationv1.ClusterScope),
			},
		}},
		FailurePolicy: ptr(admissionregistrationv1.Ignore), MatchPolicy: ptr(admissionregistrationv1.Equivalent),
		SideEffects:             ptr(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr[int32](10),
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         condition("concerns-divvy", dialect.QueueCondition()),
	}
}

// noteCondition selects the pods whose annotations and labels are checked.
func noteCondition(translator *dialect.Translator) string {
	if translator.Queues() {
		return dialect.QueuedCondition()
	}
	return dialect.NoteCondition()
}

func rules(group, resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource},
			Scope: ptr(admissionregistrationv1.NamespacedScope),
		},
	}}
}

func condition(name, expression string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: name, Expression: expression}}
}

// byOthers is the condition that somebody else than Divvy's scheduler asks: the claims that it makes were checked and
// counted with their pods. There is none where it does not run.
func byOthers(translator *dialect.Translator) []admissionregistrationv1.MatchCondition {
	expression := translator.MakerCondition()
	if expression == "" {
		return nil
	}
	return condition("not-by-the-scheduler", expression)
}

func ptr[T any](value T) *T { return &value }
