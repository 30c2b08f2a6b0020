package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// sixteen and forty are GPUs with 16 and 40 GiB for tenants.
var (
	sixteen      = Inventory{Sizes: []uint64{16 << 30}}
	sixteenForty = Inventory{Sizes: []uint64{40 << 30, 16 << 30, 40 << 30}}
)

func readPod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
		t.Fatalf("read the pod: %v\n%s", err, text)
	}
	return &pod
}

// limitsOf writes a pod with one container and these limits, "name: quantity" each.
func limitsOf(t testing.TB, limits ...string) *corev1.Pod {
	t.Helper()
	return readPod(t, "spec: {containers: [{name: main, resources: {limits: {"+strings.Join(limits, ", ")+"}}}]}")
}

func newTranslator(t testing.TB, dialects string) *Translator {
	t.Helper()
	translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: " + dialects))
	if err != nil {
		t.Fatal(err)
	}
	return translator
}

// apply applies a patch to the pod's JSON, strictly: what is removed or replaced must be there.
func apply(t testing.TB, pod *corev1.Pod, patch Patch) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	var steps []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		path := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		if document, err = step1(document, path, step.Op, step.Value); err != nil {
			t.Fatalf("apply %s %s: %v", step.Op, step.Path, err)
		}
	}
	if text, err = json.Marshal(document); err != nil {
		t.Fatal(err)
	}
	var patched corev1.Pod
	if err := json.Unmarshal(text, &patched); err != nil {
		t.Fatal(err)
	}
	return &patched
}

func step1(in any, path []string, op string, value any) (any, error) {
	key, last := path[0], len(path) == 1
	switch node := in.(type) {
	case map[string]any:
		old, ok := node[key]
		switch {
		case last && op == "add":
			node[key] = value
		case !ok:
			return nil, fmt.Errorf("%q is not there", key)
		case last && op == "remove":
			delete(node, key)
		case last && op == "replace":
			node[key] = value
		default:
			changed, err := step1(old, path[1:], op, value)
			if err != nil {
				return nil, err
			}
			node[key] = changed
		}
		return node, nil
	case []any:
		if last && op == "add" && key == "-" {
			return append(node, value), nil
		}
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(node) || last {
			return nil, fmt.Errorf("%q is no place in a list", key)
		}
		node[i], err = step1(node[i], path[1:], op, value)
		return node, err
	}
	return nil, fmt.Errorf("%q is in neither a map nor a list", key)
}

// describe says in one line what each container of a patched pod gets, from the pod and the templates alone.
func describe(t testing.TB, pod *corev1.Pod, templates []resourcev1.ResourceClaimTemplate) string {
	t.Helper()
	claims := make(map[string]string)
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName == nil {
			continue
		}
		for i := range templates {
			if templates[i].Name == *c.ResourceClaimTemplateName {
				claims[c.Name] = describeSpec(t, &templates[i].Spec.Spec)
			}
		}
	}
	var lines []string
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		for _, use := range container.Resources.Claims {
			line := container.Name + ": " + claims[use.Name]
			if use.Name != "divvy-"+container.Name {
				line = container.Name + " in " + use.Name + ": " + claims[use.Name]
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func describeSpec(t testing.TB, spec *resourcev1.ResourceClaimSpec) string {
	t.Helper()
	request := spec.Devices.Requests[0]
	var words []string
	pairs, paired := PairsOf(spec)
	if paired {
		request = pairs.GPU
	}
	amounts := func(class string, count int64, chosen []resourcev1.DeviceSelector, capacity *resourcev1.CapacityRequirements) string {
		words := []string{strconv.FormatInt(count, 10), strings.TrimSuffix(class, ".divvy.dev")}
		if capacity != nil {
			for _, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacitySwapMemory, v1alpha1.CapacityCores} {
				if q, ok := capacity.Requests[name]; ok {
					words = append(words, string(name)+"="+q.String())
				}
			}
			if q := capacity.Requests[v1alpha1.CapacitySlots]; q.Value() != 1 && class != v1alpha1.ClassMIG {
				t.Errorf("%s slots", q.String())
			}
		}
		for _, s := range chosen {
			words = append(words, "["+s.CEL.Expression+"]")
		}
		return strings.Join(words, " ")
	}
	if e := request.Exactly; e != nil {
		words = append(words, amounts(e.DeviceClassName, e.Count, e.Selectors, e.Capacity))
	}
	for _, way := range request.FirstAvailable {
		words = append(words, amounts(way.DeviceClassName, way.Count, way.Selectors, way.Capacity))
	}
	if len(words) > 1 {
		words = []string{strings.Join(words, " or ")}
	}
	for _, c := range spec.Devices.Constraints {
		if !paired {
			words = append(words, "same "+string(*c.MatchAttribute))
		}
	}
	if paired {
		words[0] = fmt.Sprintf("%d %s pairs of %s", pairs.Count, pairs.Reach, words[0])
	}
	if config, ok := configOf(t, spec); ok {
		words = append(words, string(config.Policy))
		if config.MaxCores > 0 {
			words = append(words, fmt.Sprintf("to %d", config.MaxCores))
		}
		if config.Weight != 1 {
			words = append(words, fmt.Sprintf("weight %d", config.Weight))
		}
		if config.Class != "online" {
			words = append(words, string(config.Class))
		}
		if config.Swap {
			words = append(words, "swap")
		}
		if config.SuspendAfter != 0 {
			words = append(words, "suspended after "+time.Duration(config.SuspendAfter).String())
		}
	}
	return strings.Join(words, " ")
}

// configOf is how a claim's share behaves on a node without defaults of its own; a whole GPU has no such thing.
func configOf(t testing.TB, spec *resourcev1.ResourceClaimSpec) (config v1alpha1.ShareConfig, ok bool) {
	t.Helper()
	for _, c := range spec.Devices.Config {
		var err error
		if config, err = v1alpha1.DecodeShareConfig(c.Opaque.Parameters.Raw); err != nil {
			t.Error(err)
		}
		if config == (v1alpha1.ShareConfig{}) {
			t.Error("a configuration that says nothing")
		}
	}
	for _, a := range requestsOf(spec) {
		cores, err := coresOf(a.capacity)
		if err != nil {
			t.Error(err)
		}
		if a.class == v1alpha1.ClassShare {
			config.Default(cores)
			return config, true
		}
	}
	return config, false
}

// translate returns the patch and the templates of a translation.
func translate(translator *Translator, pod *corev1.Pod, inventory Inventory) (Patch, []resourcev1.ResourceClaimTemplate, error) {
	made, err := translator.Translate(pod, inventory)
	return made.Patch, made.Templates, err
}

// translated translates a pod, checks what must hold of every translation, and describes it; a refusal is its text.
func translated(t testing.TB, translator *Translator, pod *corev1.Pod, inventory Inventory) string {
	t.Helper()
	before := pod.DeepCopy()
	patch, templates, err := translate(translator, pod, inventory)
	checkSlotted(t, translator, pod, inventory, templates)
	if !reflect.DeepEqual(before, pod) {
		t.Error("the pod was changed")
	}
	if err != nil {
		if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q is not a refusal of one line", err)
		}
		return strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
	}
	patched := apply(t, pod, patch)
	checkPatched(t, translator, pod, patched, templates)
	again, more, err := translate(translator, patched, inventory)
	if err != nil || len(again) != 0 || len(more) != 0 {
		t.Errorf("the patched pod becomes %v, %d templates, %v", again, len(more), err)
	}
	first, _ := json.Marshal([]any{patch, templates})
	patch, templates, _ = translate(translator, before, inventory)
	if second, _ := json.Marshal([]any{patch, templates}); string(first) != string(second) {
		t.Errorf("the same pod became\n%s\nand\n%s", first, second)
	}
	for i := range templates {
		if err := (Classes{}).ValidateClaim(&templates[i].Spec.Spec); err != nil {
			t.Errorf("a template is invalid: %v", err)
		}
		if err := CheckTranslated(&templates[i].Spec.Spec); err != nil {
			t.Errorf("a template is none of a translation: %v", err)
		}
	}
	return describe(t, patched, templates)
}

