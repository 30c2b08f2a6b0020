package main

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// rangeCase is a namespace with a LimitRange, and a pod there.
type rangeCase struct {
	name string
	item corev1.LimitRangeItem
	// asks is what the pod says; nil is nothing.
	asks   corev1.ResourceList
	claims int
	// refusal is in the reason why there is no pod.
	refusal string
}

func rangeCases() []rangeCase {
	gpus := func(n string) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}
	}
	container := func(preset, most corev1.ResourceList) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: preset, Max: most}
	}
	return []rangeCase{
		{"default-for-who-says-nothing", container(gpus("1"), nil), nil, 1, ""},
		{"default-for-who-says-more", container(gpus("1"), nil), gpus("2"), 1, ""},
		{"default-for-who-wants-none", container(gpus("1"), nil), gpus("0"), 0, ""},
		{"max-is-also-a-default", container(nil, gpus("2")), nil, 1, ""},
		{"at-max", container(gpus("0"), gpus("2")), gpus("2"), 1, ""},
		{"above-max", container(gpus("0"), gpus("2")), gpus("3"), 0, `LimitRange "team" allows 2`},
		{"max-of-pods", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: gpus("2")}, gpus("2"), 1, ""},
		{"above-max-of-pods", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: gpus("2")}, gpus("3"), 0, `LimitRange "team" allows 2`},
		{"min", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: gpus("1")}, gpus("1"), 0, `LimitRange "team" has a min`},
	}
}

// Kubernetes applies LimitRanges to pods before the webhook translates them, again afterwards, and once more in the end.
// Those of translated resources hold as if the pods still had them, and add nothing to what was translated.
func TestLimitRanges(t *testing.T) {
	if _, err := plane.Components(checkout); err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b, err := openIdle(ctx, options{root: checkout, build: checkout + "/build"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	// The LimitRanges are there before the webhook begins and before the API server looks for any, so both know them.
	for _, c := range rangeCases() {
		if err := b.makeNamespace(ctx, c.name); err != nil {
			t.Fatal(err)
		}
		team := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{c.item}}}
		if _, err := b.client.CoreV1().LimitRanges(c.name).Create(ctx, team, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.publish(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.startWebhook(ctx, "{nvidia: {}}"); err != nil {
		t.Fatal(err)
	}
	for _, c := range rangeCases() {
		t.Run(c.name, func(t *testing.T) {
			pod := podOf(kind{name: "range"}, 0)
			pod.Namespace, pod.Spec.Containers[0].Resources.Limits = c.name, c.asks
			made, err := b.client.CoreV1().Pods(c.name).Create(ctx, pod, metav1.CreateOptions{})
			switch {
			case c.refusal != "":
				if err == nil || !strings.Contains(err.Error(), c.refusal) {
					t.Errorf("the pod passed, or was refused without %q: %v", c.refusal, err)
				}
			case err != nil:
				t.Error(err)
			case len(made.Spec.ResourceClaims) != c.claims:
				t.Errorf("the pod has claims %v and limits %v, and not %d claims", made.Spec.ResourceClaims, made.Spec.Containers[0].Resources.Limits, c.claims)
			}
		})
	}
}
