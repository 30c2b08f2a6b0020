package dialect

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	k8svalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

func slotted(translator *Translator) *Translator {
	other := *translator
	other.mode, other.scheduler = ModeSlots, "divvy-scheduler"
	return &other
}

// named reports whether the API server, which looks after the webhook, would take the names of a pod's containers. Mode
// slots needs them.
func named(pod *corev1.Pod) bool {
	known := map[string]bool{}
	for _, ref := range containersOf(pod) {
		name := ref.of(pod).Name
		if known[name] || len(k8svalidation.IsDNS1123Label(name)) > 0 {
			return false
		}
		known[name] = true
	}
	return true
}

// checkSlotted translates a pod in mode slots and checks that it asks the same as the templates of mode claims do.
func checkSlotted(t testing.TB, translator *Translator, pod *corev1.Pod, inventory Inventory, templates []resourcev1.ResourceClaimTemplate) {
	t.Helper()
	translator = slotted(translator)
	before := pod.DeepCopy()
	patch, none, err := translate(translator, pod, inventory)
	if !reflect.DeepEqual(before, pod) || len(none) > 0 {
		t.Errorf("the pod was changed, or asks with %d templates", len(none))
	}
	if err != nil {
		if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q is not a refusal of one line", err)
		}
		if asksForInstance(templates) {
			return // a slot stands for no instance
		}
		if len(templates) > 0 && (strings.Contains(err.Error(), "pairs of GPU and card, which need claims") || strings.Contains(err.Error(), "needs claims, ")) {
			return
		}
		if len(templates) > 0 && named(pod) && !slices.ContainsFunc(containersOf(pod), func(p ContainerRef) bool { return Privileged(p.of(pod)) }) {
			t.Errorf("it is refused in slots only: %v", err)
		}
		return
	}
	if len(patch) == 0 {
		if len(templates) > 0 {
			t.Error("it asks for claims and for no slots")
		}
		return
	}
	patched := apply(t, pod, patch)
	if again, _, err := translate(translator, patched, inventory); err != nil || len(again) > 0 {
		t.Errorf("the patched pod becomes %v, %v", again, err)
	}
	request, err := v1alpha1.ParsePodRequest(patched.Annotations[v1alpha1.RequestAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	if len(patched.Spec.ResourceClaims) != len(pod.Spec.ResourceClaims) || patched.Spec.SchedulerName == "default-scheduler" {
		t.Errorf("the pod has claims, or nobody to place it: %+v", patched.Spec)
	}
	if !named(pod) {
		return
	}
	checkSlots1(t, translator, patched, request)
	if len(templates) > 0 {
		checkSameSpecs(t, request, inventory, templates)
	}
}

// asksForInstance reports whether a claim is for a MIG instance.
func asksForInstance(templates []resourcev1.ResourceClaimTemplate) bool {
	return slices.ContainsFunc(templates, func(t resourcev1.ResourceClaimTemplate) bool {
		e := t.Spec.Spec.Devices.Requests[0].Exactly
		return e != nil && e.DeviceClassName == v1alpha1.ClassMIG
	})
}

// checkSlots1 checks that the containers with a share, and no others, count one slot and require the agent.
func checkSlots1(t testing.TB, translator *Translator, patched *corev1.Pod, request v1alpha1.PodRequest) {
	t.Helper()
	for _, ref := range containersOf(patched) {
		container := ref.of(patched)
		limit, request1 := container.Resources.Limits[v1alpha1.SlotResource], container.Resources.Requests[v1alpha1.SlotResource]
		if request.ShareOf(container.Name) == nil {
			if !limit.IsZero() {
				t.Errorf("container %q has a slot and no share", container.Name)
			}
			continue
		}
		if limit.Value() != 1 || request1.Value() != 1 {
			t.Errorf("container %q has %s slots, requests %s", container.Name, limit.String(), request1.String())
		}
		for _, dialect := range translator.dialects {
			if dialect.Owns().askedBy(container) {
				t.Errorf("container %q still asks in %s", container.Name, dialect.Name())
			}
		}
	}
}

func checkSameSpecs(t testing.TB, request v1alpha1.PodRequest, inventory Inventory, templates []resourcev1.ResourceClaimTemplate) {
	t.Helper()
	want := make(map[string]bool)
	for i := range templates {
		spec := templates[i].Spec.Spec
		if config, ok := configOf(t, &spec); ok {
			// No node completes what is asked by slots.
			text, err := v1alpha1.EncodeShareConfig(config)
			if err != nil {
				t.Error(err)
			}
			spec.Devices.Config = configuration(text, []string{requestName})
		}
		text, _ := json.Marshal(spec)
		want[string(text)] = true
	}
	got := make(map[string]bool)
	for _, s := range request.Shares {
		r := Request{Count: s.GPUs, Whole: s.Whole, Memory: s.Amount(), Cores: s.Cores, Selectors: s.Selectors, SameNUMA: s.SameNUMA}
		if s.Config != nil {
			r.Config = *s.Config
		}
		spec, err := claimSpec(r, inventory, s.Name)
		if err != nil {
			t.Error(err)
		}
		text, _ := json.Marshal(spec)
		got[string(text)] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("slots ask %v\nclaims ask %v", got, want)
	}
}

// TestSlotsGolden compares patches, byte for byte, with recorded ones. UPDATE=1 records them anew.
func TestSlotsGolden(t *testing.T) {
	translator := slotted(newTranslator(t, "{plain: {}, hami: {}, kai: {}}"))
	for _, name := range []string{"plain", "hami", "mixed"} {
		text, err := os.ReadFile("testdata/" + name + ".pod.yaml")
		if name == "mixed" {
			text, err = os.ReadFile("testdata/slots/mixed.pod.yaml")
		}
		if err != nil {
			t.Fatal(err)
		}
		patch, _, err := translate(translator, readPod(t, string(text)), Inventory{})
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(map[string]any{"patch": patch})
		if err != nil {
			t.Fatal(err)
		}
		got, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		golden := "testdata/slots/" + name + ".want.yaml"
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(got) {
			t.Errorf("%s: %v, got\n%s", golden, err, got)
		}
	}
}

// A request for a MIG instance is refused in mode slots, with the way that there is.
func TestSlotsForAnInstance(t *testing.T) {
	_, _, err := translate(slotted(newTranslator(t, "{nvidia: {}}")), limitsOf(t, "nvidia.com/mig-1g.10gb: 1"), sixteen)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "agent.devicePlugin") {
		t.Errorf("%v", err)
	}
}