// checkPatched checks that the patched pod differs from the pod in what a translation may change only.
func checkPatched(t testing.TB, translator *Translator, pod, patched *corev1.Pod, templates []resourcev1.ResourceClaimTemplate) {
	t.Helper()
	defined := make(map[string]bool)
	for _, template := range templates {
		if len(template.Name) > 63 || strings.Trim(template.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("template name %q", template.Name)
		}
		defined[template.Name] = true
	}
	names := make(map[string]bool)
	for i, c := range patched.Spec.ResourceClaims {
		if ours := i >= len(pod.Spec.ResourceClaims); ours {
			if names[c.Name] || len(c.Name) > 63 {
				t.Errorf("claim name %q", c.Name)
			}
			if c.ResourceClaimTemplateName == nil || !defined[*c.ResourceClaimTemplateName] {
				t.Errorf("claim %q has no template", c.Name)
			}
		}
		names[c.Name] = true
	}
	rest := patched.DeepCopy()
	for _, ref := range containersOf(rest) {
		was, is := ref.of(pod), ref.of(rest)
		for _, use := range is.Resources.Claims[len(was.Resources.Claims):] {
			if !names[use.Name] {
				t.Errorf("container %q uses the unknown claim %q", is.Name, use.Name)
			}
		}
		if len(is.Resources.Claims) > len(was.Resources.Claims) {
			for _, dialect := range translator.dialects {
				if dialect.Owns().askedBy(is) {
					t.Errorf("container %q still asks in %s", is.Name, dialect.Name())
				}
			}
		}
		is.Resources.Claims, is.Resources.Limits, is.Resources.Requests = was.Resources.Claims, was.Resources.Limits, was.Resources.Requests
	}
	rest.Spec.ResourceClaims, rest.Spec.SchedulerName, rest.Annotations = pod.Spec.ResourceClaims, pod.Spec.SchedulerName, pod.Annotations
	want, _ := json.Marshal(pod)
	if got, _ := json.Marshal(rest); string(got) != string(want) {
		t.Errorf("the patch changes more than it may:\n%s\n%s", want, got)
	}
	if !slices.EqualFunc(pod.Spec.ResourceClaims, patched.Spec.ResourceClaims[:len(pod.Spec.ResourceClaims)], func(a, b corev1.PodResourceClaim) bool { return reflect.DeepEqual(a, b) }) {
		t.Error("the pod's own claims are not kept")
	}
}

// example is a pod of some project's documentation, or a quirk of its units, and what becomes of it.
type example struct {
	name string
	pod  *corev1.Pod
	want string // what the containers get, or what the refusal says
}

func checkExamples(t *testing.T, translator *Translator, inventory Inventory, examples []example) {
	t.Helper()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			if got := translated(t, translator, e.pod, inventory); got != e.want {
				t.Errorf("got  %s\nwant %s", got, e.want)
			}
		})
	}
}
