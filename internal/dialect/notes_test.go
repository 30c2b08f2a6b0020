package dialect

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// noted is a pod with these annotations.
func noted(annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Annotations = annotations
	return pod
}

// sentBy says which pods a condition sends that are created, and which that are changed.
func sentBy(t *testing.T, condition string) func(before, after *corev1.Pod) bool {
	t.Helper()
	matcher := compile(t, condition)
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	return func(before, after *corev1.Pod) bool {
		operation := admission.Update
		versioned := &admission.VersionedAttributes{VersionedObject: after, VersionedKind: kind}
		if before == nil {
			operation = admission.Create
			versioned.Attributes = admission.NewAttributesRecord(after, nil, kind, "space", "name", corev1.SchemeGroupVersion.WithResource("pods"), "", operation, nil, false, &user.DefaultInfo{Name: "somebody"})
		} else {
			versioned.VersionedOldObject = before
			versioned.Attributes = admission.NewAttributesRecord(after, before, kind, "space", "name", corev1.SchemeGroupVersion.WithResource("pods"), "", operation, nil, false, &user.DefaultInfo{Name: "somebody"})
		}
		result := matcher.Match(context.Background(), versioned, nil, nil)
		if result.Error != nil {
			t.Fatal(result.Error)
		}
		return result.Matches
	}
}

// TestNoteCondition says which pods are looked at when they are created, and which updates.
func TestNoteCondition(t *testing.T) {
	sent := sentBy(t, NoteCondition())
	type notes = map[string]string
	for _, name := range []string{
		v1alpha1.ClaimsAnnotation, v1alpha1.ModelsAnnotation, v1alpha1.PreferAnnotation, v1alpha1.GangAnnotation,
		v1alpha1.GangSizeAnnotation, v1alpha1.GangMinimumAnnotation, v1alpha1.GangTopologyAnnotation, v1alpha1.GangShareGPUsAnnotation,
	} {
		with, other := noted(notes{name: "a", "z": "1"}), noted(notes{name: "b"})
		if !sent(nil, with) {
			t.Errorf("a pod that is created with %s is not looked at", name)
		}
		for what, c := range map[string]struct {
			before, after *corev1.Pod
			want          bool
		}{
			"adding":                            {noted(notes{"z": "1"}), with, true},
			"adding the first":                  {noted(nil), with, true},
			"changing":                          {with, other, true},
			"removing":                          {with, noted(notes{"z": "1"}), true},
			"removing the last of all":          {other, noted(nil), true},
			"changing another annotation than":  {with, noted(notes{name: "a", "z": "2"}), false},
			"adding another annotation beside":  {other, noted(notes{name: "b", "z": "2"}), false},
			"taking another annotation away by": {with, noted(notes{name: "a"}), false},
		} {
			if got := sent(c.before, c.after); got != c.want {
				t.Errorf("%s %s: sent %v", what, name, got)
			}
		}
	}
	for _, pod := range []*corev1.Pod{noted(nil), noted(notes{v1alpha1.TemplatesAnnotation: "{}"}), noted(notes{"divvy.dev/gangs": "a"})} {
		if sent(nil, pod) || sent(noted(nil), pod) {
			t.Errorf("a pod with %v is looked at", pod.Annotations)
		}
	}
}

// TestQueuedCondition says the same of labels that queues read, and of claims.
func TestQueuedCondition(t *testing.T) {
	claiming := labelled("space", "")
	claiming.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	for condition, queued := range map[string]bool{NoteCondition(): false, QueuedCondition(): true} {
		sent := sentBy(t, condition)
		for _, label := range []string{"queue", "quota", "movable"} {
			plain, with, other := labelled("space", ""), labelled("space", "", label, "a"), labelled("space", "", label, "b")
			if !sent(nil, with) || !sent(plain, with) || !sent(with, plain) || !sent(with, other) {
				t.Errorf("label %s is not looked at", label)
			}
			if sent(with, labelled("space", "n1", label, "a", "more", "x")) {
				t.Errorf("label %s is looked at while it stays", label)
			}
		}
		if sent(nil, labelled("space", "")) || sent(labelled("space", ""), labelled("space", "", "more", "x")) || sent(claiming, claiming) {
			t.Error("pods are looked at that say nothing")
		}
		if sent(nil, claiming) != queued {
			t.Errorf("a pod with claims is looked at: %v, want %v", !queued, queued)
		}
	}
}

