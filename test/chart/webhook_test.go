package chart_test

import (
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/webhook"
	"github.com/divvy-gpu/divvy/test/chart/render"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the chart tells the API server is what the webhook's code says, whatever is turned on.
func TestWebhookConfigurationsAreThoseOfTheCode(t *testing.T) {
	for _, dialects := range []string{
		"{plain: {}}\nmode: slots", "{plain: {}, hami: {}}\nmode: slots\nslots: {binders: [\"system:serviceaccount:here:binder\", a]}", "{plain: {}}\nmode: slots\nschedulerName: mine", "{plain: {}}\nmode: slots\n" + extenderOnly,
		"{plain: {}}", "{plain: {}, hami: {}, kai: {}, gpushare: {}}", "{kai: {}, plain: null}", "{nvidia: {}, volcano: {}, vcuda: {}}", "{plain: {}}\nnvidiaClass: true", "{plain: {}}\nscheduler: {enabled: true}", "{plain: {}}\nscheduler: {replacesDefault: true}\nnvidiaClass: true", "{plain: {}}\nscheduler: {enabled: true, queues: false}"} {
		documents := rendered(t, newest, "dialects: "+dialects)
		translator := translatorOf(t, documents)
		mutating, validating := webhook.Configurations("divvy-webhook", namespace, "divvy-webhook", translator)
		changing := find[*admissionregistrationv1.MutatingWebhookConfiguration](t, documents)[0].Webhooks
		if len(changing) != len(mutating.Webhooks) {
			t.Fatalf("%d mutating webhooks, and the code says %d", len(changing), len(mutating.Webhooks))
		}
		for i, want := range mutating.Webhooks {
			if got := bare(changing[i].NamespaceSelector, &changing[i]); !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: %+v\nand the code says\n%+v", dialects, got, want)
			}
		}
		got := find[*admissionregistrationv1.ValidatingWebhookConfiguration](t, documents)[0]
		if len(got.Webhooks) != len(validating.Webhooks) {
			t.Fatalf("%d validating webhooks, and the code says %d", len(got.Webhooks), len(validating.Webhooks))
		}
		for _, want := range validating.Webhooks {
			i := slices.IndexFunc(got.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == want.Name })
			if i < 0 {
				t.Fatalf("no webhook %s", want.Name)
			}
			got.Webhooks[i].NamespaceSelector = nil
			if !equality.Semantic.DeepEqual(got.Webhooks[i], want) {
				t.Errorf("%+v\nand the code says\n%+v", got.Webhooks[i], want)
			}
		}
	}
}

// bare takes away what the chart adds: the webhook's own namespace does not wait for the webhook.
func bare(selector *metav1.LabelSelector, hook *admissionregistrationv1.MutatingWebhook) admissionregistrationv1.MutatingWebhook {
	hook.NamespaceSelector = nil
	if selector == nil || len(selector.MatchExpressions) != 1 || !slices.Equal(selector.MatchExpressions[0].Values, []string{namespace}) {
		hook.Name = "without its namespace's exception"
	}
	return *hook
}

func translatorOf(t *testing.T, documents []render.Document) *dialect.Translator {
	t.Helper()
	text := configured(t, documents, "webhook.yaml")
	translator, err := dialect.NewTranslator([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return translator
}

// configured is the configuration of that name that the chart makes.
func configured(t *testing.T, documents []render.Document, name string) string {
	t.Helper()
	for _, config := range find[*corev1.ConfigMap](t, documents) {
		if text, ok := config.Data[name]; ok {
			return text
		}
	}
	t.Fatalf("no configuration %s", name)
	return ""
}
