package dialect

import (
	"context"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// compile compiles a match condition as the API server does for new webhook configurations.
func compile(t testing.TB, expression string) matchconditions.Matcher {
	t.Helper()
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	compiled := compiler.CompileCondition([]celplugin.ExpressionAccessor{&matchconditions.MatchCondition{Name: "it", Expression: expression}},
		celplugin.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	for _, err := range compiled.CompilationErrors() {
		t.Fatalf("%s: %v", expression, err)
	}
	fail := admissionregistrationv1.Fail
	return matchconditions.NewMatcher(compiled, &fail, "webhook", "validating", "it.divvy.dev")
}

// matches evaluates a condition on an object that is being created.
func matches(t testing.TB, matcher matchconditions.Matcher, object runtime.Object, kind schema.GroupVersionKind, resource string) bool {
	t.Helper()
	attributes := admission.NewAttributesRecord(object, nil, kind, "space", "name", kind.GroupVersion().WithResource(resource), "",
		admission.Create, nil, false, &user.DefaultInfo{Name: "somebody"})
	result := matcher.Match(context.Background(), &admission.VersionedAttributes{Attributes: attributes, VersionedObject: object, VersionedKind: kind}, nil, nil)
	if result.Error != nil {
		t.Fatal(result.Error)
	}
	return result.Matches
}

func podMatches(t testing.TB, matcher matchconditions.Matcher, pod *corev1.Pod) bool {
	return matches(t, matcher, pod, corev1.SchemeGroupVersion.WithKind("Pod"), "pods")
}

// TestConditionMissesNoRequest plays pods that might ask in any dialect: each that does must reach the webhook.
func TestConditionMissesNoRequest(t *testing.T) {
	random := rand.New(rand.NewSource(11))
	for _, translator := range hostileTranslators(t) {
		matcher := compile(t, translator.Condition())
		asking := 0
		for range 1500 {
			choices := make([]byte, 3*random.Intn(6))
			random.Read(choices)
			pod := hostilePod(hostileText(choices))
			if pod == nil || !translator.Match(pod) {
				continue
			}
			asking++
			if !podMatches(t, matcher, pod) {
				t.Fatalf("a pod that asks does not reach the webhook: %+v %+v", pod.Annotations, pod.Spec)
			}
		}
		if asking < 100 {
			t.Errorf("only %d pods asked", asking)
		}
	}
}

func TestConditionLeavesOthersAlone(t *testing.T) {
	plain := newTranslator(t, "{plain: {}}")
	kai := newTranslator(t, "{kai: {}, nvidia: {}}")
	for _, c := range []struct {
		translator *Translator
		pod        string
		want       bool
	}{
		{plain, `{spec: {containers: [{name: a}]}}`, false},
		{plain, `{spec: {containers: [{name: a, resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}}]}}`, false},
		{plain, `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: a}]}}`, false},
		{plain, `{spec: {containers: [{name: a, resources: {claims: [{name: mine}]}}], resourceClaims: [{name: mine, resourceClaimName: x}]}}`, false},
		{plain, `{spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpux: 1}}}]}}`, false},
		{plain, `{spec: {containers: [{name: a}, {name: b, resources: {requests: {divvy.dev/gpu-cores: 1}}}]}}`, true},
		{plain, `{spec: {initContainers: [{name: i, resources: {limits: {divvy.dev/gpu: 1}}}], containers: [{name: a}]}}`, true},
		{kai, `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: a}]}}`, true},
		{kai, `{metadata: {annotations: {nvidia.com/container.a.gpu-memory.request: 8Gi}}, spec: {containers: [{name: a}]}}`, true},
		{kai, `{metadata: {annotations: {nvidia.com/containers: a}}, spec: {containers: [{name: a}]}}`, false},
		{kai, `{metadata: {labels: {gpu-fraction: "0.5"}}, spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}}`, false},
		{kai, `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}`, true},
		{newTranslator(t, "{}"), `{spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}]}}`, false},
	} {
		if got := podMatches(t, compile(t, c.translator.Condition()), readPod(t, c.pod)); got != c.want {
			t.Errorf("%s: %v", c.pod, got)
		}
	}
}

func TestContainerCondition(t *testing.T) {
	matcher := compile(t, ContainerCondition())
	for pod, want := range map[string]bool{
		`{spec: {containers: [{name: a}, {name: b, securityContext: {privileged: true}}]}}`:                          false,
		`{spec: {containers: [{name: a, resources: {claims: [{name: x}]}}, {name: b}]}}`:                             false,
		`{spec: {containers: [{name: a, resources: {claims: [{name: x}, {name: y}]}}]}}`:                             true,
		`{spec: {containers: [{name: a}], initContainers: [{name: i, resources: {claims: [{name: x},{name: y}]}}]}}`: true,
		`{spec: {containers: [{name: a, securityContext: {privileged: true}, resources: {claims: [{name: x}]}}]}}`:   true,
		`{spec: {containers: [{name: a, resources: {claims: [{name: x}], limits: {memory: 1Gi}}}]}}`:                 true,
		`{spec: {containers: [{name: a, resources: {claims: [{name: x}], limits: {cpu: 1}}}]}}`:                      false,
		`{spec: {containers: [{name: a, resources: {limits: {memory: 1Gi}}}]}}`:                                      false,
		`{spec: {resources: {limits: {memory: 1Gi}}, containers: [{name: a, resources: {claims: [{name: x}]}}]}}`:    true,
		`{spec: {containers: [{name: a, securityContext: {runAsUser: 1}, resources: {claims: [{name: x}]}}]}}`:       false,
	} {
		if got := podMatches(t, matcher, readPod(t, pod)); got != want {
			t.Errorf("%s: %v", pod, got)
		}
	}
}

var claimsOfMany = map[string]bool{ // whether they concern Divvy
	`{}`:                         false,
	`{requests: [], config: []}`: false,
	`{requests: [{name: a, exactly: {deviceClassName: nic.example.com}}]}`:                                                                     false,
	`{requests: [{name: a, exactly: {deviceClassName: nic.example.com}}, {name: b, exactly: {deviceClassName: share.divvy.dev}}]}`:             true,
	`{requests: [{name: a, firstAvailable: [{name: x, deviceClassName: nic.example.com}, {name: y, deviceClassName: gpu.divvy.dev}]}]}`:        true,
	`{requests: [{name: a, firstAvailable: [{name: x, deviceClassName: nic.example.com}]}]}`:                                                   false,
	`{requests: [{name: a, exactly: {deviceClassName: mig.divvy.dev}}]}`:                                                                       true,
	`{requests: [{name: a, exactly: {deviceClassName: training.example.com}}], config: [{opaque: {driver: divvy.dev, parameters: {}}}]}`:       true,
	`{requests: [{name: a, exactly: {deviceClassName: training.example.com}}], config: [{opaque: {driver: nic.example.com, parameters: {}}}]}`: false,
}

func TestClaimConditions(t *testing.T) {
	ofClaims, ofTemplates := compile(t, Classes{}.ClaimCondition()), compile(t, Classes{}.TemplateCondition())
	for devices, want := range claimsOfMany {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: "+devices), &spec); err != nil {
			t.Fatal(err)
		}
		claim := &resourcev1.ResourceClaim{Spec: spec}
		if got := matches(t, ofClaims, claim, resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), "resourceclaims"); got != want {
			t.Errorf("claim %s: %v", devices, got)
		}
		template := &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}
		if got := matches(t, ofTemplates, template, resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), "resourceclaimtemplates"); got != want {
			t.Errorf("template %s: %v", devices, got)
		}
		if got := (Classes{}).Concerns(&spec); got != want {
			t.Errorf("Classes{}.Concerns(%s) = %v", devices, got)
		}
	}
}

func TestDialectNames(t *testing.T) {
	all := OwnedNames()
	if len(all) != len(dialects) {
		t.Errorf("%d of %d dialects", len(all), len(dialects))
	}
	for _, translator := range hostileTranslators(t) {
		for _, dialect := range translator.dialects {
			if !reflect.DeepEqual(all[dialect.Name()], dialect.Owns()) {
				t.Errorf("the names of %s depend on its options", dialect.Name())
			}
			if names := dialect.Owns(); strings.ContainsAny(strings.Join(append(names.Resources, names.Annotations...), ""), `'"\`) {
				t.Errorf("names of %s do not fit into an expression", dialect.Name())
			}
		}
	}
}