// TestCheckNotes refuses what nobody could follow.
func TestCheckNotes(t *testing.T) {
	ours := newScheduled(t, "{plain: {}}")
	pod, _, err := described(t, ours, limitsOf(t, "divvy.dev/gpu-memory: 1Gi"), numbered(sixteen))
	if err != nil {
		t.Fatal(err)
	}
	weighted, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmaxWeight: 5\n" + scheduled + "dialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		by     *Translator
		change func(*corev1.Pod)
		want   string
	}{
		"as translated":                 {ours, func(*corev1.Pod) {}, ""},
		"no scheduler runs":             {newTranslator(t, "{plain: {}}"), func(*corev1.Pod) {}, `only Divvy's scheduler makes, and the pod is for scheduler "divvy-scheduler"`},
		"another scheduler":             {ours, func(p *corev1.Pod) { p.Spec.SchedulerName = "theirs" }, `for scheduler "theirs"`},
		"no scheduler":                  {ours, func(p *corev1.Pod) { p.Spec.SchedulerName = "" }, `for scheduler ""`},
		"forged":                        {ours, func(p *corev1.Pod) { p.Annotations[v1alpha1.ClaimsAnnotation] = "{}" }, "never describes 0 claims"},
		"names that are not described":  {ours, func(p *corev1.Pod) { p.Spec.ResourceClaims = nil }, "describes claims that the pod names, but not divvy-"},
		"a weight that is allowed":      {weighted, withWeight(t, 5), ""},
		"a weight that is not":          {weighted, withWeight(t, 6), "weight 6 is more than the 5"},
		"models":                        {ours, note(v1alpha1.ModelsAnnotation, "A100, H100"), ""},
		"a model that is no name":       {ours, note(v1alpha1.ModelsAnnotation, `A100"`), "annotation divvy.dev/gpu-models: "},
		"a model twice":                 {ours, note(v1alpha1.ModelsAnnotation, "A100,a100"), "named twice"},
		"too many models":               {ours, note(v1alpha1.ModelsAnnotation, strings.Repeat("A,", 20)), "annotation divvy.dev/gpu-models: "},
		"a preference":                  {ours, note(v1alpha1.PreferAnnotation, "most-capable"), ""},
		"a preference of two sorts":     {ours, note(v1alpha1.PreferAnnotation, "most-capable,A100"), "most-capable stands alone"},
		"a preference of several lines": {ours, note(v1alpha1.PreferAnnotation, "A\nB"), "annotation divvy.dev/gpu-prefer: "},
	} {
		changed := pod.DeepCopy()
		c.change(changed)
		_, err := c.by.CheckNotes(changed)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func note(name, text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[name] = text }
}

// withWeight has the claim that a pod describes ask for a weight.
func withWeight(t *testing.T, weight int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		config, err := v1alpha1.EncodeShareConfig(v1alpha1.ShareConfig{Weight: weight})
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations[v1alpha1.ClaimsAnnotation] = strings.Replace(p.Annotations[v1alpha1.ClaimsAnnotation], `"requests":[`,
			`"config":[{"requests":["gpu"],"opaque":{"driver":"divvy.dev","parameters":`+string(config)+`}}],"requests":[`, 1)
	}
}