func TestSlotsRefuse(t *testing.T) {
	translator := slotted(newTranslator(t, "{plain: {}}"))
	for name, test := range map[string]struct{ pod, want string }{
		"privileged neighbour": {
			`spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu-memory: 1Gi}}}, {name: b, securityContext: {privileged: true}}]}`,
			`container "b" is privileged`,
		},
		"privileged with whole GPU": {
			`spec: {containers: [{name: a, securityContext: {privileged: true}, resources: {limits: {divvy.dev/gpu: 1}}}]}`,
			`container "a" is privileged`,
		},
		"slot of its own": {
			`spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1, divvy.dev/shares: 1}}}]}`,
			`container "a" asks for divvy.dev/shares`,
		},
		"request of its own": {
			`{metadata: {annotations: {divvy.dev/request: x}}, spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}}`,
			`annotation divvy.dev/request`,
		},
		"assignment of its own": {
			`{metadata: {annotations: {divvy.dev/assignment: x}}, spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}}`,
			`annotation divvy.dev/assignment`,
		},
		"replicas of its own": {
			`{metadata: {annotations: {divvy.dev/replicas: x}}, spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}}`,
			`annotation divvy.dev/replicas`,
		},
		"node": {
			`spec: {nodeName: node-1, containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}`,
			`the pod names its node "node-1"`,
		},
	} {
		if _, _, err := translate(translator, readPod(t, test.pod), sixteen); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSlotsScheduler(t *testing.T) {
	for text, want := range map[string]string{"": "divvy-scheduler", "schedulerName: mine\n": "mine"} {
		translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmode: slots\n" + text + "dialects: {plain: {}, hami: {}}"))
		if err != nil {
			t.Fatal(err)
		}
		for named, becomes := range map[string]string{"": want, "default-scheduler": want, "hami-scheduler": want, "other": "other"} {
			pod := limitsOf(t, "divvy.dev/gpu: 1")
			pod.Spec.SchedulerName = named
			patch, _, err := translate(translator, pod, sixteen)
			if err != nil {
				t.Fatal(err)
			}
			if got := apply(t, pod, patch).Spec.SchedulerName; got != becomes {
				t.Errorf("scheduler %q became %q, want %q", named, got, becomes)
			}
		}
	}
	if _, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmode: both\ndialects: {}")); !errors.Is(err, ErrConfig) {
		t.Errorf("mode both: %v", err)
	}
}
