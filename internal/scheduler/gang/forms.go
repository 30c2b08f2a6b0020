package gang

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Form is a way in which pods say that they are a gang. A pod that has several is of the gang of the first.
type Form uint8

// The forms.
const (
	// FormAnnotations is our own: annotation divvy.dev/gang.
	FormAnnotations Form = iota
	// FormKubernetes is PodGroup of scheduling.k8s.io/v1alpha2, named by the pod's schedulingGroup.
	FormKubernetes
	// FormCoscheduling is PodGroup of scheduling.x-k8s.io/v1alpha1, named by label scheduling.x-k8s.io/pod-group.
	FormCoscheduling
	// FormSIGs is PodGroup of scheduling.sigs.k8s.io/v1alpha1, named by label pod-group.scheduling.sigs.k8s.io. It is an
	// older one of coscheduling, which Koordinator has as well.
	FormSIGs
	// FormLabels is labels pod-group.scheduling.sigs.k8s.io/name and /min-available, the oldest of coscheduling.
	FormLabels
	// FormVolcano is PodGroup of scheduling.volcano.sh/v1beta1, named by annotation scheduling.k8s.io/group-name.
	FormVolcano
	// FormKoordinator is annotations gang.scheduling.koordinator.sh/name, /min-available and /total-number.
	FormKoordinator
	forms
)

// String is how names of gangs begin that are not of our own form.
func (f Form) String() string {
	return [forms]string{"divvy", "podgroup", "coscheduling", "sigs", "labels", "volcano", "koordinator"}[f]
}

// Resource is that of the objects of a form, and false for a form without objects.
func (f Form) Resource() (schema.GroupVersionResource, bool) {
	group := [forms]schema.GroupVersion{
		FormKubernetes:   schedulingv1alpha2.SchemeGroupVersion,
		FormCoscheduling: {Group: "scheduling.x-k8s.io", Version: "v1alpha1"},
		FormSIGs:         {Group: "scheduling.sigs.k8s.io", Version: "v1alpha1"},
		FormVolcano:      {Group: "scheduling.volcano.sh", Version: "v1beta1"},
	}[f]
	return group.WithResource("podgroups"), group.Version != ""
}

// Labels and annotations of other forms.
const (
	labelCoscheduling = "scheduling.x-k8s.io/pod-group"
	labelSIGs         = "pod-group.scheduling.sigs.k8s.io"
	noteVolcano       = "scheduling.k8s.io/group-name"
	noteVolcanoNewer  = "scheduling.volcano.sh/group-name"
	noteKoordinator   = "gang.scheduling.koordinator.sh"
)

// formOf is the form in which a pod names a gang, and the gang's name there.
func formOf(pod *corev1.Pod) (Form, string, bool) {
	if name, ok := pod.Annotations[v1alpha1.GangAnnotation]; ok {
		return FormAnnotations, name, true
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return FormKubernetes, *group.PodGroupName, true
	}
	for _, c := range []struct {
		form Form
		in   map[string]string
		key  string
	}{
		{FormCoscheduling, pod.Labels, labelCoscheduling},
		{FormSIGs, pod.Labels, labelSIGs},
		{FormLabels, pod.Labels, labelSIGs + "/name"},
		{FormVolcano, pod.Annotations, noteVolcano},
		{FormVolcano, pod.Annotations, noteVolcanoNewer},
		{FormKoordinator, pod.Annotations, noteKoordinator + "/name"},
	} {
		if name := c.in[c.key]; name != "" {
			return c.form, name, true
		}
	}
	return 0, "", false
}

// foreign reads a gang of another form.
func foreign(pod *corev1.Pod, form Form, name string, groups PodGroups) (Gang, bool, error) {
	g := Gang{Namespace: pod.Namespace, Name: form.String() + "/" + name}
	if !isName(name) {
		return g, true, invalid("%s is no name of a gang", quote(name))
	}
	var err error
	switch form {
	case FormLabels:
		key := labelSIGs + "/min-available"
		if g.Minimum, err = count("label", key, pod.Labels[key], v1alpha1.MostGangMembers); err != nil {
			return g, true, err
		}
	case FormKoordinator:
		if err := g.koordinator(pod.Annotations); err != nil {
			return g, true, err
		}
	default:
		group, ok := PodGroup{}, false
		if groups != nil {
			group, ok = groups.PodGroup(form, pod.Namespace, name)
		}
		switch {
		case !ok:
			resource, _ := form.Resource()
			return g, true, invalid("PodGroup %s of %s does not exist in namespace %s", quote(name), resource.GroupVersion(), pod.Namespace)
		case group.Fault != "":
			return g, true, invalid("PodGroup %s %s", quote(name), group.Fault)
		case group.Minimum == 0:
			return g, false, nil
		}
		g.Minimum, g.Topology = group.Minimum, group.Topology
	}
	return g, true, g.adorn(pod.Annotations)
}

// koordinator reads Koordinator's annotations.
func (g *Gang) koordinator(notes map[string]string) (err error) {
	key := noteKoordinator + "/min-available"
	if g.Minimum, err = count("annotation", key, notes[key], v1alpha1.MostGangMembers); err != nil {
		return err
	}
	key = noteKoordinator + "/total-number"
	if total, ok := notes[key]; ok {
		if g.Size, err = count("annotation", key, total, v1alpha1.MostGangMembers); err != nil {
			return err
		}
		if g.Size < g.Minimum {
			return invalid("annotation %s: %d is less than the %d of min-available", key, g.Size, g.Minimum)
		}
	}
	for _, unknown := range []string{"groups", "network-topology-spec"} {
		if text := notes[noteKoordinator+"/"+unknown]; text != "" && text != "[]" && text != "{}" {
			return invalid("annotation %s/%s is not understood by %s: leave it out", noteKoordinator, unknown, v1alpha1.SchedulerName)
		}
	}
	return nil
}

// isName reports whether a name breaks neither a line nor the name of a gang.
func isName(name string) bool {
	odd := func(r rune) bool { return r == ' ' || r == '/' || !strconv.IsPrint(r) }
	return name != "" && len(name) <= 253 && !strings.ContainsFunc(name, odd)
}