func TestWhatLasts(t *testing.T) {
	for _, name := range []string{v1alpha1.ClaimsAnnotation, v1alpha1.ModelsAnnotation, v1alpha1.PreferAnnotation} {
		one, other, none := noted(map[string]string{name: "1", "a": "1"}), noted(map[string]string{name: "2"}), noted(map[string]string{"a": "2"})
		for _, c := range [][2]*corev1.Pod{{one, other}, {one, none}, {none, one}, {noted(nil), one}, {noted(map[string]string{name: ""}), none}} {
			if err := CheckLasting(c[0], c[1]); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), name+" does not change") {
				t.Errorf("%v becomes %v: %v", c[0].Annotations, c[1].Annotations, err)
			}
		}
		if err := CheckLasting(one, noted(map[string]string{name: "1", "b": "1"})); err != nil {
			t.Error(err)
		}
	}
	if err := CheckLasting(noted(map[string]string{v1alpha1.GangSizeAnnotation: "2"}), noted(map[string]string{v1alpha1.GangSizeAnnotation: "3"})); err != nil {
		t.Errorf("a gang that grows: %v", err)
	}
}

// TestModelsNeedTheScheduler: who accepts some models only does not get others from a scheduler that does not look.
func TestModelsNeedTheScheduler(t *testing.T) {
	for _, c := range []struct{ config, scheduler, name, text, want string }{
		{scheduled, "", v1alpha1.ModelsAnnotation, "A100", ""},
		{scheduled, "theirs", v1alpha1.ModelsAnnotation, "A100", "only scheduler divvy-scheduler chooses GPUs by their models, and the pod names theirs"},
		{scheduled, "theirs", v1alpha1.ModelsAnnotation, " ", ""},
		{scheduled, "theirs", v1alpha1.PreferAnnotation, "A100", ""},
		{scheduled, "", v1alpha1.PreferAnnotation, "A100,", "gpu-prefer"},
		{"", "", v1alpha1.ModelsAnnotation, "A100", "it does not run here"},
		{"", "", v1alpha1.PreferAnnotation, "most-capable", ""},
		{"mode: slots\n", "", v1alpha1.ModelsAnnotation, "A100", ""},
		{"mode: slots\n", "", v1alpha1.ModelsAnnotation, "A100,", "gpu-models"},
	} {
		translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\n" + c.config + "dialects: {plain: {}}"))
		if err != nil {
			t.Fatal(err)
		}
		pod := limitsOf(t, "divvy.dev/gpu-memory: 1Gi")
		pod.Spec.SchedulerName, pod.Annotations = c.scheduler, map[string]string{c.name: c.text}
		_, err = translator.Translate(pod, numbered(sixteen))
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestMakerCondition exempts what the scheduler makes as a pod describes it, and nothing else.
func TestMakerCondition(t *testing.T) {
	translator := newScheduled(t, "{}")
	matcher := compile(t, translator.MakerCondition())
	kind := resourcev1.SchemeGroupVersion.WithKind("ResourceClaim")
	const scheduler, described = "system:serviceaccount:divvy-system:divvy-scheduler", "divvy-abcdefgh234567ab"
	for _, c := range []struct {
		name, claim string
		want        bool
	}{
		{scheduler, described, false},
		{"system:serviceaccount:space:divvy-scheduler", described, true},
		{"divvy-scheduler", described, true},
		{"system:anonymous", described, true},
		{scheduler, "web-extended-resources-abcde", true},
		{scheduler, "divvy-pod-extended-resources-abcde", true},
		{scheduler, described + "a", true},
	} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: c.claim}}
		attributes := admission.NewAttributesRecord(claim, nil, kind, "space", c.claim, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "",
			admission.Create, nil, false, &user.DefaultInfo{Name: c.name})
		result := matcher.Match(context.Background(), &admission.VersionedAttributes{Attributes: attributes, VersionedObject: claim, VersionedKind: kind}, nil, nil)
		if result.Error != nil || result.Matches != c.want {
			t.Errorf("claim %s of user %q: reviewed %v, %v", c.claim, c.name, result.Matches, result.Error)
		}
	}
	if got := newTranslator(t, "{}").MakerCondition(); got != "" {
		t.Errorf("without a scheduler: %s", got)
	}
}
