package dialect

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// MostTemplates is how many claim templates one pod may need.
	MostTemplates = 16
	// MostContainers is how many containers of one pod may ask for GPUs. Kubernetes makes a claim for each.
	MostContainers = 64
	// longestCarried bounds what a pod carries. The API server takes annotations of 256 KiB in all.
	longestCarried = 64 << 10
)

// Carry adds to the patch an annotation with the templates or the claims that the pod needs. They are made from it once
// the pod is admitted, so that a pod that is refused leaves nothing. It refuses a pod that needs too many.
func (m *Translation) Carry(pod *corev1.Pod) error {
	if len(m.Described) > 0 {
		text, err := m.describe(pod)
		if err != nil {
			return err
		}
		m.Patch.annotate(pod, map[string]string{v1alpha1.ClaimsAnnotation: text})
		return nil
	}
	if len(m.Templates) == 0 {
		return nil
	}
	// A copy of a translated pod, to which a request was added, still needs what it carries.
	carried, err := carriedSpecs(pod)
	if err != nil {
		carried = nil
	}
	all := make(map[string]resourcev1.ResourceClaimSpec, len(carried)+len(m.Templates))
	maps.Copy(all, carried)
	for i := range m.Templates {
		all[m.Templates[i].Name] = m.Templates[i].Spec.Spec
	}
	if len(all) > MostTemplates {
		return refuse("the pod asks for GPUs in %d different ways, more than the %d that one pod may: let containers ask for the same", len(all), MostTemplates)
	}
	text, err := json.Marshal(all)
	if err != nil || len(text) > longestCarried {
		return refuse("what the pod asks of GPUs takes %d bytes to write, more than %d: ask for less by name", len(text), longestCarried)
	}
	m.Patch.annotate(pod, map[string]string{v1alpha1.TemplatesAnnotation: string(text)})
	return nil
}

// Carried returns the templates that a pod carries and its claims name. An error wraps [ErrRefused]: then somebody else
// than a translation wrote the annotation.
func Carried(pod *corev1.Pod) ([]resourcev1.ResourceClaimTemplate, error) {
	specs, err := carriedSpecs(pod)
	if err != nil {
		return nil, err
	}
	var templates []resourcev1.ResourceClaimTemplate
	for _, name := range sortedKeys(specs) {
		templates = append(templates, templateOf(pod.Namespace, name, specs[name]))
	}
	return templates, nil
}

// carriedSpecs returns what Carried does, by the templates' names.
func carriedSpecs(pod *corev1.Pod) (map[string]resourcev1.ResourceClaimSpec, error) {
	text, ok := pod.Annotations[v1alpha1.TemplatesAnnotation]
	if !ok {
		return nil, nil
	}
	forged := func(what string) error {
		return refuse("annotation %s is written by Divvy, and %s: leave it out", v1alpha1.TemplatesAnnotation, what)
	}
	if len(text) > longestCarried {
		return nil, forged("is never as long as here")
	}
	var specs map[string]resourcev1.ResourceClaimSpec
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &specs); err != nil {
		return nil, forged("does not read: " + err.Error())
	}
	if len(specs) > MostTemplates {
		return nil, forged("never names so many templates")
	}
	named := make(map[string]bool)
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			named[*name] = true
		}
	}
	maps.DeleteFunc(specs, func(name string, _ resourcev1.ResourceClaimSpec) bool { return !named[name] })
	for name, spec := range specs {
		if real, err := TemplateName(&spec); err != nil || real != name {
			return nil, forged("names every template by what it holds, but not " + name)
		}
		if CheckTranslated(&spec) != nil {
			return nil, forged("never asks what " + name + " asks")
		}
	}
	return specs, nil
}

func templateOf(namespace, name string, spec resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimTemplate {
	return resourcev1.ResourceClaimTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaimTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{v1alpha1.ManagedLabel: v1alpha1.ManagedBy}},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: spec},
	}
}
