package controller

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What is kept of an object has a bound, whatever its maker wrote.
func TestKeptOfLargeObjects(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	var values []string
	var claims []corev1.PodResourceClaim
	for i := range 4000 {
		name := fmt.Sprintf("template-%d", i)
		values, claims = append(values, name), append(claims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
	}
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpNotIn, Values: values}}}}
	waiting := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		made := &corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: claims[:1]}, Status: waiting}
		change(made)
		return made
	}
	for name, object := range map[string]interface{ Size() int }{
		"annotation": pod(func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.TemplatesAnnotation: long} }),
		"affinity": pod(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}),
		"tolerations": pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: long}} }),
		"claims":      pod(func(p *corev1.Pod) { p.Spec.ResourceClaims = claims }),
		"finalizers":  pod(func(p *corev1.Pod) { p.Finalizers = values }),
		"owners":      pod(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Name: long}} }),
		"claim": &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "a", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: long}},
		}}}},
		"template": &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "divvy-forged", Labels: map[string]string{v1alpha1.ManagedLabel: v1alpha1.ManagedBy, "a": long}, Annotations: map[string]string{"a": long}},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "a", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: long}},
			}}}},
		},
	} {
		if _, err := lighten(object, v1alpha1.SchedulerName); err != nil {
			t.Fatal(err)
		}
		if object.Size() > largestKept {
			t.Errorf("%s: %d bytes are kept, more than %d", name, object.Size(), largestKept)
		}
		if pod, ok := object.(*corev1.Pod); ok && len(pod.Spec.ResourceClaims) == 0 {
			t.Errorf("%s: the templates that the pod names are forgotten", name)
		}
	}
}

// What an honest pod carries is read from the API server if it is too long to be kept.
func TestMakesWhatIsTooLongToKeep(t *testing.T) {
	m := newMaking(t)
	pod := carrying(t, "long", "4Gi")
	pod.Annotations[v1alpha1.TemplatesAnnotation] += strings.Repeat(" ", largestKept)
	m.create(pod)
	m.serveNext()
	m.templatesAre(nameIn(pod))
}

// TestSilentForTheScheduler: pods that Divvy's scheduler places are not explained here, also if much of them is dropped.
func TestSilentForTheScheduler(t *testing.T) {
	name, waiting := "gpu", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	for what, c := range map[string]struct {
		scheduler, note, ours string
		more                  int
		explained             bool
	}{
		"the stock scheduler's":                    {scheduler: "default-scheduler", explained: true},
		"somebody's":                               {explained: true},
		"the scheduler's":                          {scheduler: v1alpha1.SchedulerName},
		"the scheduler's, with claims by hand":     {scheduler: v1alpha1.SchedulerName, more: 4000},
		"the stock scheduler's, replaced by ours":  {scheduler: "default-scheduler", ours: "default-scheduler"},
		"one that describes claims":                {scheduler: "default-scheduler", note: "{}"},
		"one that describes more than can be kept": {scheduler: "default-scheduler", note: strings.Repeat("x", 200<<10), more: 4000},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: c.scheduler, ResourceClaims: []corev1.PodResourceClaim{{Name: name, ResourceClaimName: &name}}}, Status: waiting}
		if c.note != "" {
			pod.Annotations = map[string]string{v1alpha1.ClaimsAnnotation: c.note}
		}
		for i := range c.more {
			template := fmt.Sprint("template-", i)
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: template, ResourceClaimTemplateName: &template})
		}
		if _, err := lighten(pod, cmp.Or(c.ours, v1alpha1.SchedulerName)); err != nil {
			t.Fatal(err)
		}
		if index, err := waitingIndex(pod); err != nil || (len(index) > 0) != c.explained {
			t.Errorf("a pod of %s: explained %v, %v", what, index, err)
		}
	}
}
